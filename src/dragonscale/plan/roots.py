"""Where two costs are equal: the root of their difference as a number, and as a formula where it is short.

>>> import sympy
>>> b, c, w = sympy.symbols("B C W", positive=True)
>>> round(root(lambda batch: batch / 4 - 60, start=1), 9), linear_root(b / c - 1 / w, b)
(240.0, C/W)
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy

# The interval in which roots are searched for by default.
SMALLEST = 1e-3
LARGEST = 1e15
# Each round evaluates a grid of so many points between the two sides of the root of the round before.
POINTS = 2000
ROUNDS = 3


def root(function: Callable[[Any], Any], start: float, low: float = SMALLEST, high: float = LARGEST) -> float | None:
    """The change of sign nearest to `start` of a function of arrays; None if there is none."""
    result = None
    for _ in range(ROUNDS):
        grid = numpy.geomspace(low, high, POINTS)
        with numpy.errstate(all="ignore"):
            gaps = numpy.broadcast_to(numpy.asarray(function(grid), float), grid.shape)
        usable = numpy.isfinite(gaps) & (gaps != 0)
        grid, gaps = grid[usable], gaps[usable]
        changes = numpy.nonzero((gaps[1:] > 0) != (gaps[:-1] > 0))[0]
        if not len(changes):
            break
        nearest = changes[numpy.argmin(numpy.abs(numpy.log(grid[changes] / start)))]
        (low, high), (before, after) = grid[nearest : nearest + 2], gaps[nearest : nearest + 2]
        result = float(low + (high - low) * before / (before - after))  # linear between the two points
    return result


@lru_cache(maxsize=256)
def linear_root(gap: Any, variable: Any) -> Any:
    """The root as a formula where the difference is linear in the variable, up to a power of it; None elsewhere."""
    import sympy

    try:
        poly = sympy.Poly(sympy.expand(sympy.numer(sympy.together(gap))), variable)
    except sympy.PolynomialError:
        return None
    coefficients = {power: coefficient for (power,), coefficient in poly.terms()}
    lowest = min(coefficients)
    if set(coefficients) != {lowest, lowest + 1}:
        return None
    # x^p (a + b·x) = 0
    return tidied(-coefficients[lowest] / coefficients[lowest + 1])


@lru_cache(maxsize=256)
def tidied(formula: Any) -> Any:
    """A fraction without common factors, and without a minus sign in both numerator and denominator."""
    import sympy

    numerator, denominator = sympy.fraction(sympy.cancel(formula))
    if numerator.could_extract_minus_sign() and denominator.could_extract_minus_sign():
        numerator, denominator = -numerator, -denominator
    return sympy.factor_terms(numerator) / sympy.factor_terms(denominator)
