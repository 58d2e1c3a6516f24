"""DeepSpeed's throughput timer and its pipeline engine.

    [2023-11-07 01:55:23,714] [INFO] [timer.py:260:stop] epoch=0/micro_step=40/global_step=10,
    RunningAvgSamplesPerSec=25.02,
        CurrSamplesPerSec=25.70, MemAllocated=4.32GB, MaxMemAllocated=38.49GB
    steps: 30 loss: 10.7133 iter time (s): 0.283 samples/sec: 226.457

`CurrSamplesPerSec` is of the step just done and of all chips; gigabytes are of 2^30 bytes.
"""

import re

from dragonscale.evidence.logs.text import LogText, number
from dragonscale.evidence.logs.training_log import LoggedStep, TrainingLog

NAME, KIND = "DeepSpeed", "training"
_TIMER = re.compile(r"(?:global_step=|stop\] \d+/)(\d+), RunningAvgSamplesPerSec=[\d.]+, CurrSamplesPerSec=([\d.]+),")
_PIPE = re.compile(r"\bsteps: (\d+) loss: .*?iter time \(s\): ([\d.]+) samples/sec: ([\d.]+)(?=\s|$)")
_MEMORY = re.compile(r"MaxMemAllocated=([\d.]+)GB")


def recognises(log: LogText) -> bool:
    return any(_TIMER.search(line) or _PIPE.search(line) for line in log.lines)


def read(log: LogText) -> TrainingLog:
    timed = [one for line in log.lines if (one := _TIMER.search(line))]
    piped = [one for line in log.lines if (one := _PIPE.search(line))]
    steps = [LoggedStep(int(one[1]), number(one[2])) for one in piped]
    steps = steps or [LoggedStep(int(one[1]), samples=number(one[2])) for one in timed]
    peaks = [number(one[1]) or 0.0 for line in log.lines if (one := _MEMORY.search(line))]
    return TrainingLog(NAME, tuple(steps), max(peaks) * 2**30 if peaks else None, "max_allocated" if peaks else "")
