"""MaxText's stdout, and the lines of JSON that it writes to `metrics_file` or to GCS.

    completed step: 5, seconds: 20.585, TFLOP/s/device: 97.566, Tokens/s/device: 1989.820, total_weights: 31457280,
    loss: 12.409 {"perf/step_time_seconds": 20.585, "perf/per_device_tflops_per_sec": 97.566, "step": 5.0, "run_name":
    "…", …}

`seconds` is the time between the starts of steps, which are sent ahead of the device: the first has the compiler in it
and the next ones are far too short, so only steps after the warm-up say something. Memory it prints only as it is
between steps, not at its peak.
"""

import re
from typing import Any

from dragonscale.evidence.logs.text import LogText, number
from dragonscale.evidence.logs.training_log import LoggedStep, TrainingLog

NAME, KIND = "MaxText", "training"
_STEP = re.compile(r"completed step: (\d+), seconds: ([\d.]+),")
_FLOPS = re.compile(r"TFLOP/s/device: ([\d.]+),")
_TIME = "perf/step_time_seconds"


def recognises(log: LogText) -> bool:
    return any(_STEP.search(line) for line in log.lines) or any(_TIME in row for row in log.rows)


def read(log: LogText) -> TrainingLog:
    steps = [step for line in log.lines if (step := _said(line))]
    steps = steps or [step for row in log.rows if (step := _kept(row))]
    return TrainingLog(NAME, tuple(steps))


def _said(line: str) -> LoggedStep | None:
    found, flops = _STEP.search(line), _FLOPS.search(line)
    if found is None:
        return None
    return LoggedStep(int(found[1]), number(found[2]), flops=_tera(flops[1] if flops else None))


def _kept(row: dict[str, Any]) -> LoggedStep | None:
    seconds, step = number(row.get(_TIME)), number(row.get("step"))
    if seconds is None or step is None:
        return None
    return LoggedStep(int(step), seconds, flops=_tera(row.get("perf/per_device_tflops_per_sec")))


def _tera(value: Any) -> float | None:
    found = number(value)
    return None if found is None else found * 1e12
