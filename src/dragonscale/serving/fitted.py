"""Layouts as a compiled program has them: a mesh axis that does not divide a dim splits nothing of it.

An engine with uneven pieces is costed by fractions (half of an odd number of heads). A program of equal blocks cannot do
that: it leaves such a dim whole, and what moves between two layouts follows from that. A KV head that several chips share is
the exception: each of them works on its own copy of one head.
"""

from dataclasses import replace
from functools import lru_cache

from dragonscale.notation import Array
from dragonscale.plan.reader import Move, Reading
from dragonscale.serving.mesh import HEADS
from dragonscale.sharding.mesh import Mesh
from dragonscale.sharding.reshard import reshard
from dragonscale.sharding.step import Step

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)

AxisSizes = dict[str, int]
"""The mesh axes of more than one chip."""


def ways(axes: tuple[str, ...], sizes: AxisSizes) -> int:
    """Chips along some axes."""
    found = 1
    for axis in axes:
        found *= sizes.get(axis, 1)
    return found


def fit(array: Array, dims: dict[str, int], sizes: AxisSizes) -> Array:
    """A layout without axes of one chip, and without those by which a dim does not divide."""
    layout: dict[str, tuple[str, ...]] = {}
    for dim in array.dims:
        axes = tuple(axis for axis in dim.axes if axis in sizes)
        size = dims.get(dim.name)
        while size is not None and size % ways(axes, sizes):
            axes = axes[:-1]
        layout[dim.name] = axes
    return array.with_layout(layout, tuple(axis for axis in array.partial if axis in sizes))


def shared_kv(dims: dict[str, int], sizes: AxisSizes) -> bool:
    """Whether chips with query heads of their own share KV heads evenly: each then has one."""
    many = ways(HEADS, sizes)
    return "k" in dims and dims["k"] < many and many % dims["k"] == 0 and dims["n"] % many == 0


@lru_cache(maxsize=4096)
def _steps(before: Array, after: Array, axes: tuple[str, ...]) -> tuple[Step, ...]:
    return tuple(step for step in reshard(before, after, Mesh(dict(zip(axes, _PRIMES, strict=False)))) if not step.free)


def fitted(reading: Reading, sizes: AxisSizes) -> Reading:
    """A section's reading with layouts that fit; moves are derived anew between them."""
    dims = reading.section.dims
    kernels = tuple(
        replace(kernel, arrays=tuple(fit(array, dims, sizes) for array in kernel.arrays)) for kernel in reading.kernels
    )
    moves: list[Move] = []
    for move in reading.moves:
        if move.step.kind == "all_to_all":
            moves += [move] if any(axis in sizes for axis in move.step.axes) else []
            continue
        before, after = (fit(array, dims, sizes) for array in (move.step.before, move.step.after))
        moves += [replace(move, step=step) for step in _steps(before, after, tuple(sizes))]
    return replace(reading, kernels=kernels, moves=tuple(moves))
