"""Work that is known only by its amounts: `1e15FLOP`, `2e12FLOP 3GB`, `2e12FLOP int8 3GB`.

>>> asked = parse_counts("2e12FLOP 3GB")
>>> asked.flops, asked.moved, asked.dtype
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
    """FLOPs of a format on the matrix unit and bytes over one memory; either may be none."""

    flops: float
    moved: float
    dtype: str = "bf16"

    indices: tuple[str, ...] = ()
    axes: tuple[str, ...] = ()
    varied: tuple[str, ...] = ()

    def __str__(self) -> str:
        work = f"{render(self.flops, 'FLOP')} in {self.dtype}" if self.flops else ""
        return " and ".join(part for part in (work, render(self.moved, "bytes") if self.moved else "") if part)

    @property
    def sizes(self) -> dict[str, int]:
        return {}

    def cost(self, _sizes: dict[str, Number], level: str = "hbm", **_counting: object) -> Cost:
        """The amounts as a cost; there are no sizes to count by."""
        flops = {("matrix", self.dtype): self.flops} if self.flops else {}
        return Cost(flops=flops, bytes={level: self.moved} if self.moved else {})


def parse_counts(text: str) -> GivenCounts | None:
    """Amounts of FLOPs and bytes, with a format if one is named; None where the text is something else."""
    found = {"FLOP": 0.0, "bytes": 0.0}
    dtype, rest = "", text
    for match in _AMOUNT.finditer(text):
        dimension = next((name for name in found if match["unit"] in UNITS[name]), None)
        if dimension is None:
            return None
        found[dimension] += parse(match[0], dimension, "the amount")
        rest = rest.replace(match[0], " ", 1)
    for word in re.split(r"[\s,;+]+|\band\b|\bin\b", rest):
        if word in DTYPE_NAMES:
            dtype = word
        elif word:
            return None
    if not any(found.values()):
        return None
    if min(found.values()) < 0:
        raise InputError(f"{shorten(text)} has a negative amount; FLOPs and bytes are at least 0.")
    return GivenCounts(found["FLOP"], found["bytes"], dtype or "bf16")
