"""An equation solved for its unknown: by numbers where one letter is open, as a formula where several are.

With one letter a ratio of polynomials is solved exactly (`pieces`), and anything else by trying (`search`). An
inequality holds on some of the pieces between the roots. With several letters SymPy solves for one of them
(`formulas`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dragonscale.course.calculator.algebra import exact, solved, without_factors
from dragonscale.course.calculator.evaluate import Scope, evaluate, measure_of
from dragonscale.course.calculator.measure import Measure, UnlikeUnits, aligned
from dragonscale.course.calculator.pieces import SignPieces, exact_pieces, spans, told
from dragonscale.course.calculator.reading import Node
from dragonscale.course.calculator.search import searched
from dragonscale.course.calculator.shown import exponents_of
from dragonscale.errors import InputError

_TRIED = ("", "s", "bytes", "FLOP", "bytes/s", "FLOP/s", "USD", "USD/h", "/s", "FLOP/byte", "W")
"""What an unknown may be, the likeliest first."""
_PROBES = (3.0, 8.0, 0.013, 97.3, 1e4, 3.3e7, 4e12)
"""Sizes with which units are tried: some may lie where a side has no value."""
MOST_FOUND = 4


@dataclass(frozen=True)
class AnswerLine:
    """One answer: the name it has (an assigned or a solved letter, or a part of a result), its sign, and its value."""

    name: str
    value: Any
    sign: str = "="
    case: str = ""
    """The values of letters that take several."""


Solution = list[AnswerLine]
"""Values of the unknown, smallest first; of an inequality the sign is the side on which it holds. What holds in several
ranges, in one with two ends, or everywhere is said in words."""


@dataclass(frozen=True)
class Equation:
    """Two sides, the sign between them, and what their letters stand for."""

    first: Node
    second: Node
    sign: str
    scope: Scope

    def sides(self, tried: dict[str, Measure] | None = None) -> tuple[Measure, Measure]:
        """Both in one unit, with letters as they are tried."""
        scope = self.scope if tried is None else self.scope.trying(tried)
        return aligned(measure_of(self.first, scope), measure_of(self.second, scope), "=")


def solve(equation: Equation, unknown: str) -> Solution:
    """The value of one letter for which both sides are equal; the other letters, if any, stay in it."""
    letters = open_letters(equation)
    if not letters:
        raise InputError("Both sides are numbers, and no letter is left to solve for.")
    if unknown and unknown not in letters:
        raise InputError(f"{unknown} is not open in the equation; open is {', '.join(letters)}.")
    if len(letters) == 1:
        return _by_numbers(equation, letters[0])
    wanted = [unknown] if unknown else _left(equation, letters)
    wrong: InputError | None = None
    for letter in wanted:
        try:
            return _by_formula(equation, letter)
        except InputError as error:
            wrong = wrong or error
    for letter in wanted:
        found = _whatever_the_others(equation, letter, letters)
        if found is not None:
            return found
    assert wrong is not None
    raise wrong


def _left(equation: Equation, letters: list[str]) -> list[str]:
    """The letters that do not cancel."""
    import sympy

    one, two = equation.sides()
    above, _ = sympy.fraction(sympy.together(exact(one.number) - exact(two.number)))
    kept = {str(letter) for letter in without_factors(sympy.expand(above)).free_symbols}
    return [letter for letter in letters if letter in kept] or letters


def _whatever_the_others(equation: Equation, unknown: str, letters: list[str]) -> Solution | None:
    """The value of a letter by numbers, if it is the same for small, middling and large values of the others: then they
    cancel."""
    found: list[Solution] = []
    for scale in (1.0, 7.3e4, 1.1e-4):
        others = {letter: Measure(scale * (3 + place)) for place, letter in enumerate(letters) if letter != unknown}
        try:
            found.append(_by_numbers(equation, unknown, others))
        except InputError:
            return None
    first, *more = found
    return first if all(_alike(first, each) for each in more) and _numbers(first) else None


def _numbers(solution: Solution) -> list[float]:
    return [float(line.value.number) for line in solution if line.name]


def _alike(one: Solution, other: Solution) -> bool:
    told = [[(line.name, line.sign) for line in each] for each in (one, other)]
    return told[0] == told[1] and all(map(partial(math.isclose, rel_tol=1e-9), _numbers(one), _numbers(other)))


def open_letters(equation: Equation) -> list[str]:
    """The letters that nothing is said of; what cannot be added is found later."""
    found = replace(equation.scope.trying({}), looked={})
    for side in (equation.first, equation.second):
        try:
            evaluate(side, found)
        except InputError:
            if not found.free:
                raise
    return list(found.free)


def _by_formula(equation: Equation, unknown: str) -> Solution:
    one, two = equation.sides()
    values, side = solved(one.number, two.number, equation.sign, unknown)
    return [AnswerLine(unknown, Measure(value), side) for value in values]


def _by_numbers(equation: Equation, unknown: str, others: dict[str, Measure] | None = None) -> Solution:
    others = others or {}
    exponents = _dimension(equation, unknown, others)

    def sides(value: Any) -> tuple[Any, Any]:
        one, two = equation.sides({unknown: Measure(value, exponents)} | others)
        return one.number, two.number

    def at(value: float) -> tuple[float, float] | None:
        equation.scope.clock.check()
        try:
            one, two = (float(side) for side in sides(value))
        except (InputError, ArithmeticError):
            return None
        return one - two, max(abs(one), abs(two))

    pieces = _exactly(sides, unknown)
    if pieces is not None and any(at(place) is None for place in _checked_at(pieces)):
        pieces = None  # SymPy has cancelled something that has no value there
    proved = pieces is not None
    pieces = searched(at) if pieces is None else pieces
    found = _read(pieces, equation.sign, unknown, exponents, proved)
    if len(found) == 1 and found[0].name:
        at(found[0].value.number)  # what is told of the functions in it is then their value there
    return found


def _checked_at(pieces: SignPieces) -> tuple[float, ...]:
    """The roots of an equation; the probes where it has none."""
    return tuple(place for place, state in pieces.marks if state == 0) or _PROBES * (pieces.states[0] == 0)


def _exactly(sides: Callable[[Any], tuple[Any, Any]], unknown: str) -> SignPieces | None:
    import sympy

    letter = sympy.Symbol(unknown, positive=True)
    try:
        one, two = sides(letter)
        return exact_pieces(exact(one) - exact(two), letter)
    except InputError:
        return None  # a closed form that takes numbers only


def _read(pieces: SignPieces, sign: str, unknown: str, exponents: tuple[Any, ...], proved: bool) -> Solution:
    """Where the relation holds, as values of the unknown or in words."""
    found = spans(pieces, sign)
    makes = "both sides equal" if sign == "=" else "the inequality true"
    if not found:
        raise InputError(f"No value of {unknown} above zero {'makes' if proved else 'was found that makes'} {makes}.")
    if all(one.point for one in found):
        return [AnswerLine(unknown, Measure(one.low, exponents)) for one in found[:MOST_FOUND]]
    only = found[0]
    if len(found) == 1 and only.low is None and only.high is None:
        return [AnswerLine("", f"Every value of {unknown} above zero makes {makes}.")]
    if len(found) == 1 and (only.low is None or only.high is None):
        above = only.high is None
        side = (">" if above else "<") + ("=" if only.closed[0 if above else 1] else "")
        return [AnswerLine(unknown, Measure(only.low if above else only.high, exponents), side)]
    words = [told(one, unknown, lambda end: str(Measure(end, exponents))) for one in found[:MOST_FOUND]]
    return [AnswerLine("", " or ".join(words) + (" or …" if len(found) > MOST_FOUND else ""))]


def _dimension(equation: Equation, unknown: str, others: dict[str, Measure]) -> tuple[Any, ...]:
    """The dimension of the unknown with which both sides are alike."""
    wrong: list[InputError] = []
    for unit in _TRIED:
        for size in _PROBES:
            try:
                one, two = equation.sides({unknown: Measure(size, exponents_of(unit))} | others)
            except InputError as error:
                wrong.append(error)
                if isinstance(error, UnlikeUnits) and len(wrong) > 1:
                    break
                continue
            if one.exponents == two.exponents:
                return exponents_of(unit)
    unlike = [str(error) for error in wrong[:2] if isinstance(error, UnlikeUnits)]
    if not wrong or len({*unlike}) > 1:  # what they name was only tried for the letter
        raise InputError(f"No unit of {unknown} makes both sides alike.")
    raise wrong[0]
