"""Layouts and padding: what an array takes in memory, beside what it holds.

A TPU keeps arrays in tiles. `bf16[100,200]{1,0:T(8,128)(2,1)}` has its dims from minor to major (`1,0`), then tiles: the two minor
dims are rounded up to whole tiles of 8 by 128, and inside a tile pairs of rows are interleaved (`(2,1)`). `S(1)` says which memory:
none is the chip's main memory (HBM), 1 its fast vector memory, 5 the host's.

>>> padded_bytes("bf16[100,200]{1,0:T(8,128)(2,1)}"), 104 * 256 * 2
(53248, 53248)
>>> padded_bytes("f32[]{:T(128)}"), padded_bytes("bf16[100,200]{1,0}"), padded_bytes("(s32[3]{0:T(128)}, pred[])")
(512, 40000, 513)
>>> [each.space for each in read_arrays("(f32[8]{0:T(128)S(1)}, f32[8]{0})")]
[1, 0]
"""

import math
import re
from dataclasses import dataclass
from functools import lru_cache

from dragonscale.errors import InputError, shorten
from dragonscale.evidence.xla.shapes import BITS, Shape, read_shapes

HBM, VMEM, HOST = 0, 1, 5
MEMORIES = {0: "HBM", 1: "VMEM", 2: "sync flags", 5: "host", 6: "SMEM"}
"""Memory spaces by the number in `S(…)`. None is written for the first."""
MOST_PART = 10**9
_ARRAY = re.compile(r"(?P<dtype>[a-z]\w*)\[[^\]]*\](?:\{(?P<order>[\d,]*)(?::(?P<rest>[^{}]*))?\})?")
_TILES = re.compile(r"(?<![A-Z])T((?:\([\d,*]*\))+)")
_SPACE = re.compile(r"(?<![A-Z])S\((\d+)\)")
_ELEMENT = re.compile(r"(?<![A-Z])E\((\d+)\)")


@dataclass(frozen=True)
class Placed:
    """An array with its layout: dims from minor to major, tiles, memory space and the bits one element takes."""

    shape: Shape
    minor_to_major: tuple[int, ...]
    tiles: tuple[tuple[int, ...], ...]
    space: int
    bits: int

    @property
    def padded_bytes(self) -> int:
        """Bytes it takes, whole tiles."""
        sizes = [self.shape.dims[dim] for dim in reversed(self.minor_to_major)]
        for tile in self.tiles:
            sizes = [1] * (len(tile) - len(sizes)) + sizes
            outer, inner = sizes[: len(sizes) - len(tile)], sizes[len(sizes) - len(tile) :]
            sizes = [*outer, *(-(-size // part) for size, part in zip(inner, tile, strict=True)), *tile]
        return -(-math.prod(sizes) * self.bits // 8)


@lru_cache(maxsize=16384)
def read_arrays(text: str) -> tuple[Placed, ...]:
    """Every array in a shape or tuple of shapes, with its layout."""
    found: list[Placed] = []
    for match in _ARRAY.finditer(text):
        (shape,) = read_shapes(match[0])
        order = tuple(int(part) for part in (match["order"] or "").split(",") if part)
        rest = match["rest"] or ""
        tiles = _TILES.search(rest)
        groups = re.findall(r"\(([\d,*]*)\)", tiles[1]) if tiles else []
        if any("*" in group for group in groups):
            raise InputError(f"The layout of {shorten(text)} joins dims in its tiles, which this reader does not know.")
        order = order if len(order) == len(shape.dims) else tuple(range(len(shape.dims)))[::-1]
        if sorted(order) != list(range(len(shape.dims))):
            raise InputError(f"The layout of {shorten(text)} does not name every dim once from minor to major.")
        parts = tuple(tuple(int(part) for part in group.split(",") if part) for group in groups)
        if any(not 1 <= part <= MOST_PART for tile in parts for part in tile):
            raise InputError(f"The layout of {shorten(text)} has a tile of no elements, or of far too many.")
        space, element = _SPACE.search(rest), _ELEMENT.search(rest)
        bits = int(element[1][:4]) if element else BITS[match["dtype"]]
        if element and not bits:
            raise InputError(f"The layout of {shorten(text)} has elements of no bits.")
        found.append(Placed(shape, order, parts, int(space[1]) if space else HBM, bits))
    return tuple(found)


def padded_bytes(text: str) -> int:
    """Bytes that a shape, or every array of a tuple of shapes, takes in memory."""
    return sum(each.padded_bytes for each in read_arrays(text))


def memory_name(space: int, on: str = "") -> str:
    """What a memory space is called. On a GPU 1 is still main memory (buffers that are registered for collectives).

    >>> memory_name(0), memory_name(1), memory_name(1, "gpu"), memory_name(3)
    ('HBM', 'VMEM', 'HBM', 'memory space 3')
    """
    if on in ("gpu", "cpu") and space == VMEM:
        space = HBM
    return MEMORIES.get(space, f"memory space {space}")
