"""Work that is given by its amounts alone: `1e15FLOP`, `2e12FLOP 3GB`, `2e12FLOP int8 3GB`.

>>> counts = parse_counts("2e12FLOP 3GB")
>>> counts.flops, counts.moved, counts.dtype
(2000000000000.0, 3000000000.0, 'bf16')
>>> parse_counts("bf16[B, D]") is None
True
"""

import re
from dataclasses import dataclass

from dragonscale.errors import InputError, shorten
from dragonscale.physics.notation.array import DTYPE_NAMES
from dragonscale.physics.numbers import Number
from dragonscale.physics.rooflines.cost import Cost
from dragonscale.physics.units import UNITS, parse, render

_AMOUNT = re.compile(r"(?P<number>[-+]?[\d.][\d_.]*(?:[eE][-+]?\d+)?)\s*(?P<unit>[A-Za-z]+)")


@dataclass(frozen=True)
class GivenCounts:
    """FLOPs of a dtype on the matrix unit and bytes over one memory; either may be zero."""

    flops: float
    moved: float
    dtype: str = "bf16"
    # as an `Operation` has them: amounts have no dims
    indices: tuple[str, ...] = ()
    axes: tuple[str, ...] = ()
    varied: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts: list[str] = []
        if self.flops:
            parts.append(f"{render(self.flops, 'FLOP')} in {self.dtype}")
        if self.moved:
            parts.append(render(self.moved, "bytes"))
        return " and ".join(parts)

    @property
    def sizes(self) -> dict[str, int]:
        return {}

    def cost(self, _sizes: dict[str, Number], level: str = "hbm", **_counting: object) -> Cost:
        """The amounts as a cost; there are no sizes to count by."""
        flops = {("matrix", self.dtype): self.flops} if self.flops else {}
        return Cost(flops=flops, bytes={level: self.moved} if self.moved else {})


def parse_counts(text: str) -> GivenCounts | None:
    """Amounts of FLOPs and bytes, with a dtype if one is named; None where the text is something else."""
    flops, moved, dtype, rest = 0.0, 0.0, "bf16", text
    for match in _AMOUNT.finditer(text):
        if match["unit"] in UNITS["FLOP"]:
            flops += parse(match[0], "FLOP", "the amount")
        elif match["unit"] in UNITS["bytes"]:
            moved += parse(match[0], "bytes", "the amount")
        else:
            return None
        rest = rest.replace(match[0], " ", 1)
    # nothing may be left but the name of a dtype
    for word in re.split(r"[\s,;+]+|\band\b|\bin\b", rest):
        if word in DTYPE_NAMES:
            dtype = word
        elif word:
            return None
    if not flops and not moved:
        return None
    if min(flops, moved) < 0:
        raise InputError(f"{shorten(text)} has a negative amount; FLOPs and bytes are at least 0.")
    return GivenCounts(flops, moved, dtype)
