"""A job's process (`python -m …job`): a question that takes a compiler, answered by messages on stdout.

It reads the request on stdin, one line of JSON, and ends itself with all its children where stdin closes: the server
holds the other end, so nothing outlives it. What was typed becomes a question by `web/words.py`, as in every worker; it
is never a word of a command line. A config that was dropped on the page is written under a fixed name in the process's
own empty folder, because compilers are given models by their file.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from dragonscale.errors import Infeasible, InputError, printable, shorten
from dragonscale.listener import Listener
from dragonscale.pasted import without_files

KINDS = {"verify": "verify"}
"""What can be a job, and its command."""
REFUSED = ("options", "timeout", "memory", "cache")
"""Fields that are the server's to set: options of a compiler name files."""


class JobListener(Listener):
    """Sends what the asker should know while it waits."""

    def __init__(self, send: Any) -> None:
        super().__init__()
        self.send = send

    def wait(self, text: str) -> None:
        self.send({"note": text})

    def note(self, text: str) -> None:
        super().note(text)
        self.send({"note": text})

    def step(self, done: int, total: int) -> None:
        if total > 0:
            self.send({"progress": min(done / total, 1.0)})


def main() -> None:
    """Answer the one request."""
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.nice(10)  # a compiler takes every core, and sliders should go on
    os.dup2(2, 1)  # what libraries print is no message
    request = msgspec.json.decode(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_server, daemon=True).start()

    def send(message: dict[str, Any]) -> None:
        out.write(msgspec.json.encode(message) + b"\n")

    try:
        _answer(request, send)
    except Infeasible as error:
        send(_failed("infeasible", str(error)))
    except InputError as error:
        send(_failed("input", str(error)))
    except (RecursionError, MemoryError, OSError) as error:
        send(_failed("limit", f"The job cannot be done on this machine ({type(error).__name__})."))
    except Exception as error:
        import traceback

        traceback.print_exc()
        said = shorten(f"{type(error).__name__}: {error}", 200)
        send(_failed("fault", f"The job failed, which is a fault of the planner ({said})."))
    os._exit(0)


def _answer(request: Mapping[str, Any], send: Any) -> None:
    from dragonscale.faces.cli.mcp.results import plain
    from dragonscale.faces.commands import COMMANDS
    from dragonscale.web.views.registry import blocks_of

    command = KINDS[request["kind"]]
    question = job_question(command, request["fields"], request["dropped"])
    vars(question).update(timeout=request["timeout"], memory=request["memory"])
    dropped = question.model != request["fields"].get("model")  # its config is a file by now
    # the user of this machine may have calibrated profiles, which are files too
    with contextlib.nullcontext() if dropped or request["loopback"] else without_files():
        record = COMMANDS[command].answer(question, JobListener(send))
    notes = [text for text in record.notes_beside if text not in getattr(record, "notes", ())]
    send({"panel": "sheet", "data": plain({"blocks": blocks_of(record.sheet(True)), "notes": notes})})
    send({"panel": "record", "data": plain(record.to_dict())})
    send({"done": True})


def job_question(command: str, fields: Mapping[str, Any], dropped: Mapping[str, str]) -> Any:
    """The question of a job, from fields that were typed."""
    from dragonscale.web.words import dropped_model, question_of

    given = {name: value for name, value in fields.items() if value not in ("", None, [], False)}
    for name in REFUSED:
        if name in given:
            raise InputError(f"{name} cannot be set on the page; use `dscale {command}` on the command line.")
    question, model = question_of(command, given), given.get("model")
    if isinstance(model, str) and model in dropped:
        dropped_model(model, dropped[model])  # refused here where it is no config
        Path("config.json").write_text(dropped[model], encoding="utf-8")
        vars(question)["model"] = str(Path("config.json").absolute())
    return question


def _failed(kind: str, sentence: str) -> dict[str, Any]:
    return {"error": {"kind": kind, "text": printable(sentence)}}


def _end_with_server() -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 1024):
            pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
