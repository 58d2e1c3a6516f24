"""The tree of an expression: sums, products, powers, calls, members; statements between semicolons.

Nothing here is run: the tree has a few kinds of nodes, and `evaluate` knows each.

The kinds of nodes of an expression's tree, and a statement made of them.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from dragonscale.course.calculator.lexemes import LONGEST, MOST_WORDS, Lexeme, split_words
from dragonscale.course.calculator.measure import Measure
from dragonscale.course.calculator.unit_words import WORDS
from dragonscale.errors import InputError, shorten
from dragonscale.physics.hardware.chip import DTYPE_BYTES


@dataclass(frozen=True)
class FigureNode:
    """A number with its unit."""

    measure: Measure
    text: str


@dataclass(frozen=True)
class NameNode:
    """A chip, a slice or a model, and the fact that is asked of it (empty: the thing itself)."""

    name: str
    tail: str


@dataclass(frozen=True)
class WordNode:
    """A letter, a constant, a unit or a word given to a function."""

    text: str


@dataclass(frozen=True)
class TextNode:
    """Text in quotes."""

    text: str


@dataclass(frozen=True)
class Negation:
    of: "Node"


@dataclass(frozen=True)
class Operator:
    sign: str
    first: "Node"
    second: "Node"


@dataclass(frozen=True)
class CallNode:
    """A function with what it is given, by place and by name; `text` is how it was written."""

    function: str
    given: tuple["Node", ...]
    named: tuple[tuple[str, "Node"], ...]
    text: str


@dataclass(frozen=True)
class ListNode:
    """Several values in brackets; with names, a table."""

    items: tuple["Node", ...]
    names: tuple[str, ...] = ()
    several: bool = False
    """Square brackets: a letter that is given such a list takes one value after the other."""


@dataclass(frozen=True)
class MemberNode:
    """A part of what a function gives: `.lower` or `[0]`."""

    of: "Node"
    field: str | int


Node = FigureNode | NameNode | WordNode | TextNode | Negation | Operator | CallNode | ListNode | MemberNode


@dataclass(frozen=True)
class Statement:
    """One expression; with a sign, an equation or an inequality of two; with `name`, an assignment."""

    text: str
    node: Node
    sign: str = ""
    other: Node | None = None
    name: str = ""


DEEPEST = 60
MOST_STATEMENTS = 64
_ASSIGNED = re.compile(r"(?:^|[;\n])\s*([^\W\d]\w*)\s*=(?!=)")
COMPARED = ("=", "<", ">", "<=", ">=")


def read_statements(text: str) -> list[Statement]:
    """The statements of a text, in order.

    >>> [(one.name, one.sign) for one in read_statements("B=64; 2*B = x/3")]
    [('B', ''), ('', '=')]
    """
    found = [_Reader(words, part).statement() for part, words in _parts(text)]
    if not found:
        raise InputError('There is nothing to calculate; write an expression such as "1e12 FLOP / v6e.bf16".')
    twice = [name for name, times in Counter(one.name for one in found if one.name).items() if times > 1]
    if twice:
        raise InputError(f"{twice[0]} is given a value twice; give it one.")
    return found


def names_in(text: str) -> list[str]:
    """The chips, slices and models that a text names.

    >>> names_in("B=64; B*llama3-70b.D / v5e:4x4.bf16")
    ['llama3-70b', 'v5e:4x4']
    """
    return [one.text for _, words in _parts(text) for one in words if one.kind == "name"]


def _parts(text: str) -> list[tuple[str, list[Lexeme]]]:
    if len(text) > LONGEST:
        raise InputError(f"The expression has {len(text):,} characters; {LONGEST:,} are the most.")
    parts = [part.strip() for part in re.split(r"[;\n]", text) if part.strip()]
    if len(parts) > MOST_STATEMENTS:
        raise InputError(f"There are {len(parts)} statements; {MOST_STATEMENTS} are the most.")
    assigned = frozenset(_ASSIGNED.findall(text))
    found = [(part, split_words(part, assigned)) for part in parts]
    if sum(len(words) - 1 for _, words in found) > MOST_WORDS:
        raise InputError(f"The expression has more than {MOST_WORDS} words; write it as several.")
    return found


class _Reader:
    """Recursive descent over the words of one statement."""

    def __init__(self, words: list[Lexeme], text: str) -> None:
        self.words, self.text, self.place, self.depth = words, text, 0, 0

    @property
    def here(self) -> Lexeme:
        return self.words[self.place]

    def is_sign(self, *signs: str) -> bool:
        return self.here.kind == "sign" and self.here.text in signs

    def take(self) -> Lexeme:
        self.place += 1
        return self.words[self.place - 1]

    def wrong(self, wanted: str) -> InputError:
        found = self.here.text if self.here.kind != "end" else ""
        what = f"has {shorten(found)} where {wanted} should be" if found else f"ends where {wanted} should be"
        after = self.place > 0 and (
            self.words[self.place - 1].kind == "number" or self.words[self.place - 1].text == ")"
        )
        hint = ""
        if after and found == "B":
            hint = f"; write {self.words[self.place - 1].text.strip(')') or '…'} bytes (the B of 70B is a billion)"
        elif after and found in WORDS:
            hint = f"; write * {found}"
        return InputError(f"{shorten(self.text)} {what}{hint}.")

    def expect(self, sign: str) -> None:
        if not self.is_sign(sign):
            raise self.wrong(repr(sign))
        self.take()

    def statement(self) -> Statement:
        node, sign, other = self.sum(), "", None
        if self.is_sign(*COMPARED):
            sign = self.take().text
            other = self.sum()
        if self.here.kind != "end":
            raise self.wrong("an operator (* between factors) or the end")
        if sign == "=" and isinstance(node, WordNode) and other is not None:
            return Statement(self.text, other, name=node.text)
        return Statement(self.text, node, sign, other)

    def sum(self) -> Node:
        self.depth += 1
        if self.depth > DEEPEST:
            raise InputError(f"{shorten(self.text)} is nested deeper than {DEEPEST} brackets.")
        node = self.joined("+-", self.product)
        self.depth -= 1
        return node

    def product(self) -> Node:
        node = self.joined("*/", self.signed)
        if self.here.kind == "word" and self.place and any(getattr(WORDS.get(self.here.text), "exponents", ())):
            return Operator("*", node, WordNode(self.take().text))  # 4*H*K*L bytes
        return node

    def joined(self, signs: str, part: Callable[[], Node]) -> Node:
        """Parts with one of some signs between them, from the left."""
        node = part()
        while self.is_sign(*signs):
            sign = self.take().text
            node = Operator(sign, node, part())
        return node

    def signed(self) -> Node:
        signs = 0
        while self.is_sign("-", "+"):
            signs += self.take().text == "-"
        node = self.power()
        return Negation(node) if signs % 2 else node

    def power(self) -> Node:
        node = self.member()
        if self.is_sign("^", "^2", "^3"):
            sign = self.take().text
            if sign != "^":
                return Operator("^", node, FigureNode(Measure(float(sign[1])), sign[1]))
            self.depth += 1
            if self.depth > DEEPEST:
                raise InputError(f"{shorten(self.text)} is nested deeper than {DEEPEST} powers.")
            start = self.place
            node = Operator("^", node, self.signed())
            if start == self.place - 1 and any(self.words[start].measure.exponents):
                node = _unit_of_power(node.first, self.words[start])
            self.depth -= 1
        return node

    def member(self) -> Node:
        node = self.atom()
        if isinstance(node, WordNode) and node.text in DTYPE_BYTES and self.is_sign("["):
            return self.array(node.text)
        while self.is_sign(".", "["):
            if self.take().text == ".":
                if self.here.kind != "word":
                    raise self.wrong("the name of a part")
                node = MemberNode(node, self.take().text)
                continue
            if self.here.kind != "number":
                raise self.wrong("a number such as [0]")
            node = MemberNode(node, int(self.take().measure.number))
            self.expect("]")
        return node

    def array(self, dtype: str) -> Node:
        """The bytes of an array: `bf16[2048, 8192]`."""
        self.take()
        sizes, _ = self.items("]")
        node: Node = FigureNode(Measure.of(float(DTYPE_BYTES[dtype]), "bytes"), dtype)
        for size in sizes:
            node = Operator("*", node, size)
        return node

    def atom(self) -> Node:
        one = self.here
        if one.kind == "number":
            return FigureNode(self.take().measure, one.text)
        if one.kind == "name":
            self.take()
            return NameNode(one.text, one.tail)
        if one.kind == "text":
            return TextNode(self.take().text)
        if one.kind == "word":
            self.take()
            return self.call(one.text) if self.is_sign("(") else WordNode(one.text)
        if self.is_sign("(", "["):
            close = ")" if self.take().text == "(" else "]"
            given, named = self.items(close)
            if not given and not named:
                raise InputError(f"{shorten(self.text)} has nothing between its brackets.")
            if named:
                return ListNode(tuple(node for _, node in named), tuple(name for name, _ in named))
            return given[0] if len(given) == 1 and close == ")" else ListNode(given, several=close == "]")
        raise self.wrong("a number or a name")

    def call(self, name: str) -> CallNode:
        start = self.place
        self.take()
        given, named = self.items(")")
        parts = [f"{one.text}.{one.tail}" if one.tail else one.text for one in self.words[start : self.place]]
        return CallNode(name, given, named, name + "".join(parts).replace(",", ", "))

    def items(self, close: str) -> tuple[tuple[Node, ...], tuple[tuple[str, Node], ...]]:
        """What stands between brackets, by place and by name."""
        given: list[Node] = []
        named: list[tuple[str, Node]] = []
        while not self.is_sign(close):
            following = self.words[self.place + 1 : self.place + 2]
            if self.here.kind == "word" and following and following[0].text == "=":
                name = self.take().text
                self.take()
                named.append((name, self.sum()))
            else:
                given.append(self.sum())
            if not self.is_sign(close):
                self.expect(",")
        self.take()
        return tuple(given), tuple(named)


def _unit_of_power(base: Node, exponent: Lexeme) -> Node:
    """A power with a unit behind it: the unit of 2^22 FLOP is that of the power."""
    power = Operator("^", base, FigureNode(Measure(exponent.bare), f"{exponent.bare:g}"))
    unit = Measure(exponent.measure.number / exponent.bare if exponent.bare else 1.0, exponent.measure.exponents)
    return Operator("*", power, FigureNode(unit, exponent.text))
