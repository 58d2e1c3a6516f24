"""A tree worked out: names looked up, functions called, units kept. What was looked up is remembered with its source.

Whatever is written, it ends soon (`WorkLimit`).
"""

import contextlib
import operator
import time
from dataclasses import dataclass, field, replace
from typing import Any

from dragonscale.course import closed_forms
from dragonscale.course.calculator import functions, reading
from dragonscale.course.calculator.measure import Measure
from dragonscale.course.calculator.names import fact_of, load_name, unread
from dragonscale.course.calculator.unit_words import WORDS
from dragonscale.errors import InputError, nearest, shorten
from dragonscale.models.catalogue import model_names
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware.catalogue import chip_names
from dragonscale.physics.hardware.chip import DTYPE_BYTES, Chip
from dragonscale.physics.hardware.slices import Slice

MOST_SECONDS = 1.0
cpu = getattr(time, "thread_time", time.process_time)
"""Seconds of work, not those in which others have the processor."""


@dataclass
class WorkLimit:
    """When a calculation has to end, in seconds of work."""

    until: float = field(default_factory=lambda: cpu() + MOST_SECONDS)

    def check(self) -> None:
        if cpu() > self.until:
            raise InputError("The calculation takes too long; ask for less at once.")

    def leave_out(self, started: float) -> None:
        """What was done since then (loading SymPy) does not count."""
        self.until += cpu() - started


MOST_LETTERS = 12
MOST_VALUES = 256
"""Values in a list, with those of the lists in it."""
OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "^": operator.pow}
_CONSTANTS = {"pi": 3.141592653589793}
_NO_NUMBERS = ("inf", "infinity", "nan")
"""What other programs write for a number that is none: letters are sizes, so these are no letters."""
_WORDS = {"True": True, "true": True, "False": False, "false": False}


@dataclass
class Scope:
    """What letters stand for, whose numbers chips have, and what was looked up on the way."""

    assigned: dict[str, reading.Node] = field(default_factory=dict)
    source: str = ""
    changes: str = ""
    """What-if changes to every chip that is named."""
    values: dict[str, Any] = field(default_factory=dict)
    letters: dict[str, Measure] = field(default_factory=dict)
    """Letters that are tried out, as an equation is solved."""
    looked: dict[str, tuple[Any, str]] = field(default_factory=dict)
    free: dict[str, None] = field(default_factory=dict)
    """Letters that nothing was said of, in the order in which they appear."""
    open: set[str] = field(default_factory=set)
    notes: dict[str, None] = field(default_factory=dict)
    """What the asker should know of how names were read."""
    clock: WorkLimit = field(default_factory=WorkLimit)

    def trying(self, letters: dict[str, Measure]) -> "Scope":
        """The same with values for letters, and nothing worked out yet."""
        return replace(self, letters=letters, values={}, free={}, open=set())


def evaluate(node: reading.Node, scope: Scope) -> Any:
    """The value of a tree: a `Measure`, or what a name or a function gives."""
    scope.clock.check()
    match node:
        case reading.FigureNode():
            return node.measure
        case reading.NameNode():
            return _named(node, scope)
        case reading.WordNode():
            return _word(node.text, scope)
        case reading.TextNode():
            return node.text
        case reading.Negation():
            return -measure_of(node.of, scope)
        case reading.Operator():
            return _operated(node, scope)
        case reading.ListNode():
            values = [evaluate(one, scope) for one in node.items]
            if sum(map(_leaves, values)) > MOST_VALUES:
                raise InputError(f"The list has more than {MOST_VALUES} values.")
            return dict(zip(node.names, values, strict=True)) if node.names else tuple(values)
        case reading.MemberNode():
            return _member(node, scope)
        case reading.CallNode():
            return _called(node, scope)


def _leaves(value: Any) -> int:
    """Values in a value: lists may stand in lists."""
    several = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ()
    return sum(map(_leaves, several)) if several else 1


def _operated(node: reading.Operator, scope: Scope) -> Measure:
    """A sum or product from its left end on: a long one is no deep one."""
    chain: list[reading.Operator] = []
    start: reading.Node = node
    while isinstance(start, reading.Operator):
        chain.append(start)
        start = start.first
    value = measure_of(start, scope)
    for one in reversed(chain):
        _note_division(one, value, scope)
        value = OPERATORS[one.sign](value, measure_of(one.second, scope))
    return value


def _note_division(node: reading.Operator, above: Measure, scope: Scope) -> None:
    """Say how `1/2 GB` is read: a bare number is divided by the bytes, which its answer does not show. And that
    the s of `3/s` is a letter."""
    below = node.second
    if node.sign == "/" and below == reading.WordNode("s") and not {"s"} & {*scope.assigned, *scope.letters}:
        scope.notes["s alone is a letter, not a unit; a unit stands behind its number: 1s."] = None
    if node.sign != "/" or not isinstance(below, reading.FigureNode) or any(above.exponents):
        return
    if below.measure.unit in ("bytes", "FLOP"):
        scope.notes[f"…/{below.text} divides by {below.text}; a fraction of a unit is written (1/2)*1 GB."] = None


def measure_of(node: reading.Node, scope: Scope) -> Measure:
    """The value of a part of a calculation, which must be a number."""
    value = evaluate(node, scope)
    if isinstance(value, Measure):
        return value
    raise InputError(not_a_number(value))


def not_a_number(value: Any) -> str:
    """The sentence for what cannot be reckoned with."""
    if isinstance(value, Chip):
        return f"{value.name} is a chip; take one of its facts, such as {value.name}.bf16 or {value.name}.hbm."
    if isinstance(value, Slice):
        return f"{value} is a slice; take a fact of it, such as {value}.chips."
    if isinstance(value, Transformer):
        return f"{value.name} is a model; take a size of it, such as {value.name}.params."
    if isinstance(value, str):
        size = f"; bytes({value}) is the size of an element" if value in DTYPE_BYTES else ""
        return f"{shorten(value)} is a word and no number{size}."
    if isinstance(value, tuple):
        return "Several values cannot be reckoned with at once; take one ([0]), or name the list: x=[1,2]; 2*x."
    names = [str(name) for name in functions.parts_of(value)]
    return f"This has several parts; take one of them: {', '.join(names[:8]) or 'none is a number'}."


def _named(node: reading.NameNode, scope: Scope) -> Any:
    thing = load_name(node.name, scope.source, scope.changes)
    if scope.source:
        scope.notes |= dict.fromkeys(unread(thing, node.tail, scope.source, node.name))
    if not node.tail:
        return thing
    found = fact_of(node.name, node.tail, scope.source, scope.changes)
    scope.looked[f"{node.name}.{node.tail}"] = found.value, found.source
    return found.value


def _word(text: str, scope: Scope) -> Any:
    if text in scope.letters:
        return scope.letters[text]
    if text in scope.assigned:
        if text in scope.open:
            raise InputError(f"{text} is given a value that needs {text} itself.")
        if text not in scope.values:
            scope.open.add(text)
            scope.values[text] = evaluate(scope.assigned[text], scope)
            scope.open.discard(text)
        return scope.values[text]
    if text in _CONSTANTS:
        return Measure(_CONSTANTS[text])
    if text in _WORDS:
        return _WORDS[text]
    if text in DTYPE_BYTES:
        return text
    if len(text) > 1 and text in WORDS:
        return WORDS[text]
    if text.lower() in _NO_NUMBERS:
        raise InputError(f"{text} is no number to calculate with.")
    return Measure(_letter(text, scope))


def _letter(text: str, scope: Scope) -> Any:
    """A letter that nothing was said of; all letters are sizes, so they are positive."""
    started = cpu()
    import sympy

    scope.clock.leave_out(started)
    scope.free[text] = None
    if len(scope.free) > MOST_LETTERS:
        raise InputError(
            f"More than {MOST_LETTERS} letters are left open ({', '.join(scope.free)}); give some a value."
        )
    return sympy.Symbol(text, positive=True)


def _member(node: reading.MemberNode, scope: Scope) -> Any:
    if isinstance(node.of, reading.WordNode) and node.of.text not in (*scope.assigned, *scope.letters):
        name = node.of.text
        close = nearest(name, [*chip_names(), *model_names()])
        guess = f"; did you mean {close}?" if close else "; see `dscale chips` and `dscale models`."
        raise InputError(f"There is no chip or model {shorten(name)}{guess}")
    return functions.member(evaluate(node.of, scope), node.field)


def _called(node: reading.CallNode, scope: Scope) -> Any:
    functions.check_name(node.function)
    if node.function in functions.ARITHMETIC:
        if node.named:
            raise InputError(f"{node.function} takes numbers by their place, not by a name.")
        return functions.arithmetic(node.function, [evaluate(one, scope) for one in node.given])
    given = [_given(one, scope, functions.wants_word(node.function, place)) for place, one in enumerate(node.given)]
    named = {name: _given(one, scope, functions.wants_word(node.function, name)) for name, one in node.named}
    value = functions.call(node.function, given, named)
    if isinstance(value, Chip | Slice | Transformer):
        return value
    for chip, word in functions.behind(node.function, given, named) if node.function in functions.UNITS.behind else ():
        with contextlib.suppress(InputError):  # a fact that this chip has not
            fact = fact_of(chip, str(word), scope.source, scope.changes)
            scope.looked.setdefault(f"{chip}.{word}", (fact.value, fact.source))
    told = f"{functions.meaning(node.function)} {functions.regime(node.function, given, named)}".strip()
    scope.looked[node.text] = value, told
    return value


def _given(node: reading.Node, scope: Scope, word: bool) -> Any:
    """What a function is given: a word that stands for nothing else is a word (`fsdp`, `gpipe`, `XY`)."""
    if isinstance(node, reading.Operator) and node.sign == "+":
        scheme = "+".join(getattr(part, "text", "") for part in (node.first, node.second))
        if scheme in closed_forms.SCHEMES:
            return scheme  # fsdp+tp
    if isinstance(node, reading.WordNode) and (word or len(node.text) > 1):
        known = (*scope.assigned, *scope.letters, *_CONSTANTS, *_WORDS)
        if word or (node.text not in known and node.text not in WORDS):
            return node.text
    return evaluate(node, scope)
