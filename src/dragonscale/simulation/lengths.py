"""How long prompts and outputs are.

Lengths are drawn in blocks of a few thousand, so that drawing costs next to nothing and memory does not depend on how
many are drawn.

>>> import itertools, numpy
>>> list(itertools.islice(Fixed(128).draw(numpy.random.default_rng(0)), 3))
[128, 128, 128]
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Protocol

import numpy

from dragonscale.errors import InputError

CHUNK = 4096


class Lengths(Protocol):
    """A distribution of whole numbers of tokens, at least 1."""

    def draw(self, random: numpy.random.Generator) -> Iterator[int]:
        """An endless stream of lengths."""
        ...


@dataclass(frozen=True)
class Fixed:
    """Always the same."""

    tokens: int

    def __post_init__(self) -> None:
        _check(self.tokens)

    def draw(self, random: numpy.random.Generator) -> Iterator[int]:
        del random
        return repeat(self.tokens)


@dataclass(frozen=True)
class Uniform:
    """Every length from `least` to `most` is as likely. vLLM's benchmark with `--random-range-ratio r` of the older kind
    draws from r * L to L: `Uniform.below(L, r)`."""

    least: int
    most: int

    def __post_init__(self) -> None:
        _check(self.least)
        if self.most < self.least:
            raise InputError(f"Lengths from {self.least} to {self.most} tokens are no range.")

    @classmethod
    def below(cls, tokens: int, ratio: float) -> "Uniform":
        """From ratio * tokens to tokens."""
        return cls(max(int(ratio * tokens), 1), tokens)

    def draw(self, random: numpy.random.Generator) -> Iterator[int]:
        while True:
            yield from random.integers(self.least, self.most + 1, CHUNK).tolist()


@dataclass(frozen=True)
class Lognormal:
    """Lognormal with this mean and coefficient of variation, no longer than `most`."""

    mean: float
    cv: float
    most: int = 1_000_000

    def __post_init__(self) -> None:
        _check(self.mean)
        _check(self.most)
        if self.cv < 0:
            raise InputError(f"A coefficient of variation of {self.cv} is negative.")

    def draw(self, random: numpy.random.Generator) -> Iterator[int]:
        variance = numpy.log1p(self.cv**2)
        middle = numpy.log(self.mean) - variance / 2
        while True:
            drawn = random.lognormal(middle, numpy.sqrt(variance), CHUNK)
            yield from numpy.clip(numpy.rint(drawn), 1, self.most).astype(int).tolist()


@dataclass(frozen=True)
class Empirical:
    """Drawn from lengths that were seen."""

    seen: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.seen:
            raise InputError("An empirical distribution of lengths needs at least one length.")
        _check(min(self.seen))

    def draw(self, random: numpy.random.Generator) -> Iterator[int]:
        seen = numpy.array(self.seen)
        while True:
            yield from random.choice(seen, CHUNK).tolist()


def _check(tokens: float) -> None:
    if tokens < 1:
        raise InputError(f"A length of {tokens} tokens is too short; prompts and outputs have at least 1.")
