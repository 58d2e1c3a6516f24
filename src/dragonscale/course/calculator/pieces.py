"""Where a relation between two sides holds: the sizes of the unknown cut into pieces, and the pieces told as `x < 1 or
x > 2`.

>>> squares = SignPieces(((1.0, 0), (2.0, 0)), (1, -1, 1))  # (x - 1)*(x - 2): zero at 1 and 2, below zero between them
>>> [told(span, "x", str) for span in spans(squares, ">")], [told(span, "x", str) for span in spans(squares, "<=")]
(['x < 1.0', 'x > 2.0'], ['1.0 <= x <= 2.0'])

Of an equation that is a ratio of two polynomials in its unknown they are found exactly: no root is missed and none is
made up.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dragonscale.course.calculator.algebra import exact

State = int | None
"""The sign of the first side less the second (-1, 0, 1), or None where one of them has no value."""
_ALIKE, _TOUCHING = 1e-9, 1e-7
"""Marks that are nearer to each other than this are one; where sides only touch, rounding makes them equal over more.
"""


@dataclass(frozen=True)
class SignPieces:
    """Marks on the unknown's sizes with the state at each, and the states below, between and above them."""

    marks: tuple[tuple[float, State], ...]
    states: tuple[State, ...]


@dataclass(frozen=True)
class Interval:
    """A range of sizes; None is no end, `closed` says whether an end belongs to it."""

    low: float | None
    high: float | None
    closed: tuple[bool, bool] = (False, False)

    @property
    def point(self) -> bool:
        return self.low is not None and self.low == self.high


def merged(pieces: SignPieces) -> SignPieces:
    """The same without pieces that only rounding made: marks that lie together become one."""
    marks: list[tuple[float, State]] = []
    states: list[State] = [pieces.states[0]]
    for (place, state), after in zip(pieces.marks, pieces.states[1:], strict=True):
        near = _TOUCHING if states[-1] == 0 else _ALIKE
        if marks and place - marks[-1][0] <= near * place:
            before, known = marks[-1]
            both = state, known
            joined = None if None in both else 0 if 0 in (*both, states[-1]) else state
            middle = float(f"{(before + place) / 2:.8g}")
            marks[-1] = (middle if before <= middle <= place else before if known == 0 else place, joined)
            states[-1] = after
        else:
            marks.append((place, state))
            states.append(after)
    return SignPieces(tuple(marks), tuple(states))


def _holds(state: State, sign: str) -> bool:
    return state is not None and (
        (state == 0 and "=" in sign) or (state > 0 and ">" in sign) or (state < 0 and "<" in sign)
    )


def spans(pieces: SignPieces, sign: str) -> list[Interval]:
    """The ranges in which the relation holds, smallest first."""
    found: list[Interval] = []
    low: float | None = None
    closed, inside = False, _holds(pieces.states[0], sign)
    for (place, state), after in zip(pieces.marks, pieces.states[1:], strict=True):
        at, beyond = _holds(state, sign), _holds(after, sign)
        if inside and not (at and beyond):
            found.append(Interval(low, place, (closed, at)))
            inside = False
        elif not inside and at and not beyond:
            found.append(Interval(place, place, (True, True)))
        if not inside and beyond:
            low, closed, inside = place, at, True
    return [*found, Interval(low, None, (closed, False))] if inside else found


def told(span: Interval, unknown: str, shown: Callable[[float], str]) -> str:
    """A range in signs: `1 < x <= 2`, `x > 3`, `x = 4`."""
    if span.low is not None and span.point:
        return f"{unknown} = {shown(span.low)}"
    below = f"{shown(span.low)} <{'=' if span.closed[0] else ''} " if span.low is not None else ""
    above = f" <{'=' if span.closed[1] else ''} {shown(span.high)}" if span.high is not None else ""
    if below and not above and span.low is not None:
        return f"{unknown} >{'=' if span.closed[0] else ''} {shown(span.low)}"
    return f"{below}{unknown}{above}"


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
