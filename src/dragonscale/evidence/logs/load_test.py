"""What a load generator measured of a server: the traffic it made, and the latencies and rates that came of it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dragonscale.evidence.logs.text import number


@dataclass(frozen=True)
class MeasuredTimes:
    """A latency over all requests, in seconds; what was not written is None."""

    mean: float | None = None
    p50: float | None = None
    p99: float | None = None


@dataclass(frozen=True)
class LoadTest:
    """A load test; zeros and None say nothing. `rate` is None where requests came as fast as they were taken, and
    `clients` the most of them that were answered at once. `burst` is the coefficient of variation of the gaps between
    requests, `spread` that of the lengths."""

    software: str
    requests: int
    prompt: float
    output: float
    ttft: MeasuredTimes
    tpot: MeasuredTimes
    output_tokens_per_s: float | None = None
    requests_per_s: float | None = None
    failed: int = 0
    rate: float | None = None
    clients: int = 0
    burst: float = 1.0
    spread: float | None = None
    model: str = ""
    engine: str = ""
    plan: str = ""
    notes: tuple[str, ...] = field(default=())
    trace: str = ""
    """The file itself, where it says when each request came: the same ones are simulated."""
    ramp: float = 0.0
    """Seconds over which clients began."""
    slice: str = ""
    launch: dict[str, int] = field(default_factory=dict)
    """What the server was started with, by the flags of `dscale simulate`."""
    device: str = ""
    """What the driver calls the chips that served, where it is known."""
    kv_tokens: int = 0
    """What the cache of a replica had room for."""

    @property
    def mean_clients(self) -> float | None:
        """Requests that were under way on average: by Little's law, what came in a second times how long it took."""
        if self.requests_per_s is None or self.ttft.mean is None or self.tpot.mean is None:
            return None
        return self.requests_per_s * (self.ttft.mean + self.tpot.mean * max(self.output - 1, 0))


def millis(table: Mapping[str, Any], name: str) -> MeasuredTimes:
    """Times that are written as `mean_ttft_ms`, `median_ttft_ms`, `p99_ttft_ms`.

    >>> millis({"mean_ttft_ms": 250.0}, "ttft")
    MeasuredTimes(mean=0.25, p50=None, p99=None)
    """
    return in_seconds([table.get(f"{part}_{name}_ms") for part in ("mean", "median", "p99")], 1e-3)


def in_seconds(values: Sequence[Any], unit: float) -> MeasuredTimes:
    """The mean, the median and the 99th percentile, where they are times."""
    found = (number(value) for value in values)
    return MeasuredTimes(*(one * unit if one is not None and one > 0 else None for one in found))


def variation(several: Any) -> float | None:
    """The coefficient of variation of a list of numbers.

    >>> variation([2, 4]), variation([]), variation(None)
    (0.3333333333333333, None, None)
    """
    if not isinstance(several, list):
        return None
    values = [one for value in several if (one := number(value)) is not None]
    if not values or not sum(values):
        return None
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)) / mean
