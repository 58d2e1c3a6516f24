"""Parts of a block (an attention, an MLP, a state-space mixer): their ops, and the sizes of the ops' dims."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from dragonscale.models.program import TEXTS, Op, parsed

_LINE = re.compile(r"(?:(?P<when>[\w=! ]+)\? )?(?P<line>.+)")
_DIM = re.compile(r"(\w+)(\??)=([\w|]+)")
_OPTIONAL = re.compile(r"\{(?P<when>!?\w+(?:=\w+)?):(?P<text>[^{}]*)\}")
_BIASED = re.compile(r"(?P<part>\w+): (?P<output>.+?) = (?P<product>.+) \+ (?P<bias>.+)")


class Component(ABC):
    """A part of a block."""

    @property
    @abstractmethod
    def dims(self) -> dict[str, int]:
        """The sizes of the dims that its ops name."""

    @abstractmethod
    def ops(self) -> tuple[Op, ...]:
        """Its ops, from the block's normed input `X[b,t,d]` to its result."""


class Written(Component):
    """A part whose ops and dims are written in `programs.toml` under its name."""

    @property
    def dims(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        # h=head_dim, z?=shared|hidden: a number, or the first of some attributes that is not empty; `?` may be left out
        for dim, optional, names in _DIM.findall(TEXTS["dims"][type(self).__name__]):
            if names.isdigit():
                size = int(names)
            else:
                size = next(filter(None, (getattr(self, name) for name in names.split("|"))), 0)
            if size or not optional:
                sizes[dim] = size
        return sizes

    def lines(self) -> list[str]:
        """The text of its ops."""
        return written(type(self).__name__, lambda name: getattr(self, name))

    def ops(self) -> tuple[Op, ...]:
        return parsed(self.lines())


def written(name: str, value: Callable[[str], Any]) -> list[str]:
    """The lines of a program of `programs.toml`, whose head explains the notation, for the `value` of each name.

    >>> written("Mlp", {"gated": False, "bias": True, "act_weights": 0, "norm": False}.get)[:2]
    ['mlp: U[b,t,f] = X[b,t,d] · Wu[d,f]', 'mlp: U[b,t,f] = bias(U[b,t,f]; w_u[f])']
    """

    def holds(condition: str) -> bool:
        name, _, wanted = condition.removeprefix("!").partition("=")
        is_true = value(name) == wanted if wanted else bool(value(name))
        return is_true != condition.startswith("!")

    lines: list[str] = []
    for match in filter(None, map(_LINE.fullmatch, TEXTS[name].splitlines())):
        if not all(map(holds, (match["when"] or "").split())):
            continue
        line = re.sub(r"\{(\w+)\}", lambda name: str(value(name[1])), match["line"])
        line = _OPTIONAL.sub(lambda option: option["text"] if holds(option["when"]) else "", line)
        biased = _BIASED.fullmatch(line)
        if biased is None:
            lines.append(line)
        else:  # a product with a bias is two ops
            lines.append(line.rpartition(" + ")[0])
            lines.append(f"{biased['part']}: {biased['output']} = bias({biased['output']}; {biased['bias']})")
    return lines
