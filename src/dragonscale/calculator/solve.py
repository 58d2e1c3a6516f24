"""An equation solved for its unknown: by numbers where one letter is open, as a formula where several are.

With one letter the two sides are tried out over sixty decades and every change of sign is closed in on, so that `max`, `ceil` and
closed forms may stand in it. With several, SymPy solves for one of them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dragonscale.calculator.evaluate import Scope, evaluate, not_a_number
from dragonscale.calculator.measure import Measure, aligned
from dragonscale.calculator.reading import Node
from dragonscale.calculator.shown import exponents_of
from dragonscale.errors import InputError

_TRIED = ("", "s", "bytes", "FLOP", "bytes/s", "FLOP/s", "USD", "USD/h", "/s", "FLOP/byte", "W")
"""What an unknown may be, the likeliest first."""
_LEAST, _MOST, _STEPS = -20, 40, 12
"""Decades over which an unknown is sought, and steps in each."""
MOST_FOUND = 4


@dataclass(frozen=True)
class Solution:
    """Values of the unknown, smallest first; of an inequality `sign` is the side on which it holds."""

    unknown: str
    values: tuple[Measure, ...]
    sign: str = "="


def solve(first: Node, second: Node, sign: str, unknown: str, scope: Scope) -> Solution:
    """The value of one letter for which both sides are equal; the other letters, if any, stay in it."""
    letters = open_letters(first, second, scope)
    if not letters:
        raise InputError("Both sides are numbers, and no letter is left to solve for.")
    if unknown and unknown not in letters:
        raise InputError(f"{unknown} is not open in the equation; open is {', '.join(letters)}.")
    if len(letters) == 1:
        return _by_numbers(first, second, sign, letters[0], scope)
    wanted = [unknown] if unknown else _left(first, second, letters, scope)
    wrong: InputError | None = None
    for letter in wanted:
        try:
            return _by_formula(first, second, sign, letter, scope)
        except InputError as error:
            wrong = wrong or error
    for letter in wanted:
        found = _whatever_the_others(first, second, sign, letter, letters, scope)
        if found is not None:
            return found
    assert wrong is not None
    raise wrong


def _left(first: Node, second: Node, letters: list[str], scope: Scope) -> list[str]:
    """The letters that do not cancel."""
    import sympy

    one, two = aligned(_number(first, scope), _number(second, scope), "=")
    above, _ = sympy.fraction(sympy.together(exact(one.number) - exact(two.number)))
    kept = {str(letter) for letter in _without_factors(sympy.expand(above)).free_symbols}
    return [letter for letter in letters if letter in kept] or letters


def _whatever_the_others(
    first: Node, second: Node, sign: str, unknown: str, letters: list[str], scope: Scope
) -> Solution | None:
    """The value of a letter by numbers, if it is the same for two sets of values of the others: then they cancel."""
    found: list[Solution] = []
    for scale in (1.0, 7.3):
        others = {letter: Measure(scale * (3 + place)) for place, letter in enumerate(letters) if letter != unknown}
        try:
            found.append(_by_numbers(first, second, sign, unknown, scope, others))
        except InputError:
            return None
    one, two = ([float(value.number) for value in each.values] for each in found)
    alike = len(one) == len(two) and all(math.isclose(a, b, rel_tol=1e-9) for a, b in zip(one, two, strict=True))
    return found[0] if alike else None


def open_letters(first: Node, second: Node, scope: Scope) -> list[str]:
    """The letters that nothing is said of; what cannot be added is found later."""
    found = Scope(scope.assigned, scope.source, scope.changes, notes=scope.notes)
    for side in (first, second):
        try:
            evaluate(side, found)
        except InputError:
            if not found.free:
                raise
    return list(found.free)


def _by_numbers(
    first: Node, second: Node, sign: str, unknown: str, scope: Scope, others: dict[str, Measure] | None = None
) -> Solution:
    others = others or {}
    exponents = _dimension(first, second, unknown, scope, others)

    def difference(value: float) -> float:
        tried = scope.trying({unknown: Measure(value, exponents)} | others)
        one, two = aligned(_number(first, tried), _number(second, tried), sign)
        return float(one.number - two.number)

    roots = _roots(difference)
    if not roots:
        raise InputError(f"No value of {unknown} above zero makes both sides equal.")
    side = sign
    if sign != "=" and len(roots) == 1:
        above = difference(roots[0] * 1.5) > 0
        greater = sign[0] == ">"
        side = (">" if above == greater else "<") + sign[1:]
    return Solution(unknown, tuple(Measure(root, exponents) for root in roots), side)


def _dimension(first: Node, second: Node, unknown: str, scope: Scope, others: dict[str, Measure]) -> tuple[Any, ...]:
    """The dimension of the unknown with which both sides are alike."""
    wrong: InputError | None = None
    for unit in _TRIED:
        tried = scope.trying({unknown: Measure(3.0, exponents_of(unit))} | others)
        try:
            one, two = aligned(_number(first, tried), _number(second, tried), "=")
            if one.exponents == two.exponents:
                return exponents_of(unit)
        except InputError as error:
            wrong = wrong or error
    raise wrong or InputError(f"No unit of {unknown} makes both sides alike.")


def _number(node: Node, scope: Scope) -> Measure:
    value = evaluate(node, scope)
    if not isinstance(value, Measure):
        raise InputError(not_a_number(value))
    return value


def _roots(difference: Callable[[float], float]) -> list[float]:
    """Where the difference of the sides changes its sign, over all sizes that mean anything."""

    def at(value: float) -> float | None:
        try:
            return difference(value)
        except (InputError, ArithmeticError):
            return None

    found: list[float] = []
    before: tuple[float, float] | None = None
    for step in range((_MOST - _LEAST) * _STEPS + 1):
        place = 10 ** (_LEAST + step / _STEPS)
        here = at(place)
        if here is not None and here == 0 and (before is None or before[1] != 0):
            found.append(place)
        elif here is not None and before is not None and before[1] * here < 0:
            found.append(_closed_in(at, before[0], place, before[1]))
        before = (place, here) if here is not None else None
    return [_tidy(root) for root in found[:MOST_FOUND]]


def _closed_in(at: Callable[[float], float | None], low: float, high: float, below: float) -> float:
    for _ in range(200):
        middle = math.sqrt(low * high)
        here = at(middle)
        if here is None or here == 0 or not low < middle < high:
            return middle
        low, high = (middle, high) if here * below > 0 else (low, middle)
    return math.sqrt(low * high)


def _tidy(root: float) -> float:
    """A whole number that only rounding kept from being one."""
    near = float(f"{root:.12g}")
    return near if abs(near - root) <= 1e-11 * abs(root) else root


def _by_formula(first: Node, second: Node, sign: str, unknown: str, scope: Scope) -> Solution:
    import sympy

    one, two = aligned(_number(first, scope), _number(second, scope), "=")
    wanted = sympy.Symbol(unknown, positive=True)
    above, _ = sympy.fraction(sympy.together(exact(one.number) - exact(two.number)))
    above = _without_factors(sympy.expand(above))
    if wanted not in above.free_symbols:
        raise InputError(
            f"{unknown} cancels out of the equation; open is {', '.join(sorted(map(str, above.free_symbols))) or 'nothing'}."
        )
    try:
        degree = sympy.Poly(above, wanted).degree()
    except sympy.PolynomialError:
        degree = -1
    if not 1 <= degree <= 2:
        raise InputError(f"The equation cannot be solved for {unknown} as a formula; give the other letters values.")
    found = [sympy.simplify(root) for root in sympy.solve(above, wanted)]
    if not found:
        raise InputError(f"No value of {unknown} above zero makes both sides equal.")
    values = tuple(Measure(rounded(root)) for root in found)
    return Solution(unknown, values, "=" if sign == "=" else sign)


def _without_factors(above: Any) -> Any:
    """A sum without the letters that all of its terms have: they are above zero, so they cancel."""
    import sympy

    letters = sorted(above.free_symbols, key=str)
    try:
        terms = sympy.Poly(above, *letters).monoms()
    except sympy.PolynomialError:
        return above
    common = sympy.prod(letter ** min(term[place] for term in terms) for place, letter in enumerate(letters))
    return sympy.expand(above / common)


MOST_PLAIN = 1000
"""Whole numbers up to here stay in a formula as they are; larger ones are divided out."""
MOST_TERMS = 2000
"""Terms that a formula may have when it is multiplied out, counted from above."""


def exact(number: Any) -> Any:
    """A formula with its decimals as fractions, so that letters cancel; one that would grow too long is refused."""
    import sympy

    terms = 1.0
    parts: list[Any] = list(sympy.preorder_traversal(sympy.sympify(number)))
    for part in parts:
        if part.is_Add:
            terms *= len(part.args)
        elif part.is_Pow and part.base.is_Add and part.exp.is_number:
            terms *= len(part.base.args) ** min(abs(float(part.exp)), 64.0)
        if terms > MOST_TERMS:
            raise InputError("The formula is too long to write out; give some of its letters values.")
    return sympy.nsimplify(number, rational=True)


def rounded(formula: Any) -> Any:
    """A formula with its long numbers as decimals again; a number where no letter is left."""
    import sympy

    if not formula.free_symbols:
        return float(formula)
    above, below = sympy.fraction(sympy.together(formula))
    if below.free_symbols and below.is_polynomial():
        lead = sympy.Poly(below).LC()
        if not (lead.is_Integer and abs(lead) < MOST_PLAIN):
            formula = sympy.expand(above / lead) / sympy.expand(below / lead)
    return formula.replace(
        lambda part: part.is_Rational and not (abs(part.p) < 10**6 and part.q < 1000), lambda part: sympy.Float(part, 6)
    )
