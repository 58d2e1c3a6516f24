"""The log of a run of reinforcement learning: what a step and its phases took, by the names of each framework.

>>> from pathlib import Path
>>> text = "step:1 - timing_s/gen:9.0 - timing_s/step:20\\nstep:2 - timing_s/gen:4.0 - timing_s/step:10.5\\n"
>>> log = read_rl_log(LogText(text, Path("verl.log")))
>>> log.software, log.seconds, log.steps
('verl', {'generation': 4.0, 'step': 10.5}, 1)
"""

import re
import statistics
from collections import defaultdict
from dataclasses import dataclass

from dragonscale.errors import InputError
from dragonscale.evidence.logs.text import LogText
from dragonscale.plan.settings import shipped_table

FIRST = 1
"""Steps that warm up."""


@dataclass(frozen=True)
class RlLog:
    """Median seconds of a step and its phases (`logprob+reference` where one figure is of both), over so many steps
    after the first; the mean length of answers, 0 where it is not logged."""

    software: str
    seconds: dict[str, float]
    steps: int
    length: float


def read_rl_log(log: LogText) -> RlLog:
    """What a log says, by the framework that wrote it."""
    formats = shipped_table("evidence.logs", "rl_formats.toml")
    read = {name: _values(log.text, rows) for name, rows in formats.items()}
    software = max(read, key=lambda name: len(read[name]))
    rows = formats[software]
    seconds: dict[str, float] = defaultdict(float)
    length, steps = 0.0, 0
    for name, values in read[software].items():
        later = values[FIRST:] or values
        if rows[name] == "length":
            length = statistics.fmean(later)
        else:
            seconds[rows[name]] += statistics.median(later)
            steps = max(steps, len(later))
    if not seconds:
        raise InputError(f"{log.shown} has none of the times that verl, NeMo-RL, OpenRLHF, slime or TRL log.")
    return RlLog(software, dict(sorted(seconds.items())), steps, length)


def _values(text: str, names: dict[str, str]) -> dict[str, list[float]]:
    """The numbers behind each name."""
    every = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    pattern = re.compile(
        rf"(?<![\w/])(?:timing/train/)?({every})['\"]?\s*:\s*(?:np\.float64\()?(\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
    )
    found: dict[str, list[float]] = defaultdict(list)
    for name, value in pattern.findall(text):
        found[name].append(float(value))
    return found
