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
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from dragonscale.commands.questions.flag import with_values
from dragonscale.errors import Infeasible, InputError, shorten
from dragonscale.faces.cli.mcp.results import plain
from dragonscale.faces.commands import COMMANDS
from dragonscale.pasted import without_files
from dragonscale.web.answers import failed
from dragonscale.web.page_request import PageListener
from dragonscale.web.server.processes import JOBS
from dragonscale.web.views.registry import sheet_data
from dragonscale.web.words import dropped_model, question_of

REFUSED = ("options", "timeout", "memory_limit", "cache")
"""Fields that are the server's to set: options of a compiler name files."""


class JobListener(PageListener):
    """Sends what the asker should know while it waits, notes too."""

    def note(self, text: str) -> None:
        super().note(text)
        self.send({"note": text})


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
        send(failed("infeasible", str(error)))
    except InputError as error:
        send(failed("input", str(error)))
    except (RecursionError, MemoryError, OSError) as error:
        send(failed("limit", f"The job cannot be done on this machine ({type(error).__name__})."))
    except Exception as error:
        traceback.print_exc()
        fault = shorten(f"{type(error).__name__}: {error}", 200)
        send(failed("fault", f"The job failed, which is a fault of the planner ({fault})."))
    os._exit(0)


def _answer(request: Mapping[str, Any], send: Any) -> None:
    command = JOBS[request["kind"]]
    question = job_question(command, request["fields"], request["dropped"])
    question = with_values(question, timeout=request["timeout"], memory_limit=request["memory"])
    dropped = question.model != request["fields"].get("model")  # its config is a file by now
    # the user of this machine may have calibrated profiles, which are files too
    with contextlib.nullcontext() if dropped or request["loopback"] else without_files():
        record = COMMANDS[command].answer(question, JobListener(send))
    send({"panel": "sheet", "data": plain(sheet_data(record, True))})
    send({"panel": "record", "data": plain(record.to_dict())})
    send({"done": True})


def job_question(command: str, fields: Mapping[str, Any], dropped: Mapping[str, str]) -> Any:
    """The question of a job, from fields that were typed."""
    filled = {name: value for name, value in fields.items() if value not in ("", None, [], False)}
    for name in REFUSED:
        if name in filled:
            raise InputError(f"{name} cannot be set on the page; use `dscale {command}` on the command line.")
    question, model = question_of(command, filled), filled.get("model")
    if isinstance(model, str) and model in dropped:
        dropped_model(model, dropped[model])  # refused here where it is no config
        Path("config.json").write_text(dropped[model], encoding="utf-8")
        question = with_values(question, model=str(Path("config.json").absolute()))
    return question


def _end_with_server() -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 1024):
            pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
