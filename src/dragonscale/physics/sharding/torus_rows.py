"""ReduceScatters over a whole TPU slice, in phases along the rows of its torus.

libtpu 0.0.42 has a ReduceScatter along rows of a torus, over planes of a box, and over a rectangle of unequal sides
(one ring goes through all its chips), but none over a whole square or a whole box of three axes: there it does an
AllReduce and slices, which sends twice as much. So sums over a whole slice of that shape are scattered along the rows
of one torus axis after the other, which sends as much as one ReduceScatter would.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Torus = Mapping[str, tuple[int, ...]]
"""The lengths of the torus rows that each mesh axis runs along, slowest first; empty where one scatter is enough."""


@dataclass(frozen=True)
class ScatterPhase:
    """A ReduceScatter over some mesh axes among `ways` chips: all along them, or in groups of them."""

    axes: tuple[str, ...]
    ways: int
    groups: tuple[tuple[int, ...], ...] | None = None


def torus_rows(sizes: Mapping[str, int], coordinates: NDArray[np.int_]) -> Torus:
    """The torus rows along each axis of a mesh of such sizes.

    `coordinates` are those of its devices in the order of the mesh, of shape (devices, 5): slice, x, y, z, core. Empty
    over several slices, for chips of two cores, and where a mesh axis does not run along whole rows.

    >>> square = np.indices((1, 4, 4, 1)).reshape(4, -1).T
    >>> torus_rows({"data": 2, "fsdp": 8}, square)
    {'data': (2,), 'fsdp': (2, 4)}
    >>> torus_rows({"fsdp": 32}, np.indices((1, 4, 8, 1)).reshape(4, -1).T)
    {}
    """
    slices, *sides, cores = (len(np.unique(column)) for column in coordinates.T)
    sides = [side for side in sides if side > 1]
    is_square = len(sides) == 2 and sides[0] == sides[1] > 2
    if slices > 1 or cores > 1 or not (is_square or len(sides) > 2):
        return {}
    rows: dict[str, tuple[int, ...]] = {}
    grid = coordinates.reshape(*sizes.values(), -1)  # (mesh axes..., coordinates)
    for dim, (axis, size) in enumerate(sizes.items()):
        # the devices of one line along the axis: (size, coordinates)
        line = np.moveaxis(grid, dim, 0).reshape(size, -1, grid.shape[-1])[:, 0]
        # their coordinates counted from 0 without gaps: (coordinates, size)
        steps = np.stack([np.unique(column, return_inverse=True)[1] for column in line.T])
        lengths = tuple(int(last) + 1 for last in steps.max(-1))
        if not np.array_equal(steps, np.indices(lengths).reshape(len(lengths), -1)):
            return {}  # the devices of the line do not fill a box in order
        rows[axis] = tuple(length for length in lengths if length > 1)
    return rows


def scatter_phases(torus: Torus, axes: tuple[str, ...]) -> tuple[ScatterPhase, ...]:
    """The ReduceScatters that replace one over a whole slice, in order.

    >>> [(phase.axes, phase.groups) for phase in scatter_phases({"x": (2, 2)}, ("x",))]
    [(('x',), ((0, 2), (1, 3))), (('x',), ((0, 1), (2, 3)))]
    """
    if not torus:
        return ()
    phases: list[ScatterPhase] = []
    for axis in axes:
        sides = torus[axis]
        chips = np.arange(math.prod(sides)).reshape(sides)
        for dim, side in enumerate(sides):
            groups = np.moveaxis(chips, dim, -1).reshape(-1, side)  # (groups, side)
            phases.append(ScatterPhase((axis,), side, tuple(map(tuple, groups.tolist()))))
    return tuple(phases)
