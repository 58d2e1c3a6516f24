"""The pieces of an equation that is a ratio of two polynomials in its unknown, exactly: no root is missed and none is
made up."""

import itertools
from fractions import Fraction
from typing import Any

from dragonscale.course.calculator.formulas import exact
from dragonscale.course.calculator.pieces import SignPieces, State, merged

HIGHEST = 16
_NEARER = Fraction(1, 10**18)
"""Of a root, what its bounds may lie apart: a float has 16 digits."""


def exact_pieces(difference: Any, letter: Any) -> SignPieces | None:
    """Marks at the roots and poles above zero; None where the formula is no ratio of polynomials, or one of too high a
    degree."""
    import sympy

    above, below = sympy.fraction(sympy.together(exact(difference)))
    try:
        first, second = sympy.Poly(above, letter, domain="QQ"), sympy.Poly(below, letter, domain="QQ")
    except (sympy.PolynomialError, sympy.CoercionFailed):
        return None
    if max(first.degree(), second.degree()) > HIGHEST:
        return None
    poles = _roots(second)
    if first.is_zero:
        return SignPieces(tuple((float(root), None) for root in poles), (0,) * (len(poles) + 1))
    places: dict[Any, State] = dict.fromkeys(_roots(first), 0) | dict.fromkeys(poles, None)
    ordered = sorted(places)
    states = tuple(_sign(first, place) * _sign(second, place) for place in _between(ordered))
    return merged(SignPieces(tuple((float(place), places[place]) for place in ordered), states))


def _sign(poly: Any, place: Any) -> int:
    value = poly.eval(place)
    return int(bool(value > 0)) - int(bool(value < 0))


def _between(ordered: list[Any]) -> list[Any]:
    """A place in each piece."""
    if not ordered:
        return [1]
    middles = [(low + high) / 2 for low, high in itertools.pairwise(ordered)]
    return [ordered[0] / 2, *middles, ordered[-1] * 2]


def _roots(poly: Any) -> list[Any]:
    """Roots above zero as fractions that are nearer than any float can say, each once."""
    if poly.degree() < 1:
        return []
    plain = poly.sqf_part()
    found = []
    for (low, high), _ in plain.intervals(inf=0):
        if high <= 0:
            continue
        while high - low > low * _NEARER:
            low, high = plain.refine_root(low, high, steps=4)
        found.append(high)
    return found
