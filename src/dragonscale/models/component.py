"""A part of a block: an attention, an MLP, a state-space mixer. It gives lines of a program and the sizes of their
dims."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from dragonscale.models.program import TEXTS, Op, parsed

_LINE = re.compile(r"(?:(?P<when>[\w=! ]+)\? )?(?P<line>.+)")
_DIM = re.compile(r"(\w+)(\??)=([\w|]+)")
_PIECE = re.compile(r"\{(?P<when>!?\w+(?:=\w+)?):(?P<text>[^{}]*)\}")
_BIASED = re.compile(r"(?P<part>\w+): (?P<output>.+?) = (?P<product>.+) \+ (?P<bias>.+)")


class Component(ABC):
    """Something that contributes lines and dims to a block."""

    @property
    @abstractmethod
    def dims(self) -> dict[str, int]:
        """The sizes of the dims that its lines name."""

    @abstractmethod
    def ops(self) -> tuple[Op, ...]:
        """Its lines, from the block's normed input `X[b,t,d]` to its result."""


class Written(Component):
    """A part whose lines, and the dims that they name, stand in `programs.toml` under its name."""

    @property
    def dims(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for letters, optional, names in _DIM.findall(TEXTS["dims"][type(self).__name__]):
            size = int(names) if names.isdigit() else 0
            for name in () if size else names.split("|"):
                size = size or getattr(self, name) or 0
            sizes |= {letters: size} if size or not optional else {}
        return sizes

    def lines(self) -> list[str]:
        """The text of its lines."""
        return written(type(self).__name__, lambda name: getattr(self, name))

    def ops(self) -> tuple[Op, ...]:
        return parsed(self.lines())


def written(name: str, value: Callable[[str], Any]) -> list[str]:
    """The lines of a text of `programs.toml`, whose head tells the notation; `value` gives that of each name in it.

    >>> written("Mlp", {"gated": False, "bias": True, "act_weights": 0, "norm": False}.get)[:2]
    ['mlp: U[b,t,f] = X[b,t,d] · Wu[d,f]', 'mlp: U[b,t,f] = bias(U[b,t,f]; w_u[f])']
    """

    def holds(condition: str) -> bool:
        key, _, word = condition.removeprefix("!").partition("=")
        found = value(key)
        return (found == word if word else bool(found)) != condition.startswith("!")

    lines: list[str] = []
    for match in filter(None, map(_LINE.fullmatch, TEXTS[name].splitlines())):
        if not all(map(holds, (match["when"] or "").split())):
            continue
        line = re.sub(r"\{(\w+)\}", lambda found: str(value(found[1])), match["line"])
        line = _PIECE.sub(lambda piece: piece["text"] if holds(piece["when"]) else "", line)
        biased = _BIASED.fullmatch(line)
        lines.append(line if biased is None else line.rpartition(" + ")[0])
        lines += (
            [f"{biased['part']}: {biased['output']} = bias({biased['output']}; {biased['bias']})"] if biased else []
        )
    return lines
