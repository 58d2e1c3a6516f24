"""What a bench is, whichever software it times with, how repeated times become one, and which versions there are."""

import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Protocol

from dragonscale.evidence.calibrate.cases import BenchCase, Machine

LEAST_SETS, MOST_SETS = 2, 32
REPEATS = 5
BURST_S, LONG_BURST_S = 4e-3, 15e-3
"""How long the device works in one repetition: short kernels, and those that last long enough for power to matter."""


@dataclass(frozen=True)
class Clocked:
    """The median of some repetitions in seconds of one case, and the distance of the quartiles over it."""

    seconds: float
    spread: float
    repeats: int


class Bench(Protocol):
    """Times cases on the device at hand with one software: the device and the software; the formats that the device
    multiplies, the one that is measured fully first; whatever takes long and does not disturb others (compiling); the
    time of a prepared case."""

    def machine(self) -> Machine: ...
    def dtypes(self) -> Sequence[str]: ...
    def prepare(self, case: BenchCase) -> Any: ...
    def measure(self, prepared: Any) -> Clocked: ...


def settle(times: Sequence[float]) -> Clocked:
    """The median and the spread of repetitions.

    >>> settle([1.0, 3.0, 2.0])
    Clocked(seconds=2.0, spread=0.5, repeats=3)
    """
    kept = sorted(times)
    middle = statistics.median(kept)
    quarter = len(kept) // 4
    spread = (kept[-1 - quarter] - kept[quarter]) / 2 / middle if middle > 0 else 0.0
    return Clocked(middle, spread, len(kept))


def host_times(case: BenchCase, value: Any, step: Callable[[Any], Any], wait: Callable[[Any], Any]) -> Clocked:
    """What a call costs the host (`dispatch`), or costs until its result is there (`round_trip`)."""
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        for _ in range(case.sizes[0]):
            value = step(value)
            if case.kind == "round_trip":
                wait(value)
        times.append((time.perf_counter() - began) / case.sizes[0])
        wait(value)
    return settle(times)


def sets_for(bytes_of_one: float, cache_bytes: float, room: float) -> int:
    """How many sets of arrays push one another out of the last cache, and fit."""
    wanted = int(5 * cache_bytes / max(bytes_of_one, 1.0)) + 1
    fitting = int(room / max(bytes_of_one, 1.0))
    return max(1, min(max(LEAST_SETS, min(wanted, MOST_SETS)), fitting))


def calls_for(seconds: float) -> int:
    """How many calls of so many seconds make one repetition."""
    burst = LONG_BURST_S if seconds > 1e-3 else BURST_S
    return max(1, min(32, round(burst / max(seconds, 1e-7))))


def versions(*packages: str) -> dict[str, str]:
    """Versions of what is installed, and of NVIDIA's driver where there is one."""
    found: dict[str, str] = {}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    driver = _driver()
    return {**found, "driver": driver} if driver else found


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip().split("\n")[0][:40]
