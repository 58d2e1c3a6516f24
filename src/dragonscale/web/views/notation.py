"""An expression as it is typed: its letters, each with a slider, or the planner's sentence with the place that it is
about.

>>> marked("A[I_X, J] @ B[J_Q, K]", "The expression uses the mesh axis Q, but the mesh has X=4; add Q=… to --mesh.")
[16, 17]
>>> marked("bf17[B,8]", "There is no dtype 'bf17'; did you mean 'bf16'?")
[0, 4]
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dragonscale.commands.given import sizes_of
from dragonscale.errors import InputError
from dragonscale.web.page_request import PageRequest
from dragonscale.web.words import question_of

_QUOTED = re.compile(r"'([^']+)'|\"([^\"]+)\"")
_NAMED = re.compile(r"(?:mesh axis|the index|the dim|dtype) (\w+)")
LARGEST = 20
"""Sizes of a letter's slider go up to two to this power."""


def notation_card(
    request: PageRequest,
    parse: Callable[[str], Any],
    check: Callable[[PageRequest], object],
    max_letters: int | None = None,
) -> dict[str, Any]:
    """The letters of the question's expression with their sliders; or what is wrong with it, and where."""
    expression = str(request.fields.get("expression", ""))
    try:
        question = question_of(request.view, request.fields)
        line, sizes = parse(expression), sizes_of(question.sizes)
        check(request)
    except InputError as error:
        return {"wrong": str(error), "at": marked(expression, str(error)), "letters": []}
    return {"wrong": "", "at": None, "letters": letters(line.indices[:max_letters], line.sizes, sizes)}


def marked(expression: str, sentence: str) -> list[int] | None:
    """From where to where an expression has what a sentence says is wrong; None where it is the whole of it."""
    quoted = [first or second for first, second in _QUOTED.findall(sentence)]
    named = _NAMED.findall(sentence)
    for text in (*quoted, *named):
        subscript = re.search(rf"(?<=_)\{{?\w*?({re.escape(text)})", expression) if text in named else None
        at = subscript.start(1) if subscript else expression.find(text)
        if at >= 0 and len(text) < len(expression.strip()):
            return [at, at + len(text)]
    return None


def letters(names: Sequence[str], fixed: Mapping[str, int], sizes: Mapping[str, int]) -> list[dict[str, Any]]:
    """A slider for each letter that the expression leaves open: powers of two, and those halfway between."""
    sorted_stops = sorted({step << power for power in range(LARGEST) for step in (1, 2, 3)})
    stops = [{"size": stop, "text": _text(stop)} for stop in sorted_stops if stop <= 1 << LARGEST]
    open_letters = [(name, sizes.get(name)) for name in names if name not in fixed]
    return [{"name": name, "size": size, "text": _text(size), "stops": stops} for name, size in open_letters]


def _text(size: int | None) -> str:
    return "any" if size is None else f"{size:,}"
