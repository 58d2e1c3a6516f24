"""Every single move that a layout allows: the grammar of which all reshards are sentences.

`reshard` picks one good sequence; a compiler may pick another. Both are walks in the graph whose nodes are layouts and
whose edges are the moves listed here, so "is this a legal way to do it?" is a question about a path in that graph.

>>> from dragonscale.notation import parse_array
>>> for step in moves(parse_array("A[I_X, J]"), Mesh({"X": 4, "Y": 4})):
...     print(step)
slice_Y A[I_X, J] -> A[I_XY, J]
slice_Y A[I_X, J] -> A[I_X, J_Y]
all_gather_X A[I_X, J] -> A[I, J]
all_to_all_X A[I_X, J] -> A[I, J_X]
permute_XY A[I_X, J] -> A[I_Y, J]
"""

import itertools
from collections.abc import Iterator

from dragonscale.notation import Array
from dragonscale.sharding.layout import replicated_over
from dragonscale.sharding.mesh import Mesh
from dragonscale.sharding.reshard import Layout, Step, layout_of


def moves(array: Array, mesh: Mesh, kinds: frozenset[str] | None = None) -> Iterator[Step]:
    """Every legal move from an array's layout, of some kinds (all of them by default)."""
    for kind, each in _MOVES.items():
        if kinds is None or kind in kinds:
            yield from each(array, mesh)


def _slices(array: Array, mesh: Mesh) -> Iterator[Step]:
    """Keep one part of a copy: an axis along which the chips hold the same goes to the minor end of any dim."""
    now = layout_of(array)
    for axis in replicated_over(array, mesh):
        for dim in now:
            yield _step("slice", (axis,), array, now | {dim: (*now[dim], axis)})


def _gathers(array: Array, mesh: Mesh) -> Iterator[Step]:
    """Remove minor axes of a dim: the blocks of a group are then neighbours."""
    del mesh
    now = layout_of(array)
    for dim, held in now.items():
        for count in range(1, len(held) + 1):
            yield _step("all_gather", held[-count:], array, now | {dim: held[:-count]})


def _exchanges(array: Array, mesh: Mesh) -> Iterator[Step]:
    """Move minor axes of one dim to the minor end of another, in any order (a chip can reorder what it sends)."""
    del mesh
    now = layout_of(array)
    for source, held in now.items():
        for target in now:
            for count in range(1, len(held) + 1) if target != source else ():
                for order in itertools.permutations(held[-count:]):
                    layout = now | {source: held[:-count], target: (*now[target], *order)}
                    yield _step("all_to_all", held[-count:], array, layout)


def _scatters(array: Array, mesh: Mesh) -> Iterator[Step]:
    """Add up partial sums and leave each chip a part of the result."""
    del mesh
    now = layout_of(array)
    for axes in _subsets(array.partial):
        rest = tuple(axis for axis in array.partial if axis not in axes)
        for dim in now:
            for order in itertools.permutations(axes):
                yield _step("reduce_scatter", axes, array, now | {dim: (*now[dim], *order)}, rest)


def _reductions(array: Array, mesh: Mesh) -> Iterator[Step]:
    """Add up partial sums and leave each chip the whole result."""
    del mesh
    for axes in _subsets(array.partial):
        rest = tuple(axis for axis in array.partial if axis not in axes)
        yield _step("all_reduce", axes, array, layout_of(array), rest)


def _permutes(array: Array, mesh: Mesh) -> Iterator[Step]:
    """Send whole blocks elsewhere: any layout that splits every dim into as many parts as now."""
    now = layout_of(array)
    free = tuple(axis for axis in mesh.axes if axis not in array.partial)
    for layout in _same_parts(tuple(now), now, free, mesh):
        if layout != now:
            changed = {axis for dim in now if now[dim] != layout[dim] for axis in (*now[dim], *layout[dim])}
            yield _step("permute", tuple(axis for axis in mesh.axes if axis in changed), array, layout)


def _same_parts(dims: tuple[str, ...], now: Layout, free: tuple[str, ...], mesh: Mesh) -> Iterator[Layout]:
    if not dims:
        yield {}
        return
    ways = mesh.size(*now[dims[0]])
    for axes in itertools.chain([()], _orders(free)):
        if mesh.size(*axes) == ways:
            left = tuple(axis for axis in free if axis not in axes)
            for rest in _same_parts(dims[1:], now, left, mesh):
                yield {dims[0]: axes} | rest


def _subsets(axes: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for count in range(1, len(axes) + 1):
        yield from itertools.combinations(axes, count)


def _orders(axes: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for subset in _subsets(axes):
        yield from itertools.permutations(subset)


def _step(
    kind: str, axes: tuple[str, ...], array: Array, layout: Layout, partial: tuple[str, ...] | None = None
) -> Step:
    return Step(kind, axes, array, array.with_layout(layout, array.partial if partial is None else partial))


_MOVES = {
    "slice": _slices,
    "all_gather": _gathers,
    "all_to_all": _exchanges,
    "reduce_scatter": _scatters,
    "all_reduce": _reductions,
    "permute": _permutes,
}
