"""Functions by their knots, linear between them: what a cost function is tabulated as."""

import math
from bisect import bisect_right
from dataclasses import dataclass

import numpy


def geometric(first: float, last: float, ratio: float) -> list[float]:
    """Knots from the first to the last, each about `ratio` times the one before."""
    count = max(2, math.ceil(math.log(max(last / first, 1.001)) / math.log(ratio)) + 1)
    return [float(value) for value in numpy.geomspace(first, max(last, first * 1.001), count)]


def _between(knots: list[float], at: float) -> tuple[int, float]:
    """The knot before a value, and how far it lies on the way to the next; beyond the last by more than all of it."""
    place = min(max(bisect_right(knots, at) - 1, 0), len(knots) - 2)
    low = knots[place]
    return place, (at - low) / (knots[place + 1] - low)


@dataclass(frozen=True)
class StepCurve:
    """A function of one number by its knots, linear between them and beyond the last."""

    knots: list[float]
    values: list[float]

    def __call__(self, at: float) -> float:
        place, part = _between(self.knots, at)
        left = self.values[place]
        return left + (self.values[place + 1] - left) * part


@dataclass(frozen=True)
class CurveSheet:
    """A function of two numbers: a line in the second for every knot of the first."""

    knots: list[float]
    lines: list[StepCurve]

    def __call__(self, first: float, second: float) -> float:
        place, part = _between(self.knots, first)
        low = self.lines[place](second)
        return low + (self.lines[place + 1](second) - low) * max(part, 0.0)

    def at(self, first: float) -> StepCurve:
        """The line in the second number at a value of the first."""
        place, part = _between(self.knots, first)
        left, right = self.lines[place], self.lines[place + 1]
        if part <= 0.0:
            return left
        return StepCurve(left.knots, [a + (b - a) * part for a, b in zip(left.values, right.values, strict=True)])
