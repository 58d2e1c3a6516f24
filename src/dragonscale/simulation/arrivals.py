"""When requests come, if they do not wait for outputs (open loop): endless streams of times.

- `Poisson`: independent arrivals at a rate.
- `Gamma`: the same rate with gaps of another coefficient of variation; above 1 is bursty, below 1 is even.
- `Diurnal`: Poisson whose rate swings as a sine by `swing` around its mean, once a `period_s` (thinned from the peak).
- `AtOnce`: everything at time 0, as offline work.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Protocol

import numpy

from dragonscale.errors import InputError

CHUNK = 4096


class Arrivals(Protocol):
    """A process of arrivals."""

    def times(self, random: numpy.random.Generator) -> Iterator[float]:
        """Times in order, without end."""
        ...


def _check_rate(rate: float) -> None:
    if not 0 < rate < math.inf:
        raise InputError(f"An arrival rate of {rate} requests a second is not above 0.")


def _summed(gaps: Iterator[numpy.ndarray]) -> Iterator[float]:
    now = 0.0
    for block in gaps:
        times = now + numpy.cumsum(block)
        now = float(times[-1])
        yield from times.tolist()


@dataclass(frozen=True)
class Poisson:
    """Independent arrivals, `rate` a second."""

    rate: float

    def __post_init__(self) -> None:
        _check_rate(self.rate)

    def times(self, random: numpy.random.Generator) -> Iterator[float]:
        return _summed(random.exponential(1 / self.rate, CHUNK) for _ in repeat(None))


@dataclass(frozen=True)
class Gamma:
    """Gaps of gamma distribution with this coefficient of variation."""

    rate: float
    cv: float

    def __post_init__(self) -> None:
        _check_rate(self.rate)
        if not 0 < self.cv < math.inf:
            raise InputError(f"A coefficient of variation of {self.cv} is not above 0; 1 is Poisson.")

    def times(self, random: numpy.random.Generator) -> Iterator[float]:
        shape = self.cv**-2
        return _summed(random.gamma(shape, 1 / (self.rate * shape), CHUNK) for _ in repeat(None))


@dataclass(frozen=True)
class Diurnal:
    """A mean `rate` that swings by a share `swing` of itself, with a period of a day or another."""

    rate: float
    swing: float = 0.5
    period_s: float = 86400.0

    def __post_init__(self) -> None:
        _check_rate(self.rate)
        if not 0 <= self.swing <= 1 or self.period_s <= 0:
            raise InputError("A diurnal rate swings by a share from 0 to 1 of its mean, over a period above 0 seconds.")

    def times(self, random: numpy.random.Generator) -> Iterator[float]:
        peak, turn = 1 + self.swing, 2 * math.pi / self.period_s
        now = 0.0
        while True:
            times = now + numpy.cumsum(random.exponential(1 / (self.rate * peak), CHUNK))
            now = float(times[-1])
            chance = (1 + self.swing * numpy.sin(turn * times)) / peak
            yield from times[random.random(CHUNK) < chance].tolist()


@dataclass(frozen=True)
class AtOnce:
    """Everything at time 0."""

    def times(self, random: numpy.random.Generator) -> Iterator[float]:
        del random
        return repeat(0.0)
