"""An expression as it is typed: its letters, each with a slider, or the planner's sentence with the place that it is
about.

>>> marked("A[I_X, J] @ B[J_Q, K]", "The expression uses the mesh axis Q, but the mesh has X=4; add Q=… to --mesh.")
[16, 17]
>>> marked("bf17[B,8]", "There is no dtype 'bf17'; did you mean 'bf16'?")
[0, 4]
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

_QUOTED = re.compile(r"'([^']+)'|\"([^\"]+)\"")
_NAMED = re.compile(r"(?:mesh axis|the index|the dim|dtype) (\w+)")
LARGEST = 20
"""Sizes of a letter's slider go up to two to this power."""


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


def letters(
    names: Sequence[str], fixed: Mapping[str, int], sizes: Mapping[str, int], most: int = LARGEST
) -> list[dict[str, Any]]:
    """A slider for each letter that the expression leaves open: powers of two, and those halfway between."""
    stops = sorted({step << power for power in range(most) for step in (1, 2, 3)})
    return [
        {
            "name": name,
            "size": sizes.get(name),
            "text": _text(sizes.get(name)),
            "stops": [{"size": stop, "text": _text(stop)} for stop in stops if stop <= 1 << most],
        }
        for name in names
        if name not in fixed
    ]


def _text(size: int | None) -> str:
    return "any" if size is None else f"{size:,}"
