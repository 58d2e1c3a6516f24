"""An array with its layout as facts: sizes in memory, padding, tiles, where each element lies."""

import math
from typing import Any

import msgspec

from dragonscale.app.record import Record
from dragonscale.evidence.xla.layouts import JOINED, Placed, offsets, read_arrays
from dragonscale.evidence.xla.shapes import Shape

FEW = 4096
"""Elements up to which the record has the place of each."""


class ArrayFacts(msgspec.Struct):
    """`physical` are the sizes in the order of memory, major first; `padded` the same in whole tiles. `*` in a tile
    joins a dim with the next minor one. `expansion` is how much more memory it takes than its elements."""

    text: str
    dtype: str
    shape: list[int]
    minor_to_major: list[int]
    physical: list[int]
    tiles: list[list[int | str]]
    padded: list[int]
    elements: int
    bytes: float
    padded_bytes: int
    expansion: float
    memory_space: int
    memory: str


class LayoutFacts(Record):
    """One array; `offsets` is nested as its shape is, for small ones: the place of each element in memory, counted in
    elements."""

    array: ArrayFacts
    offsets: Any = None

    def headline(self) -> str:
        return f"{self.array.text}: {self.array.elements:,} elements in {self.array.memory}"


def array_facts(array: Placed, text: str = "") -> ArrayFacts:
    """The facts of one array."""
    return ArrayFacts(
        text or written_shape(array.shape),
        array.shape.dtype,
        list(array.shape.dims),
        list(array.minor_to_major),
        list(array.physical),
        [["*" if part == JOINED else part for part in tile] for tile in array.tiles],
        list(array.padded),
        math.prod(array.shape.dims),
        array.shape.bytes,
        array.padded_bytes,
        array.expansion,
        array.space,
        array.memory,
    )


def written_shape(shape: Shape) -> str:
    """A shape as HLO writes it, without its layout."""
    return f"{shape.dtype}[{','.join(map(str, shape.dims))}]"


def layout_facts(text: str) -> LayoutFacts:
    """The answer about a bare shape."""
    (array,) = read_arrays(text)
    facts = array_facts(array, text.strip())
    return LayoutFacts(facts, offsets(array) if facts.elements <= FEW else None)
