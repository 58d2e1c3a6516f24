"""Statements answered: assignments first, then each expression and equation in order."""

import itertools
import math
import shlex
from dataclasses import dataclass, replace
from typing import Any

from dragonscale.course.calculator.algebra import exact, rounded
from dragonscale.course.calculator.evaluate import Scope, WorkLimit, evaluate, not_a_number
from dragonscale.course.calculator.functions import NAMES, call_text, told_parts
from dragonscale.course.calculator.measure import Measure, aligned
from dragonscale.course.calculator.names import load_name, split_targets
from dragonscale.course.calculator.reading import ListNode, Statement, WordNode, names_in, read_statements
from dragonscale.course.calculator.solve import AnswerLine, Equation, solve
from dragonscale.course.calculator.tables import spaced
from dragonscale.course.calculator.unit_words import read_unit
from dragonscale.errors import InputError
from dragonscale.models.catalogue import is_preset
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware.chip import Chip
from dragonscale.physics.hardware.slices import Slice

MOST_CASES = 64
MOST_NAMES = 12
"""Combinations of the values of lists, and names that are told with them."""


@dataclass(frozen=True)
class Worked:
    """The answers of a calculation, in order, and what each name in it stood for."""

    lines: tuple[AnswerLine, ...]
    looked: dict[str, tuple[Any, str]]
    notes: tuple[str, ...] = ()


def work_out(text: str, source: str = "", unknown: str = "", changes: str = "") -> Worked:
    """The answer of a text with statements between semicolons; `changes` are made to every chip in it.

    >>> [str(line.value) for line in work_out("B=64; D=8192; 2 bytes*B*D").lines]
    ['1.05MB']
    """
    try:
        return _worked(text, source, unknown, changes)
    except RecursionError:
        raise InputError("The calculation is nested too deeply; write it in fewer steps.") from None


def _worked(text: str, source: str, unknown: str, changes: str) -> Worked:
    statements = read_statements(text)
    assigned = {one.name: one.node for one in statements if one.name}
    several = {name: node.items for name, node in assigned.items() if isinstance(node, ListNode) and node.several}
    _check_changes(changes, [name for name in names_in(text) if not is_preset(name)])
    looked: dict[str, tuple[Any, str]] = {}
    notes: dict[str, None] = {}
    asked = [one for one in statements if not one.name] or statements[-1:]
    alike = len({len(items) for items in several.values()}) == 1
    if not alike and math.prod(len(items) for items in several.values()) > MOST_CASES:
        raise InputError(f"The lists have more than {MOST_CASES} combinations; make them shorter.")
    if len(several) > 1:
        how = "row by row, as they are equally long" if alike else "in every combination, as their lengths differ"
        notes[f"The lists of {' and '.join(several)} go {how}."] = None
    lines: list[AnswerLine] = []
    clock = WorkLimit()
    for values in zip(*several.values(), strict=True) if alike else itertools.product(*several.values()):
        cased = assigned | dict(zip(several, values, strict=True))
        scope = Scope(cased, source, changes, looked=looked, notes=notes, clock=clock)
        case = ", ".join(f"{name}={evaluate(node, scope)}" for name, node in zip(several, values, strict=True))
        for one in asked:
            found = (
                _answered(one, scope, unknown)
                if one.name not in several
                else [AnswerLine(one.name, evaluate(scope.assigned[one.name], scope))]
            )
            lines += [replace(line, case=case) for line in found]
    return Worked(tuple(lines), {} if several and len(looked) > MOST_NAMES else looked, tuple(notes))


def _check_changes(changes: str, named: list[str]) -> None:
    """Refuse changes to chips that the expression does not name."""
    if changes and not named:
        raise InputError("--set changes chips that are named, and the expression names none.")
    chips = [thing.chip if isinstance(thing := load_name(name), Slice) else thing for name in named] if changes else []
    for name, text in split_targets(changes):
        if name and all(name != chip.kin for chip in chips if isinstance(chip, Chip)):
            raise InputError(f"--set changes {text} of {name}, which the expression does not name.")


def _answered(one: Statement, scope: Scope, unknown: str) -> list[AnswerLine]:
    if one.other is not None:
        holds = _compared(one, scope)
        return [holds] if holds else solve(Equation(one.node, one.other, one.sign, scope), unknown)
    value = evaluate(one.node, scope)
    if isinstance(one.node, WordNode) and isinstance(value, Measure) and value.letters and one.node.text in scope.free:
        word = one.node.text
        if word in NAMES:
            raise InputError(f"{word} is a function; write {call_text(word)}.")
        raise InputError(
            f"Nothing is said of {word}; it is no chip, model or function, and has no value. "
            f"`dscale calc --find {shlex.quote(spaced(word))}` searches functions by words."
        )
    if isinstance(value, Measure):
        return [AnswerLine(one.name, _simpler(value.settled()))]
    if isinstance(value, Chip | Slice | Transformer):
        raise InputError(not_a_number(value))
    if isinstance(value, str | bool) or value is None:
        return [AnswerLine(one.name, str(value))]
    parts = told_parts(value)
    if not parts:
        raise InputError(not_a_number(value))
    return [AnswerLine(name, part) for name, part in parts.items()]


def _compared(one: Statement, scope: Scope) -> AnswerLine | None:
    """Whether an equation or inequality without letters holds."""
    assert one.other is not None
    known = scope.trying({})
    try:
        sides = evaluate(one.node, known), evaluate(one.other, known)
    except InputError:
        if known.free:
            return None  # an unknown may have the unit that is lacking
        raise
    if known.free or not all(isinstance(side, Measure) for side in sides):
        return None
    first, second = aligned(*sides, "=")
    low, high, equal = first.number < second.number, first.number > second.number, first.number == second.number
    holds = {"=": equal, "<": low, ">": high, "<=": low or equal, ">=": high or equal}[one.sign]
    return AnswerLine("", f"{'true' if holds else 'false'}: {first} {one.sign} {second}")


def _simpler(value: Measure) -> Measure:
    """A formula with what cancels taken out; a number that letters have left."""
    if not value.letters:
        return value
    import sympy

    joined: Any = sympy.together(exact(value.number))
    return Measure(rounded(sympy.factor_terms(joined)), value.exponents)


def converted(value: Measure, unit: str) -> float:
    """A value in the unit that was asked for."""
    wanted = read_unit(unit)
    given, one = (
        aligned(value, wanted, "in") if value.settled().exponents != wanted.exponents else (value.settled(), wanted)
    )
    return float(given.number) / float(one.number)
