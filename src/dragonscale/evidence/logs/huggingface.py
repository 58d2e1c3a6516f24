"""The Hugging Face Trainer: `trainer_state.json`, or what it prints.

    {'train_runtime': 4219.8, 'train_samples_per_second': 60.7, 'train_steps_per_second': 0.474, 'train_loss': 1.9,
    'epoch': 1.0}
      12%|█▏        | 240/2000 [08:26<1:01:50,  2.11s/it]

The Trainer times no step of its own. The bar has the time so far in whole seconds, from which the time between two of
its states follows; without it there is the mean over the whole run, warm-up and all, that stands at its end. The state
of a checkpoint holds no time at all.
"""

import ast
import re
from typing import Any

from dragonscale.errors import InputError
from dragonscale.evidence.logs.text import LogText, number
from dragonscale.evidence.logs.training_log import LoggedStep, TrainingLog

NAME = "Hugging Face Trainer"
_BAR = re.compile(r"(\d+)/(\d+) \[((?:\d+:)?\d+:\d+)<[^,\]]+,\s*[\d.]+(?:s/it|it/s)")
_LINE = re.compile(r"\{(?=[^{}]*'(?:loss|train_runtime)':)[^{}]*\}")
_WIDTH = 20.0
"""Seconds between two states of the bar that are compared, at least: a second is a twentieth of it."""


def recognises(log: LogText) -> bool:
    if log.table is not None:
        return isinstance(log.table.get("log_history"), list) and "global_step" in log.table
    return any(_LINE.search(line) for line in log.lines)


def read(log: LogText) -> TrainingLog:
    entries = _entries(log)
    bars = _bars(log) if log.table is None else []
    if bars:
        return TrainingLog(NAME, tuple(bars))
    ended = [entry for entry in entries if number(entry.get("train_steps_per_second"))]
    if not ended:
        raise InputError(
            f"{log.shown} of the Hugging Face Trainer holds no times; give the trainer_state.json that the end of a "
            "run writes (with train_runtime), or what the run printed."
        )
    last, state = ended[-1], log.table or {}
    rate = number(last["train_steps_per_second"]) or 0.0
    runtime, done = number(last.get("train_runtime")), number(state.get("global_step", last.get("step")))
    seconds = runtime / done if runtime and done else 1 / rate  # the rate itself is rounded to a thousandth
    note = "The Trainer gives only the mean over the whole run, its warm-up included."
    return TrainingLog(NAME, (LoggedStep(int(done or 1), seconds),), notes=(note,))


def _entries(log: LogText) -> list[dict[str, Any]]:
    """What was logged, from the state or as it was printed."""
    if log.table is not None:
        return [one for one in log.table["log_history"] if isinstance(one, dict)]
    found: list[dict[str, Any]] = []
    for line in log.lines:
        for match in _LINE.finditer(line):
            try:
                entry = ast.literal_eval(match[0])
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
            found += [entry] if isinstance(entry, dict) else []
    return found


def _bars(log: LogText) -> list[LoggedStep]:
    """The mean step between states of the longest bar that lie far enough apart for its whole seconds."""
    states = [(int(one[1]), int(one[2]), _seconds(one[3])) for line in log.lines for one in _BAR.finditer(line)]
    total = max((of for _, of, _ in states), default=0)
    steps: list[LoggedStep] = []
    last: tuple[int, float] | None = None
    for done, of, elapsed in states:
        if of != total:  # a bar of the loader or of an evaluation
            continue
        if last is None or done < last[0]:
            last = (done, elapsed)
        elif done > last[0] and elapsed - last[1] >= _WIDTH:
            steps.append(LoggedStep(done, (elapsed - last[1]) / (done - last[0])))
            last = (done, elapsed)
    return steps


def _seconds(text: str) -> float:
    """`08:26` or `1:01:50`."""
    total = 0.0
    for part in text.split(":"):
        total = total * 60 + int(part)
    return total
