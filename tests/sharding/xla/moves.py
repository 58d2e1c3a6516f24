"""Every single move that a layout allows: the grammar of which all reshards are sentences.

`reshard` picks one good sequence; a compiler may pick another. Both are walks in the graph whose nodes are layouts and
whose edges are the moves listed here, so "is this a legal way to do it?" is a question about a path in that graph.

>>> from dragonscale.physics.notation import parse_array
>>> for step in moves(parse_array("A[I_X, J]"), Mesh({"X": 4, "Y": 4})):
...     print(step)
slice_Y A[I_X, J] -> A[I_XY, J]
slice_Y A[I_X, J] -> A[I_X, J_Y]
all_gather_X A[I_X, J] -> A[I, J]
all_to_all_X A[I_X, J] -> A[I, J_X]
permute_XY A[I_X, J] -> A[I_Y, J]
permute_XY A[I_X, J] -> A[I_Y, J_X]
permute_XY A[I_X, J] -> A[I_YX, J]
"""

import itertools
from collections.abc import Iterator

from dragonscale.physics.notation import Array
from dragonscale.physics.sharding.layout import replicated_over
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.physics.sharding.reshard_step import Layout, Step, layout_of, moved_axes


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
    """Move minor axes of some dims to the minor ends of others, in any order (a chip can reorder what it sends), all in
    one collective; no dim both gives and takes."""
    del mesh
    now = layout_of(array)
    gifts = {dim: [held[-count:] for count in range(1, len(held) + 1)] for dim, held in now.items()}
    for givers in _subsets(tuple(now)):
        takers = [dim for dim in now if dim not in givers]
        for given in itertools.product(*(gifts[dim] for dim in givers)):
            axes = tuple(axis for part in given for axis in part)
            left = {dim: now[dim][: -len(part)] for dim, part in zip(givers, given, strict=True)}
            for chosen in itertools.permutations(takers, len(givers)):
                for orders in itertools.product(*(itertools.permutations(part) for part in given)):
                    gains = {dim: (*now[dim], *order) for dim, order in zip(chosen, orders, strict=True)}
                    yield _step("all_to_all", axes, array, now | left | gains)


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
    """Send blocks elsewhere: any layout whose every block lies within a block of this one, other than
    by a mere slice."""
    now = layout_of(array)
    free = tuple(axis for axis in mesh.axes if axis not in array.partial)
    for layout in _finer(tuple(now), now, free, mesh):
        if any(layout[dim][: len(held)] != held for dim, held in now.items()):
            yield _step("permute", moved_axes(now, layout, mesh), array, layout)


def _finer(dims: tuple[str, ...], now: Layout, free: tuple[str, ...], mesh: Mesh) -> Iterator[Layout]:
    """Every layout that splits each dim into a multiple of the parts it has now."""
    if not dims:
        yield {}
        return
    parts = mesh.size(*now[dims[0]])
    for axes in itertools.chain([()], _orders(free)):
        if mesh.size(*axes) % parts == 0:
            left = tuple(axis for axis in free if axis not in axes)
            for rest in _finer(dims[1:], now, left, mesh):
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


def walks(source: Array, target: Array, mesh: Mesh, most: int = 2) -> Iterator[tuple[Step, ...]]:
    """Every way from one layout to another with at most so many collectives, shortest first; no layout is visited
    twice."""
    todo: list[tuple[Array, tuple[Step, ...]]] = [(source, ())]
    for array, steps in todo:
        if array == target:
            yield steps
            continue
        spent = sum(not step.free for step in steps)
        seen = {step.before for step in steps}
        for step in moves(array, mesh):
            if step.after not in seen and (step.free or spent < most):
                todo.append((step.after, (*steps, step)))
