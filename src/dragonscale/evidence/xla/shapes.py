"""Shapes of HLO: element type and sizes of each array, as one device holds it.

>>> read_shapes("((bf16[32,64]{0,1}), f32[])")
(Shape(dtype='bf16', dims=(32, 64)), Shape(dtype='f32', dims=()))
"""

import math
import re
from dataclasses import dataclass

from dragonscale.errors import InputError, shorten

BITS = {
    **{"pred": 8, "token": 0, "opaque": 0, "bf16": 16, "f16": 16, "f32": 32, "f64": 64, "c64": 64, "c128": 128},
    **{f"{sign}{bits}": bits for sign in "su" for bits in (2, 4, 8, 16, 32, 64)},
    **dict.fromkeys(("f8e5m2", "f8e4m3", "f8e4m3fn", "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3fnuz", "f8e3m4"), 8),
    **{"f8e8m0fnu": 8, "f4e2m1fn": 4, "s1": 1, "u1": 1},
}
"""Bits of one element. XLA keeps a truth value in a byte."""

MOST_DIMS, MOST_ELEMENTS = 64, 2**63
_SHAPE = re.compile(r"(?P<dtype>[a-z]\w*)\[(?P<dims>[^\]]*)\]")


@dataclass(frozen=True)
class Shape:
    """The type and sizes of one array, as one device holds it."""

    dtype: str
    dims: tuple[int, ...]

    @property
    def bytes(self) -> float:
        """Bytes of the array (a fraction where elements are smaller than a byte)."""
        return math.prod(self.dims) * BITS[self.dtype] / 8


def read_shapes(text: str) -> tuple[Shape, ...]:
    """Every array in a shape or tuple of shapes, in order."""
    shapes: list[Shape] = []
    for match in _SHAPE.finditer(text):
        if match["dtype"] not in BITS:
            raise InputError(f"The shape {shorten(text)} has the unknown element type {match['dtype']!r}.")
        sizes = [part.strip().removeprefix("<=") for part in match["dims"].split(",") if part.strip()]
        if not all(re.fullmatch(r"[0-9]{1,18}", size) for size in sizes):
            raise InputError(f"The shape {shorten(text)} has a size that is no whole number.")
        dims = tuple(map(int, sizes))
        if len(dims) > MOST_DIMS or math.prod(dims) > MOST_ELEMENTS:
            raise InputError(f"The shape {shorten(text)} has more dims or elements than any array.")
        shapes.append(Shape(match["dtype"], dims))
    return tuple(shapes)
