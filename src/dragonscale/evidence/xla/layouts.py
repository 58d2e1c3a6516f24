"""Shapes of HLO: element type and sizes of each array, as one device holds it.

>>> read_shapes("((bf16[32,64]{0,1}), f32[])")
(Shape(dtype='bf16', dims=(32, 64)), Shape(dtype='f32', dims=()))

Layouts and padding: what an array takes in memory, beside what it holds, and where each element lies.

A TPU keeps arrays in tiles. `bf16[100,200]{1,0:T(8,128)(2,1)}` has its dims from minor to major (`1,0`), then tiles:
the two minor dims are rounded up to whole tiles of 8 by 128, and inside a tile pairs of rows are interleaved (`(2,1)`).
Tiles follow each other in the order of the dims, and so do the elements inside a tile, level by level. `*` in a tile
joins a dim with the next minor one before it is cut. `S(1)` says which memory: none is the chip's main memory (HBM), 1
its fast vector memory, 5 the host's. `E(4)` are the bits of an element, `L(…)`, `SC(…)` and `M(…)` (splits over cores,
dynamic sizes) do not change where elements lie in these terms.

>>> padded_bytes("bf16[100,200]{1,0:T(8,128)(2,1)}"), 104 * 256 * 2
(53248, 53248)
>>> padded_bytes("f32[]{:T(128)}"), padded_bytes("bf16[100,200]{1,0}"), padded_bytes("(s32[3]{0:T(128)}, pred[])")
(512, 40000, 513)
>>> [each.memory for each in read_arrays("(f32[8]{0:T(128)S(1)}, f32[8]{0})")]
['VMEM', 'HBM']
>>> (array,) = read_arrays("f32[3,5]{1,0:T(2,2)}")
>>> array.physical, array.padded, array.expansion, array.padded_bytes
((3, 5), (4, 6), 1.6, 96)
>>> offsets(array)
[[0, 1, 4, 5, 8], [2, 3, 6, 7, 10], [12, 13, 16, 17, 20]]
>>> (joined,) = read_arrays("f32[2,7,8,11,10]{4,3,2,1,0:T(*,*,2,*,3)}")
>>> joined.cut, joined.padded_bytes == 56 * 37 * 2 * 3 * 4
((56, 37, 2, 3), True)
"""

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

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
    def elements(self) -> int:
        """How many elements it has."""
        return math.prod(self.dims)

    @property
    def bytes(self) -> float:
        """Bytes of the array (a fraction where elements are smaller than a byte)."""
        return self.elements * BITS[self.dtype] / 8


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


HBM, VMEM, HOST = 0, 1, 5
MEMORIES = {0: "HBM", 1: "VMEM", 2: "sync flags", 5: "host", 6: "SMEM"}
"""Memory spaces by the number in `S(…)`. None is written for the first."""
JOINED = 0
"""What stands for `*` in a tile."""
MOST_PART = 10**9
MOST_LISTED = 1 << 16
"""Elements up to which `offsets` lists where each lies."""
_ARRAY = re.compile(r"(?P<dtype>[a-z]\w*)\[[^\]]*\](?:\{(?P<order>[\d,]*)(?::(?P<rest>[^{}]*))?\})?")
_TILES = re.compile(r"(?<![A-Z])T((?:\([\d,*]*\))+)")
_SPACE = re.compile(r"(?<![A-Z])S\((\d{1,9})\)")
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
    def memory(self) -> str:
        """Which memory it lies in."""
        return memory_name(self.space)

    @property
    def physical(self) -> tuple[int, ...]:
        """Its sizes in the order of memory, major first."""
        return tuple(self.shape.dims[dim] for dim in reversed(self.minor_to_major))

    @cached_property
    def cut(self) -> tuple[int, ...]:
        """Its sizes once every level of tiles has cut it, major first: elements follow each other in this order."""
        sizes = self.physical
        for tile in self.tiles:
            sizes, _ = _split(sizes, [0] * len(sizes), tile)
        return tuple(sizes)

    @property
    def padded(self) -> tuple[int, ...]:
        """Its physical sizes rounded up to whole tiles of the outermost level (dims that a tile joins are one)."""
        if not self.tiles:
            return self.physical
        tile = [part for part in self.tiles[0] if part != JOINED]
        joined, _ = _joined(self.physical, [0] * len(self.physical), self.tiles[0])
        kept = len(joined) - len(tile)
        return (*joined[:kept], *(-(-size // part) * part for size, part in zip(joined[kept:], tile, strict=True)))

    @property
    def padded_bytes(self) -> int:
        """Bytes it takes, whole tiles."""
        return -(-math.prod(self.cut) * self.bits // 8)

    @property
    def expansion(self) -> float:
        """How many times more than its elements it takes."""
        return math.prod(self.cut) / max(1, self.shape.elements)

    def offset(self, index: Sequence[int]) -> int:
        """Where the element of an index lies, counted in elements: tile by tile in the order of the dims, then inside
        the tile."""
        sizes: Sequence[int] = self.physical
        at: Sequence[int] = [index[dim] for dim in reversed(self.minor_to_major)]
        for tile in self.tiles:
            sizes, at = _split(sizes, at, tile)
        position = 0
        for size, place in zip(sizes, at, strict=True):
            position = position * size + place
        return position


def _joined(sizes: Sequence[int], at: Sequence[int], tile: Sequence[int]) -> tuple[list[int], list[int]]:
    """Sizes and places with dims added in front where the tile has more, and those joined where it says `*`."""
    short = len(tile) - len(sizes)
    whole, places = [1] * short + list(sizes), [0] * short + list(at)
    kept = len(whole) - len(tile)
    for dim in range(len(tile) - 2, -1, -1):
        if tile[dim] == JOINED:
            places[kept + dim] = places[kept + dim] * whole[kept + dim + 1] + places.pop(kept + dim + 1)
            whole[kept + dim] *= whole.pop(kept + dim + 1)
    return whole, places


def _split(sizes: Sequence[int], at: Sequence[int], tile: Sequence[int]) -> tuple[list[int], list[int]]:
    """Sizes and places after one level of tiles: the dims it does not touch, then which tile, then where inside."""
    whole, places = _joined(sizes, at, tile)
    parts = [part for part in tile if part != JOINED]
    kept = len(whole) - len(parts)
    tiled = list(zip(whole[kept:], places[kept:], parts, strict=True))
    outer, inner = [-(-size // part) for size, _, part in tiled], [place // part for _, place, part in tiled]
    return [*whole[:kept], *outer, *parts], [*places[:kept], *inner, *(place % part for _, place, part in tiled)]


def offsets(array: Placed) -> Any:
    """Where each element lies, counted in elements, as nested lists of the array's own shape."""
    if array.shape.elements > MOST_LISTED:
        raise InputError(
            f"An array of {array.shape.elements:,} elements is too large to list; up to {MOST_LISTED:,} are."
        )
    found: Any = [array.offset(index) for index in itertools.product(*map(range, array.shape.dims))]
    for size in reversed(array.shape.dims[1:]):
        found = [found[start : start + size] for start in range(0, len(found), size)] if size else []
    return found if array.shape.dims else found[0]


@lru_cache(maxsize=16384)
def read_arrays(text: str) -> tuple[Placed, ...]:
    """Every array in a shape or tuple of shapes, with its layout."""
    return tuple(_placed(match, text) for match in _ARRAY.finditer(text))


def _placed(match: re.Match[str], text: str) -> Placed:
    (shape,) = read_shapes(match[0])
    rest = match["rest"] or ""
    order = tuple(int(part[:9]) for part in (match["order"] or "").split(",") if part)
    order = order if len(order) == len(shape.dims) else tuple(range(len(shape.dims)))[::-1]
    if sorted(order) != list(range(len(shape.dims))):
        raise InputError(f"The layout of {shorten(text)} does not name every dim once from minor to major.")
    space, element = _SPACE.search(rest), _ELEMENT.search(rest)
    bits = int(element[1][:4]) if element else 0
    if element and not bits:
        raise InputError(f"The layout of {shorten(text)} has elements of no bits.")
    return Placed(shape, order, _tiles(rest, text), int(space[1]) if space else HBM, bits or BITS[match["dtype"]])


def _tiles(rest: str, text: str) -> tuple[tuple[int, ...], ...]:
    """The levels of tiles in what follows the order of the dims."""
    found = _TILES.search(rest)
    groups = re.findall(r"\(([\d,*]*)\)", found[1]) if found else []
    tiles = tuple(
        tuple(JOINED if part == "*" else int(part[:12]) if part.isdigit() else -1 for part in group.split(",") if part)
        for group in groups
    )
    written = [part for group in groups for part in group.split(",") if part not in ("", "*")]
    if any(not part.isdigit() or not 1 <= int(part[:12]) <= MOST_PART for part in written):
        raise InputError(f"The layout of {shorten(text)} has a tile of no elements, or of far too many.")
    if any(tile and tile[-1] == JOINED for tile in tiles):
        raise InputError(f"The layout of {shorten(text)} joins the most minor dim of a tile with nothing.")
    return tiles


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
