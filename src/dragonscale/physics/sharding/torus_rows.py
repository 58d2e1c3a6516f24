"""How a TPU's compiler scatters sums over all chips of a slice.

libtpu 0.0.42 has a ReduceScatter along rows of a torus, over planes of a box, and over a rectangle of unequal sides
(one ring goes through all its chips), but none over a whole square or a whole box of three axes: there it adds up
everything on every chip and cuts, which sends twice as much. So sums over a whole slice of that shape are scattered
along one row after the other, which sends what one scatter would.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy

Torus = Mapping[str, tuple[int, ...]]
"""The chips along each row of a torus that a mesh axis runs along, slowest first; empty where one scatter will do."""


@dataclass(frozen=True)
class ScatterPhase:
    """A scatter over some mesh axes among so many chips: all along them, or groups of them."""

    axes: tuple[str, ...]
    ways: int
    groups: tuple[tuple[int, ...], ...] | None = None


def torus_rows(sizes: Mapping[str, int], places: numpy.ndarray) -> Torus:
    """The rows along each axis of a mesh of such sizes, of where its devices are (slice, coordinates, core), in the
    order of the mesh. Nothing over several slices, for chips of two cores, or where chips do not lie in rows.

    >>> square = numpy.indices((1, 4, 4, 1)).reshape(4, -1).T
    >>> torus_rows({"data": 2, "fsdp": 8}, square)
    {'data': (2,), 'fsdp': (2, 4)}
    >>> torus_rows({"fsdp": 32}, numpy.indices((1, 4, 8, 1)).reshape(4, -1).T)
    {}
    """
    slices, *sides, cores = (len(numpy.unique(each)) for each in places.T)
    sides = [side for side in sides if side > 1]
    square = len(sides) == 2 and sides[0] == sides[1] > 2
    if slices > 1 or cores > 1 or not (square or len(sides) > 2):
        return {}
    found, grid = {}, places.reshape(*sizes.values(), -1)
    for at, (axis, size) in enumerate(sizes.items()):
        line = numpy.moveaxis(grid, at, 0).reshape(size, -1, grid.shape[-1])[:, 0]
        steps = numpy.stack([numpy.unique(each, return_inverse=True)[1] for each in line.T])
        along = tuple(int(each) + 1 for each in steps.max(-1))
        if not numpy.array_equal(steps, numpy.indices(along).reshape(len(along), -1)):
            return {}
        found[axis] = tuple(side for side in along if side > 1)
    return found


def scatter_phases(torus: Torus, axes: tuple[str, ...]) -> tuple[ScatterPhase, ...]:
    """The scatters that take the place of one over a whole slice, in their order.

    >>> [(phase.axes, phase.groups) for phase in scatter_phases({"x": (2, 2)}, ("x",))]
    [(('x',), ((0, 2), (1, 3))), (('x',), ((0, 1), (2, 3)))]
    """
    found: list[ScatterPhase] = []
    for axis in axes if torus else ():
        sides = torus[axis]
        chips = numpy.arange(math.prod(sides)).reshape(sides)
        for at, side in enumerate(sides):
            groups = numpy.moveaxis(chips, at, -1).reshape(-1, side)
            found.append(ScatterPhase((axis,), side, tuple(tuple(map(int, group)) for group in groups)))
    return tuple(found)
