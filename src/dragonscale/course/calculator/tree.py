"""The kinds of nodes of an expression's tree, and a statement made of them."""

from dataclasses import dataclass

from dragonscale.course.calculator.measure import Measure


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
