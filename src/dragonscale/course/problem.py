"""What a problem is: lines of a file (`chapters.py`) that pose a question with the numbers drawn.

Each parameter is drawn from the values it may take, the usual one first (the book's own where the problem is the
book's). The lines are worked out in order: names (`let`), combinations that make no sense (`unless`), the question, the
answer by the planner's own functions, hints, steps, and the values that usual mistakes give.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dragonscale.course.expressions import Scope, assign, evaluate, fill, new_scope
from dragonscale.errors import InputError, unknown
from dragonscale.physics.units import UNITS

BETWEEN = " | "
"""Between a trap's value and its mistake."""


@dataclass(frozen=True)
class Trap:
    """The value that a usual mistake gives, and the mistake."""

    value: float
    why: str


@dataclass(frozen=True)
class Posed:
    """A problem with its numbers put in.

    `answer` is in base units of its `dimension` (`dragonscale.physics.units`), or one of `options`. A relative error
    within `tolerance` is right, unless it is within it of a trap; an answer that is `whole` (chips, hops, a batch
    rounded down) must be met exactly. `check` is a command that gives the answer; where it does not print an option's
    own words, `shown` is the pattern of what it prints instead.
    """

    ask: str
    answer: float | str
    dimension: str = "count"
    hints: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    traps: tuple[Trap, ...] = ()
    check: str = ""
    tolerance: float = 0.02
    options: tuple[str, ...] = ()
    whole: bool = False
    shown: str = ""


@dataclass(frozen=True)
class Line:
    """A line of a problem: its keyword, what follows, where it stands, and the condition under which it is there."""

    keyword: str
    text: str
    place: str
    condition: str = ""


@dataclass(frozen=True)
class Problem:
    """A problem of a chapter: what it draws from, the lines that pose it, and which results of the book it reproduces.

    `shared` are the names that the chapter or its section defines.
    """

    name: str
    chapter: str
    title: str
    lines: tuple[Line, ...]
    shared: tuple[Line, ...] = ()
    cases: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.chapter}.{self.name}"

    @cached_property
    def _names(self) -> Mapping[str, Any]:
        scope = new_scope({})
        for line in self.shared:
            _worked_out(line, scope, {})
        return scope

    @cached_property
    def draws(self) -> Mapping[str, tuple[Any, ...]]:
        """The values that each parameter may take."""
        scope: Scope = new_scope(self._names)
        return {name: values for line in self.lines for name, values in _drawn(line, scope)}

    def pose(self, **drawn: Any) -> Posed | None:
        """The problem with these numbers; None for a combination that makes no sense."""
        scope, fields = new_scope({**self._names, **drawn}), dict[str, Any]()
        for line in self.lines:
            if not _worked_out(line, scope, fields):
                return None
        return Posed(**fields)


def _drawn(line: Line, scope: Scope) -> Iterator[tuple[str, tuple[Any, ...]]]:
    if line.keyword == "draw":
        name, _, values = line.text.partition(" = ")
        with _named(line):
            yield name, evaluate(f"{values},", scope)


def _worked_out(line: Line, scope: Scope, fields: dict[str, Any]) -> bool:
    """Work a line out into the scope and the fields of the question; whether the numbers make sense so far."""
    keyword, text = line.keyword, line.text
    with _named(line):
        if line.condition and not evaluate(line.condition, scope):
            return True
        match keyword:
            case "let":
                assign(text, scope)
            case "unless":
                return not evaluate(text, scope)
            case "holds" if not evaluate(text, scope):
                raise InputError(f"`{text}` does not hold.")
            case "answer":
                scope[keyword] = fields[keyword] = evaluate(text, scope)
            case "tolerance" | "whole":
                fields[keyword] = evaluate(text, scope)
            case "ask" | "check" | "shown" | "dimension":
                fields[keyword] = fill(text, scope)
                if keyword == "dimension" and fields[keyword] not in UNITS:
                    raise unknown(keyword, fields[keyword], UNITS)
            case "hint" | "step" | "option":
                _add(fields, f"{keyword}s", fill(text, scope))
            case "steps" | "options":
                _add(fields, keyword, *evaluate(text, scope))
            case "trap":
                value, _, why = text.partition(BETWEEN)
                _add(fields, "traps", Trap(evaluate(value, scope), fill(why, scope)))
    return True


def _add(fields: dict[str, Any], name: str, *values: Any) -> None:
    fields[name] = (*fields.get(name, ()), *values)


@contextmanager
def _named(line: Line) -> Iterator[None]:
    """Mistakes of a line with the place where it stands."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{line.place}: {error}") from error
