"""Formulas as they are written in text, as a tree that the page draws in MathML.

The tree is nested lists: the name of an element of MathML, then its children or its text. It is made from the text of a
formula, as `formula_text` and `formula_line` print it, and not by evaluating it, so that whatever a mesh axis is called
stays a name.

>>> math_tree("B*T^2/(C*n_x)")
['mrow', ['mfrac', ['mrow', ['mi', 'B'], ['mo', '·'], ['msup', ['mi', 'T'], ['mn', '2']]], ['mrow', ['mi', 'C'], ['mo',
'·'], ['msub', ['mi', 'n'], ['mi', 'x']]]]]
>>> math_tree("4.59e+14 - 1")
['mrow', ['mrow', ['mn', '4.59'], ['mo', '×'], ['msup', ['mn', '10'], ['mn', '14']]], ['mo', '−'], ['mn', '1']]
>>> math_tree("a b ((") is None
True
"""

import re
from typing import Any

Tree = list[Any]
LONGEST = 6000
"""Characters of a formula that is still drawn; a longer one stays text."""
_TOKEN = re.compile(r"\s*(?:(\d+(?:,\d{3})+|\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)|([^\W\d]\w*)|('[^']*')|([-+*/^(),=]))")
_WORDS = {"Max": "max", "Min": "min", "ceiling": "⌈", "floor": "⌊", "log": "log", "sqrt": "√", "exp": "exp"}


class _Unread(ValueError):
    """A text that is no formula."""


def math_tree(text: str) -> Tree | None:
    """The formula of a text; None where it cannot be read as one."""
    if len(text) > LONGEST:
        return None
    try:
        reader = FormulaReader(_tokens(text))
        tree = reader.equality()
        reader.end()
    except (_Unread, RecursionError):
        return None
    return tree if tree[0] == "mrow" else ["mrow", tree]


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, position = [], 0
    while position < len(text.rstrip()):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _Unread
        kinds = zip(("number", "name", "quoted", "sign"), match.groups(), strict=True)
        tokens.append(next((kind, text) for kind, text in kinds if text is not None))
        position = match.end()
    return tokens


class FormulaReader:
    """Reads sums of products of powers, from the left."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.tokens, self.place = tokens, 0

    def next_is(self, *signs: str) -> str:
        if self.place < len(self.tokens):
            kind, text = self.tokens[self.place]
            if kind == "sign" and text in signs:
                self.place += 1
                return text
        return ""

    def end(self) -> None:
        if self.place != len(self.tokens):
            raise _Unread

    def equality(self) -> Tree:
        sides = [self.sum()]
        while self.next_is("="):
            sides += [["mo", "="], self.sum()]
        return ["mrow", *sides] if len(sides) > 1 else sides[0]

    def sum(self) -> Tree:
        begun = self.next_is("-", "+")
        parts: list[Tree] = [*([["mo", "−"]] if begun == "-" else []), self.product()]
        while sign := self.next_is("+", "-"):
            parts += [["mo", "+" if sign == "+" else "−"], self.product()]
        return ["mrow", *parts] if len(parts) > 1 else parts[0]

    def product(self) -> Tree:
        above, below = [self.power()], list[Tree]()
        while sign := self.next_is("*", "/"):
            (above if sign == "*" else below).append(self.power())
        return ["mfrac", _times(above, True), _times(below, True)] if below else _times(above)

    def power(self) -> Tree:
        base = self.atom()
        if not self.next_is("^"):
            return base
        negative = bool(self.next_is("-"))
        raised = _bare(self.power())
        return ["msup", base, ["mrow", ["mo", "−"], raised] if negative else raised]

    def atom(self) -> Tree:
        if self.next_is("("):
            inside = self.sum()
            if not self.next_is(")"):
                raise _Unread
            return ["mrow", ["mo", "("], inside, ["mo", ")"]]
        if self.place >= len(self.tokens):
            raise _Unread
        kind, text = self.tokens[self.place]
        self.place += 1
        if kind == "number":
            return _number(text)
        if kind == "sign":
            raise _Unread
        if kind == "quoted":
            return ["mtext", text[1:-1]]
        return self.called(text) if self.next_is("(") else _name(text)

    def called(self, name: str) -> Tree:
        """A function and what it is applied to."""
        inside = [self.sum()]
        while self.next_is(","):
            inside += [["mo", ","], self.sum()]
        if not self.next_is(")"):
            raise _Unread
        if name == "sqrt":
            return ["msqrt", *inside]
        if name in ("ceiling", "floor"):
            closing = "⌉" if name == "ceiling" else "⌋"
            return ["mrow", ["mo", _WORDS[name]], *inside, ["mo", closing]]
        return ["mrow", ["mi", _WORDS.get(name, name)], ["mo", "("], *inside, ["mo", ")"]]


def _times(parts: list[Tree], bare: bool = False) -> Tree:
    """Factors with dots between them; one alone needs no brackets above or below a bar."""
    if len(parts) == 1:
        return _bare(parts[0]) if bare else parts[0]
    return ["mrow", parts[0], *(tree for part in parts[1:] for tree in (["mo", "·"], part))]


def _bare(tree: Tree) -> Tree:
    """Without the brackets that a fraction bar or an exponent makes needless."""
    bracketed = tree[0] == "mrow" and len(tree) == 4 and tree[1] == ["mo", "("] and tree[3] == ["mo", ")"]
    return tree[2] if bracketed else tree


def _number(text: str) -> Tree:
    mantissa, e, exponent = text.lower().partition("e")
    if not e:
        return ["mn", text]
    power = ["msup", ["mn", "10"], ["mn", str(int(exponent)).replace("-", "−")]]
    return power if mantissa in ("1", "1.0") else ["mrow", ["mn", mantissa], ["mo", "×"], power]


def _name(text: str) -> Tree:
    first, under, rest = text.partition("_")
    return ["msub", ["mi", first], ["mi", rest.replace("_", " ")]] if first and under and rest else ["mi", text]
