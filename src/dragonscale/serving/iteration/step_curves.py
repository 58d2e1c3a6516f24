"""Functions of one or two numbers by their knots, linear in between: what a cost function is tabulated as."""

import math
from bisect import bisect_right
from dataclasses import dataclass

import numpy


def geometric(first: float, last: float, ratio: float) -> list[float]:
    """Knots from the first to the last, each about `ratio` times the one before."""
    count = max(2, math.ceil(math.log(max(last / first, 1.001)) / math.log(ratio)) + 1)
    return [float(value) for value in numpy.geomspace(first, max(last, first * 1.001), count)]


@dataclass(frozen=True)
class StepCurve:
    """A function of one number, linear between its knots and beyond the last."""

    knots: list[float]
    values: list[float]

    def __call__(self, x: float) -> float:
        knots, values = self.knots, self.values
        right = bisect_right(knots, x, 1, len(knots) - 1)
        low, left = knots[right - 1], values[right - 1]
        return left + (values[right] - left) * ((x - low) / (knots[right] - low))


@dataclass(frozen=True)
class CurveSheet:
    """A function of two numbers: a curve in the second for every knot of the first."""

    knots: list[float]
    lines: list[StepCurve]

    def __call__(self, first: float, second: float) -> float:
        index, fraction = self._bracket(first)
        low = self.lines[index](second)
        return low if fraction <= 0.0 else low + (self.lines[index + 1](second) - low) * fraction

    def at(self, first: float) -> StepCurve:
        """The curve in the second number at a value of the first."""
        index, fraction = self._bracket(first)
        left, right = self.lines[index], self.lines[index + 1]
        if fraction <= 0.0:
            return left
        values = [low + (high - low) * fraction for low, high in zip(left.values, right.values, strict=True)]
        return StepCurve(left.knots, values)

    def _bracket(self, x: float) -> tuple[int, float]:
        """The knot before a value, and the fraction of the way to the next knot, above 1 beyond the last."""
        knots = self.knots
        index = bisect_right(knots, x, 1, len(knots) - 1) - 1
        low = knots[index]
        return index, (x - low) / (knots[index + 1] - low)
