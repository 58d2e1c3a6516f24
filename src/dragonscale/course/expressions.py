"""Expressions and texts as problem files write them.

An expression is Python's, without statements: numbers, names, calls, comprehensions, conditions. A text holds
expressions in braces, as an f-string does; after a colon stands how a value is written, `{time:s}` or `{size:bytes 6}`
for an amount to four or six digits, `{x:number}`, `{n:whole}`, or a format of Python's. Names that a problem does
not define are looked up in `dragonscale.course.functions`.

>>> scope = new_scope({"seconds": 0.00125, "chips": 4096})
>>> evaluate("max(seconds, 1e-3) * chips", scope), fill("{chips:whole} chips take {seconds:s}", scope)
(5.12, '4,096 chips take 1.25ms')
"""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Any

from dragonscale.course.functions import look_up
from dragonscale.course.words import written
from dragonscale.errors import InputError
from dragonscale.physics.units import UNITS

Scope = dict[str, Any]
_ALLOWED = (
    *(ast.Module, ast.Assign, ast.Expression, ast.Constant, ast.Name, ast.Attribute, ast.expr_context),
    *(ast.Call, ast.keyword, ast.Starred, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.Subscript, ast.Slice),
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.comprehension),
    *(ast.JoinedStr, ast.FormattedValue),
)
"""What an expression is made of: nothing that defines functions, waits, or assigns on the way."""
_WRITTEN = re.compile(rf"(?:whole|number|{'|'.join(map(re.escape, UNITS))})(?: \d+)?")
"""How a value is written where it is not a format of Python's."""
_WRITER = "@"
"""What writes amounts, under a name that no problem can use."""


@dataclass(frozen=True)
class _Compiled:
    code: CodeType
    names: frozenset[str]
    """Names that it takes from outside."""


class _Amounts(ast.NodeTransformer):
    """`{time:s}` as a call of what writes amounts."""

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        self.generic_visit(node)
        match node.format_spec:
            case ast.JoinedStr([ast.Constant(str(how))]) if _WRITTEN.fullmatch(how):
                call = ast.Call(ast.Name(_WRITER, ast.Load()), [node.value, ast.Constant(how)], [])
                return ast.FormattedValue(call, -1)
        return node


def _compiled(source: str, mode: str, shown: str) -> _Compiled:
    try:
        tree = ast.fix_missing_locations(_Amounts().visit(ast.parse(source, mode=mode)))
    except SyntaxError as error:
        raise InputError(f"`{shown}` cannot be read: {error.msg}.") from None
    names: set[str] = set()
    bound: set[str] = set()
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED):
            raise InputError(f"`{shown}` has a {type(node).__name__}, which is no part of an expression.")
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            raise InputError(f"`{shown}` asks for {node.attr}; names that begin with _ are private.")
        if isinstance(node, ast.Name):
            (names if isinstance(node.ctx, ast.Load) else bound).add(node.id)
    return _Compiled(compile(tree, "<problem>", mode), frozenset(names - bound))


@cache
def _expression(text: str) -> _Compiled:
    return _compiled(f"({text}\n)", "eval", text)


@cache
def _text(text: str) -> _Compiled:
    # The blank before the closing quotes keeps a quote at the text's end apart from them.
    return _compiled(f"rf'''{text} '''", "eval", text)


@cache
def _assignment(text: str) -> _Compiled:
    if not re.match(r"[\w, *()\[\]]+=(?!=)", text):
        raise InputError(f"`{text}` is not `NAME = EXPRESSION`.")
    return _compiled(text, "exec", text)


def new_scope(values: Mapping[str, Any]) -> Scope:
    """What an expression may name: these values; functions join as they are called for."""
    return {**values, "__builtins__": {}, _WRITER: written}


def evaluate(text: str, scope: Scope) -> Any:
    """The value of an expression."""
    return _run(_expression(text), scope, text)


def fill(text: str, scope: Scope) -> str:
    """A text with its expressions put in.

    >>> fill("It's {n} of {{X}}", new_scope({"n": 3}))
    "It's 3 of {X}"
    """
    return _run(_text(text), scope, text)[:-1]


def assign(text: str, scope: Scope) -> None:
    """`NAME = EXPRESSION`, or several names of a tuple, into the scope.

    >>> scope = new_scope({})
    >>> assign("rows, columns = 2, 3", scope)
    >>> scope["columns"]
    3
    """
    _run(_assignment(text), scope, text)


def _run(compiled: _Compiled, scope: Scope, text: str) -> Any:
    for name in compiled.names - scope.keys():
        scope[name] = look_up(name)
    try:
        return eval(compiled.code, scope)
    except Exception as error:
        raise InputError(f"`{text}` has no value: {type(error).__name__}, {error}.") from error
