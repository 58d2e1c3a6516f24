"""Arrival processes of requests that do not wait for outputs (open loop), and distributions of prompt and output
lengths.

- `Poisson`: independent arrivals at a rate.
- `Gamma`: the same rate with gaps of another coefficient of variation; above 1 is bursty, below 1 is even.
- `Diurnal`: Poisson whose rate swings as a sine by `swing` around its mean, once a `period_s` (thinned from the peak).
- `Profile`: a rate that is given over time, repeated, with gaps of some coefficient of variation.
- `AtOnce`: everything at time 0, as offline work.

Times and lengths are endless streams, drawn in chunks of a few thousand, so that drawing costs next to nothing and
memory does not depend on how many are drawn.

>>> import itertools, numpy
>>> list(itertools.islice(Fixed(128).draw(numpy.random.default_rng(0)), 3))
[128, 128, 128]
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Protocol

import numpy
from numpy.random import Generator

from dragonscale.errors import InputError

CHUNK = 4096
"""Numbers that are drawn in one call."""


class Arrivals(Protocol):
    """A process of arrivals."""

    def times(self, random: Generator) -> Iterator[float]:
        """Times in order, without end."""
        ...


class Lengths(Protocol):
    """A distribution of whole numbers of tokens, at least 1."""

    def draw(self, random: Generator) -> Iterator[int]:
        """An endless stream of lengths."""
        ...


def _endless(draw: Callable[[], numpy.ndarray]) -> Iterator[Any]:
    """The numbers of one chunk after another."""
    while True:
        yield from draw().tolist()


def _summed(gaps: Callable[[], numpy.ndarray]) -> Iterator[numpy.ndarray]:
    """Chunks of arrival times from chunks of gaps."""
    now = 0.0
    while True:
        times = now + numpy.cumsum(gaps())
        now = float(times[-1])
        yield times


def _check_rate(rate: float) -> None:
    if not 0 < rate < math.inf:
        raise InputError(f"An arrival rate of {rate} requests a second is not above 0.")


def _check_length(tokens: float) -> None:
    if tokens < 1:
        raise InputError(f"A length of {tokens} tokens is too short; prompts and outputs have at least 1.")


@dataclass(frozen=True)
class Poisson:
    """Independent arrivals, `rate` a second."""

    rate: float

    def __post_init__(self) -> None:
        _check_rate(self.rate)

    def times(self, random: Generator) -> Iterator[float]:
        return _endless(_summed(lambda: random.exponential(1 / self.rate, CHUNK)).__next__)


@dataclass(frozen=True)
class Gamma:
    """Gaps of a gamma distribution with this coefficient of variation."""

    rate: float
    cv: float

    def __post_init__(self) -> None:
        _check_rate(self.rate)
        if not 0 < self.cv < math.inf:
            raise InputError(f"A coefficient of variation of {self.cv} is not above 0; 1 is Poisson.")

    def times(self, random: Generator) -> Iterator[float]:
        shape = self.cv**-2
        return _endless(_summed(lambda: random.gamma(shape, 1 / (self.rate * shape), CHUNK)).__next__)


@dataclass(frozen=True)
class Diurnal:
    """A mean `rate` that swings by a fraction `swing` of itself, with a period of a day or another."""

    rate: float
    swing: float = 0.5
    period_s: float = 86400.0

    def __post_init__(self) -> None:
        _check_rate(self.rate)
        if not 0 <= self.swing <= 1 or self.period_s <= 0:
            raise InputError("A diurnal rate swings by a share from 0 to 1 of its mean, over a period above 0 seconds.")

    def times(self, random: Generator) -> Iterator[float]:
        peak, turn = 1 + self.swing, 2 * math.pi / self.period_s
        # thinning: draw at the peak rate, and keep each arrival with the current rate over the peak
        for times in _summed(lambda: random.exponential(1 / (self.rate * peak), CHUNK)):
            chance = (1 + self.swing * numpy.sin(turn * times)) / peak
            yield from times[random.random(CHUNK) < chance].tolist()


@dataclass(frozen=True)
class Profile:
    """A mean `rate` times each of `parts` (whose mean counts as 1) for `every_s`, repeated.

    Gaps are gamma with a coefficient of variation `cv`, in a time that runs as fast as the rate.
    """

    rate: float
    parts: tuple[float, ...]
    every_s: float
    cv: float = 1.0

    def __post_init__(self) -> None:
        _check_rate(self.rate)
        if not self.parts or min(self.parts) < 0 or sum(self.parts) <= 0 or self.every_s <= 0 or self.cv <= 0:
            raise InputError("A rate over time needs parts of 0 or more, not all 0, a time and a variation above 0.")

    def times(self, random: Generator) -> Iterator[float]:
        parts, shape = numpy.array(self.parts) / numpy.mean(self.parts), self.cv**-2
        ends = numpy.concatenate([[0.0], numpy.cumsum(parts)])
        around, marks = float(ends[-1]), numpy.arange(len(ends)) * self.every_s
        # arrivals in operational time (at rate 1), mapped back through the cumulative rate
        for work in _summed(lambda: random.gamma(shape, 1 / (self.rate * self.every_s * shape), CHUNK)):
            rounds, rest = numpy.divmod(work, around)
            yield from (rounds * marks[-1] + numpy.interp(rest, ends, marks)).tolist()


@dataclass(frozen=True)
class AtOnce:
    """Everything at time 0."""

    def times(self, random: Generator) -> Iterator[float]:  # noqa: ARG002
        return repeat(0.0)


@dataclass(frozen=True)
class Fixed:
    """Always the same length."""

    tokens: int

    def __post_init__(self) -> None:
        _check_length(self.tokens)

    def draw(self, random: Generator) -> Iterator[int]:  # noqa: ARG002
        return repeat(self.tokens)


@dataclass(frozen=True)
class Longer:
    """Lengths of another distribution plus `more` tokens."""

    lengths: Lengths
    more: int

    def draw(self, random: Generator) -> Iterator[int]:
        return (tokens + self.more for tokens in self.lengths.draw(random))


@dataclass(frozen=True)
class Uniform:
    """Every length from `least` to `most` is equally likely.

    vLLM's benchmark with the older `--random-range-ratio r` draws from r * L to L: `Uniform.below(L, r)`.
    """

    least: int
    most: int

    def __post_init__(self) -> None:
        _check_length(self.least)
        if self.most < self.least:
            raise InputError(f"Lengths from {self.least} to {self.most} tokens are no range.")

    @classmethod
    def below(cls, tokens: int, ratio: float) -> "Uniform":
        """From ratio * tokens to tokens."""
        return cls(max(int(ratio * tokens), 1), tokens)

    def draw(self, random: Generator) -> Iterator[int]:
        return _endless(lambda: random.integers(self.least, self.most + 1, CHUNK))


@dataclass(frozen=True)
class Lognormal:
    """Lognormal with this mean and coefficient of variation, truncated at `most`."""

    mean: float
    cv: float
    most: int = 1_000_000

    def __post_init__(self) -> None:
        _check_length(min(self.mean, self.most))
        if self.cv < 0:
            raise InputError(f"A coefficient of variation of {self.cv} is negative.")

    def draw(self, random: Generator) -> Iterator[int]:
        variance = numpy.log1p(self.cv**2)
        middle, spread = numpy.log(self.mean) - variance / 2, numpy.sqrt(variance)  # of the logarithm
        lengths = lambda: numpy.rint(random.lognormal(middle, spread, CHUNK))  # noqa: E731
        return _endless(lambda: numpy.clip(lengths(), 1, self.most).astype(int))
