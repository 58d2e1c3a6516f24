"""Where the blocks of one array lie: which part of it each chip of the mesh holds.

Chips are numbered along the mesh's axes, the last one fastest, as `jax.make_mesh` numbers virtual devices.
"""

import itertools
from typing import Any

import msgspec

from dragonscale.physics.notation import Array, Dim
from dragonscale.physics.sharding.layout import Sizes, block_of
from dragonscale.physics.sharding.mesh import Mesh

MOST = 1024
"""Chips listed at most: the pattern is plain long before."""


class BlockRow(msgspec.Struct):
    """One chip: its number, its place on each mesh axis, and what it holds of each dim."""

    chip: int
    at: dict[str, int]
    holds: list[str]


def block_rows(array: Array, sizes: Sizes, mesh: Mesh) -> list[BlockRow]:
    """What each chip holds, chip after chip.

    >>> from dragonscale.physics.notation import parse_array
    >>> rows = block_rows(parse_array("A[I_YX, J]"), {"I": 8, "J": 3}, Mesh({"X": 2, "Y": 2}))
    >>> [row.holds for row in rows]
    [['0:2', '0:3'], ['4:6', '0:3'], ['2:4', '0:3'], ['6:8', '0:3']]
    """
    places = itertools.product(*(range(int(size)) for size in mesh.axes.values()))
    found = (dict(zip(mesh.axes, place, strict=True)) for place in itertools.islice(places, MOST))
    return [
        BlockRow(number, at, [_held(dim, sizes[dim.name], at, mesh) for dim in array.dims])
        for number, at in enumerate(found)
    ]


def _held(dim: Dim, size: Any, at: dict[str, int], mesh: Mesh) -> str:
    """The elements of a dim as a slice where its size is known, else the number of the block."""
    ways, block = int(mesh.size(*dim.axes)), block_of(dim.axes, at, mesh)
    if isinstance(size, int):
        return f"{block * size // ways}:{(block + 1) * size // ways}"
    return f"block {block} of {ways}" if ways > 1 else "all"
