"""What a trainer logged of its run, and the step that it settled at.

A run begins slowly: it compiles, fills caches, and chooses kernels. So the first steps after every start are left out,
and of the rest the median is the run's step; the tenth and ninetieth percentiles say how steady it was. Steps in which
a checkpoint was written or the loss evaluated lie in the tail, not in the median.

The Hugging Face Trainer: `trainer_state.json`, or what it prints.

    {'train_runtime': 4219.8, 'train_samples_per_second': 60.7, 'train_steps_per_second': 0.474, 'train_loss': 1.9,
    'epoch': 1.0}
      12%|█▏        | 240/2000 [08:26<1:01:50,  2.11s/it]

The Trainer times no step of its own. The bar has the time so far in whole seconds, from which the time between two of
its states follows; without it there is the mean over the whole run, warm-up and all, that stands at its end. The state
of a checkpoint holds no time at all.
"""

import ast
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dragonscale.errors import InputError
from dragonscale.evidence.logs.text import LogText, number

WARM_UP = 5
"""Steps after a start that are not counted, and at least the first line that was logged."""


@dataclass(frozen=True)
class LoggedStep:
    """One line on a step, or on the mean of the steps since the line before. A trainer logs the step's `seconds`, or
    how many `tokens` a chip or `samples` all chips took in a second. `flops`: what it says a chip reached, in FLOP/s.
    """

    number: int
    seconds: float | None = None
    tokens: float | None = None
    samples: float | None = None
    flops: float | None = None
    batch: int = 0
    """Sequences of the step, where the line says it."""


@dataclass(frozen=True)
class TrainingLog:
    """A run as it was logged; empty words and zeros say nothing. `memory_bytes` is the largest peak of a chip by the
    counter `memory_counter`: `max_allocated` or `max_reserved`. `mfu` is the trainer's own. `plan`, `chip` and `model`
    are what the log says of the run's plan, in words that `--plan`, `--on` and `--model` take."""

    software: str
    steps: tuple[LoggedStep, ...]
    memory_bytes: float | None = None
    memory_counter: str = ""
    mfu: float | None = None
    batch: int = 0
    seq: int = 0
    chips: int = 0
    chip: str = ""
    model: str = ""
    plan: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SettledStep:
    """The median of the steps that count, with how they spread."""

    seconds: float
    low: float
    high: float
    counted: int
    skipped: int
    starts: int
    flops: float | None = None
    notes: tuple[str, ...] = field(default=())


def starts_of(steps: Sequence[LoggedStep]) -> list[list[LoggedStep]]:
    """Steps by the start that they follow. Numbers that fall back mean that the run began again; a number twice in a
    row is another rank's line of the same step.

    >>> [len(part) for part in starts_of([LoggedStep(n, 1.0) for n in (1, 2, 2, 3, 2, 3, 4)])]
    [3, 3]
    """
    parts: list[list[LoggedStep]] = []
    for step in steps:
        last = parts[-1][-1].number if parts else None
        if last is not None and step.number == last:
            continue
        if last is None or step.number < last:
            parts.append([])
        parts[-1].append(step)
    return parts


def warmed(part: Sequence[LoggedStep]) -> list[LoggedStep]:
    """The lines of a start that count: those after the warm-up, or where it was shorter, all but the first.

    >>> [step.number for step in warmed([LoggedStep(n, 1.0) for n in (1, 10, 20)])]
    [10, 20]
    """
    first = part[0].number
    return [step for step in part[1:] if step.number >= first + WARM_UP] or list(part[1:])


def settled(log: TrainingLog, seconds_of: Callable[[LoggedStep], float | None]) -> SettledStep | None:
    """The step that a run settled at; None where no line has a time. Where the batch grew during the run, the steps
    with the last batch count."""
    timed = [replace(step, seconds=seconds) for step in log.steps if (seconds := seconds_of(step)) and seconds > 0]
    parts = starts_of(timed)
    if not parts:
        return None
    notes: list[str] = []
    counted = [step for part in parts for step in warmed(part)]
    if not counted:
        counted = [step for part in parts for step in part]
        notes.append("The log has no step after the warm-up, so the first one is counted.")
    if (last := counted[-1].batch) and any(step.batch not in (0, last) for step in counted):
        counted = [step for step in counted if step.batch == last]
        notes.append(f"The batch changed during the run; the steps of {last:,} sequences are counted.")
    times = sorted(step.seconds or 0.0 for step in counted)
    flops = [step.flops for step in counted if step.flops]
    low, high = (_at(times, part) for part in (0.1, 0.9))
    skipped, reached = sum(map(len, parts)) - len(counted), statistics.median(flops) if flops else None
    return SettledStep(statistics.median(times), low, high, len(counted), skipped, len(parts), reached, tuple(notes))


def _at(ordered: Sequence[float], part: float) -> float:
    """A percentile of sorted numbers."""
    return ordered[round(part * (len(ordered) - 1))]


_BAR = re.compile(r"(\d+)/(\d+) \[((?:\d+:)?\d+:\d+)<[^,\]]+,\s*[\d.]+(?:s/it|it/s)")
_LINE = re.compile(r"\{(?=[^{}]*'(?:loss|train_runtime)':)[^{}]*\}")
_WIDTH = 20.0
"""Seconds between two states of the bar that are compared, at least: a second is a twentieth of it."""


class HuggingFaceTrainer:
    """Reads the logs of the Hugging Face Trainer."""

    name = "Hugging Face Trainer"

    def recognises(self, log: LogText) -> bool:
        if log.table is not None:
            return isinstance(log.table.get("log_history"), list) and "global_step" in log.table
        return any(_LINE.search(line) for line in log.lines)

    def read(self, log: LogText) -> TrainingLog:
        entries = _entries(log)
        bars = _bars(log) if log.table is None else []
        if bars:
            return TrainingLog(self.name, tuple(bars))
        ended = [entry for entry in entries if number(entry.get("train_steps_per_second"))]
        if not ended:
            raise InputError(
                f"{log.shown} of the {self.name} holds no times; give the trainer_state.json that the end of a run "
                "writes (with train_runtime), or what the run printed."
            )
        last, state = ended[-1], log.table or {}
        rate = number(last["train_steps_per_second"]) or 0.0
        runtime, done = number(last.get("train_runtime")), number(state.get("global_step", last.get("step")))
        seconds = runtime / done if runtime and done else 1 / rate  # the rate itself is rounded to a thousandth
        note = "The Trainer gives only the mean over the whole run, its warm-up included."
        return TrainingLog(self.name, (LoggedStep(int(done or 1), seconds),), notes=(note,))


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
