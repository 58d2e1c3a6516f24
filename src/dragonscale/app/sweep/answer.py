"""One entry of a sweep answered: the same functions that the commands call, and a reason in place of every failure.

`python -m dragonscale.app.sweep.answer` answers entries as they come, a line of JSON each, until its input ends.
"""

import os
import sys
import time
from typing import Any

import msgspec

from dragonscale.app.questions.verify import VerifyQuestion
from dragonscale.app.serve import question as serve_question
from dragonscale.app.sweep.records import Answer, Entry
from dragonscale.app.train import question as train_question
from dragonscale.app.verify import question as verify_question
from dragonscale.errors import InputError


class Task(msgspec.Struct, frozen=True):
    """An entry on its way to a process; `cached` says whether what was compiled before may be used."""

    entry: Entry
    cached: bool = True


def answer_entry(entry: Entry, cached: bool = True) -> Answer:
    """What the entry's command would print as JSON, or why it cannot."""
    start, failed, found = time.monotonic(), "", None
    try:
        found = {"verify": _verify, "train": _train, "serve": _serve}[entry.command](entry.asks, cached)
    except InputError as error:
        failed = str(error)
    except Exception as error:  # one bad entry must not end a sweep of hundreds
        failed = f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
    answer = None if failed else msgspec.to_builtins(found)
    return Answer(entry.key, entry.command, entry.asks, time.monotonic() - start, failed, answer)


def _verify(asks: dict[str, Any], cached: bool) -> Any:
    from dragonscale.evidence.verify.quiet import verify_quietly

    asked = verify_question.read_question(VerifyQuestion(**asks))
    return verify_quietly(asked.request, asked.timeout, asked.memory, cached)


def _train(asks: dict[str, Any], _: bool) -> Any:
    from dragonscale.app.train.ask import answer

    return answer(train_question.read_question(train_question.TrainQuestion(**asks)))


def _serve(asks: dict[str, Any], _: bool) -> Any:
    from dragonscale.app.serve.report import answer

    return answer(serve_question.read_question(serve_question.ServeQuestion(**asks)))


def main() -> None:
    """Answer tasks from stdin on stdout; what libraries print goes to stderr."""
    own = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(own, "wb") as out:
        for line in sys.stdin.buffer:
            task = msgspec.json.decode(line, type=Task)
            out.write(msgspec.json.encode(answer_entry(task.entry, task.cached)) + b"\n")
            out.flush()


if __name__ == "__main__":
    main()
