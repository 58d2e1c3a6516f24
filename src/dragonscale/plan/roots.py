"""Where two costs are equal: the number from the costs themselves, and a formula where it is short.

>>> import sympy
>>> b, c, w = sympy.symbols("B C W", positive=True)
>>> round(root(lambda batch: batch / 4 - 60, start=1), 9), linear_root(b / c - 1 / w, b)
(240.0, C/W)
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy

SMALLEST, LARGEST = 1e-3, 1e15
"""Where roots are looked for unless said otherwise."""
POINTS, ROUNDS = 2000, 3
"""A round looks at so many points between the two sides of a root that the one before found."""


def root(function: Callable[[Any], Any], start: float, low: float = SMALLEST, high: float = LARGEST) -> float | None:
    """The change of sign nearest to `start` of a function of arrays."""
    found = None
    for _ in range(ROUNDS):
        grid = numpy.geomspace(low, high, POINTS)
        with numpy.errstate(all="ignore"):
            gaps = numpy.broadcast_to(numpy.asarray(function(grid), float), grid.shape)
        good = numpy.isfinite(gaps) & (gaps != 0)
        grid, gaps = grid[good], gaps[good]
        changed = numpy.nonzero((gaps[1:] > 0) != (gaps[:-1] > 0))[0]
        if not len(changed):
            break
        place = changed[numpy.argmin(numpy.abs(numpy.log(grid[changed] / start)))]
        (low, high), (before, after) = grid[place : place + 2], gaps[place : place + 2]
        found = float(low + (high - low) * before / (before - after))
    return found


@lru_cache(maxsize=256)
def linear_root(gap: Any, variable: Any) -> Any:
    """The root as a formula where the difference is linear in the variable, up to a power of it; None elsewhere."""
    import sympy

    try:
        poly = sympy.Poly(sympy.expand(sympy.numer(sympy.together(gap))), variable)
    except sympy.PolynomialError:
        return None
    terms = {power: one for (power,), one in poly.terms()}
    least = min(terms)
    return tidied(-terms[least] / terms[least + 1]) if set(terms) == {least, least + 1} else None


@lru_cache(maxsize=256)
def tidied(formula: Any) -> Any:
    """A fraction without common factors, and without a minus sign above and below its bar."""
    import sympy

    above, below = sympy.fraction(sympy.cancel(formula))
    if above.could_extract_minus_sign() and below.could_extract_minus_sign():
        above, below = -above, -below
    return sympy.factor_terms(above) / sympy.factor_terms(below)
