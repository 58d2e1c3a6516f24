"""Where each element of a tiled array lies in memory: `f32[3,5]{1,0:T(2,2)}`.

A TPU keeps arrays in tiles: the minor dims are rounded up to whole tiles, tiles follow each other row by row, and so do
the elements inside a tile. What is rounded up is padding, which takes memory and bandwidth like the rest.

>>> report = layout_report("f32[3,5]{1,0:T(2,2)}")
>>> report.places
[[0, 1, 4, 5, 8], [2, 3, 6, 7, 10], [12, 13, 16, 17, 20]]
>>> report.elements, report.padded_elements
(15, 24)
"""

import itertools
import math

from dragonscale.commands.record import Record
from dragonscale.errors import InputError, shorten

MOST = 4096


class LayoutReport(Record):
    """`places[i][j]` is the position in memory of the element (i, j), all major dims flattened into rows."""

    layout: str
    elements: int
    padded_elements: int
    bytes: int
    padded_bytes: int
    places: list[list[int]]

    def headline(self) -> str:
        return f"{self.layout}: {self.elements} elements in {self.padded_elements} places"


def layout_report(text: str) -> LayoutReport:
    """The order of the elements of one array."""
    # the reader of XLA's layouts is needed by --layout alone
    from dragonscale.evidence.xla.layouts import read_arrays

    arrays = read_arrays(text)
    if len(arrays) != 1 or not text.strip().endswith(("}", "]")):
        raise InputError(f"{shorten(text)} is not one array with its layout; write e.g. 'f32[3,5]{{1,0:T(2,2)}}'.")
    [array] = arrays
    dims = array.shape.dims
    elements = math.prod(dims)
    if elements > MOST:
        raise InputError(f"{shorten(text)} has {elements:,} elements; up to {MOST:,} are listed.")
    # positions in the order in which the array is written
    places = [array.offset(index) for index in itertools.product(*map(range, dims))]
    # rows of the last dim
    width = dims[-1] if dims else 1
    size = elements * array.bits // 8
    padded = array.padded_bytes
    rows = []
    if elements:
        rows = [places[start : start + width] for start in range(0, elements, width)]
    return LayoutReport(text.strip(), elements, padded * 8 // array.bits, size, padded, rows)
