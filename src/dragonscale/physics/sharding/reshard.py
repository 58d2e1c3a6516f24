"""Resharding: from one layout of an array to another, in collectives.

Five moves are enough. A *slice* drops part of a copy and is free. An *all_gather* removes axes from a dim (only its
minor ones: the blocks must be neighbours). An *all_to_all* moves an axis from one dim to another. A *permute* sends
whole blocks to other chips, which reorders axes (`I_XY` to `I_YX`) or exchanges equal ones (`I_X` to `I_Y`). Partial
sums become whole by an *all_reduce*, or by a *reduce_scatter* where the result may be split over the same axes.

>>> from dragonscale.physics.notation import parse_array
>>> mesh = Mesh({"X": 4, "Y": 8})
>>> def show(source, target):
...     return [str(step) for step in reshard(parse_array(source), parse_array(target), mesh)]
>>> show("A[I_X, J]", "A[I, J]")
['all_gather_X A[I_X, J] -> A[I, J]']
>>> show("A[I_X, J]", "A[I, J_X]")
['all_to_all_X A[I_X, J] -> A[I, J_X]']
>>> show("C[I, J]{U_Y}", "C[I, J_Y]")
['reduce_scatter_Y C[I, J]{U_Y} -> C[I, J_Y]']
>>> show("A[I_XY, J]", "A[I_Y, J]")
['permute_XY A[I_XY, J] -> A[I_YX, J]', 'all_gather_X A[I_YX, J] -> A[I_Y, J]']
"""

import itertools
from dataclasses import dataclass, replace

from dragonscale.errors import InputError
from dragonscale.physics.notation import Array
from dragonscale.physics.notation.array import without
from dragonscale.physics.sharding.layout import Sizes
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.physics.sharding.reshard_step import Layout, Step, layout_of, moved_axes


@dataclass
class _Walk:
    """An array on its way to a target layout."""

    array: Array
    target: Layout
    mesh: Mesh
    steps: list[Step]

    @property
    def now(self) -> Layout:
        return layout_of(self.array)

    def go(self, kind: str, axes: tuple[str, ...], layout: Layout, partial: tuple[str, ...] | None = None) -> None:
        """Take a step to another layout; partial sums stay unless `partial` says which are left."""
        if partial is None:
            partial = self.array.partial
        after = self.array.with_layout(layout, partial)
        self.steps.append(Step(kind, axes, self.array, after))
        self.array = after

    def wanted_next(self, axis: str) -> str | None:
        """The dim whose next minor axis in the target layout is this one."""
        for dim, axes in self.target.items():
            count = len(self.now[dim])
            if self.in_place(dim) and axes[count : count + 1] == (axis,):
                return dim
        return None

    def in_place(self, dim: str) -> bool:
        """Whether the axes of a dim are the major ones of its target."""
        return self.target[dim][: len(self.now[dim])] == self.now[dim]


def reshard(source: Array, target: Array, mesh: Mesh, prefer: str = "move") -> tuple[Step, ...]:
    """The moves from `source` to the layout of `target`.

    `prefer="move"` exchanges and permutes axes where it can. `prefer="gather"` gathers and slices, permutes only to
    finish, and makes partial sums whole before slicing them, as some compilers do for small arrays. Where moving takes
    several collectives and gathering sends fewer bytes, gathering is chosen anyway.
    """
    for axis in target.partial:
        if axis not in source.partial:
            raise InputError(f"{source} holds no partial sums over {axis}, so it cannot become {target}.")
    steps = _walk(source, target, mesh, prefer)
    if prefer == "move" and sum(not step.free for step in steps) > 1:
        gathering = _walk(source, target, mesh, "gather")
        if _sent(gathering, mesh) < _sent(steps, mesh):
            return gathering
    return steps


def _walk(source: Array, target: Array, mesh: Mesh, prefer: str) -> tuple[Step, ...]:
    walk = _Walk(source, layout_of(target), mesh, [])
    _reduce(walk, target.partial, scatter=prefer == "move")
    # the cheapest moves first; every move but a gather says whether it was possible, and a gather always is
    moves = [_slice, _permute]
    if prefer == "move":
        moves += [_swap, _exchange, _reorder]
    while walk.now != walk.target:
        if not any(move(walk) for move in moves):
            _gather(walk)
    return tuple(_merged(walk.steps))


def _sent(steps: tuple[Step, ...], mesh: Mesh) -> float:
    """Bytes that each chip sends, in units of the whole array; 0 where the mesh has no plain sizes."""
    if not isinstance(mesh.chips, int):
        return 0.0
    unit_sizes: Sizes = dict.fromkeys(steps[0].before.names, 1)
    return sum(step.wire_bytes(unit_sizes, mesh) for step in steps)


def _reduce(walk: _Walk, keep: tuple[str, ...], scatter: bool) -> None:
    """Sum the partial sums that the target does not keep, with `scatter` straight into the dims that want the axis."""
    while scatter and _reduce_scatter(walk, keep):
        pass
    axes = without(walk.array.partial, keep)
    if axes:
        walk.go("all_reduce", axes, walk.now, without(walk.array.partial, axes))


def _reduce_scatter(walk: _Walk, keep: tuple[str, ...]) -> bool:
    """Scatter one partial sum into the dim that wants its axis next; whether there was one."""
    for axis in walk.array.partial:
        dim = walk.wanted_next(axis)
        if axis not in keep and dim is not None:
            layout = walk.now | {dim: (*walk.now[dim], axis)}
            walk.go("reduce_scatter", (axis,), layout, without(walk.array.partial, (axis,)))
            return True
    return False


def _slice(walk: _Walk) -> bool:
    """Drop part of a copy, where the target wants an axis that splits nothing yet."""
    used = {*walk.array.axes, *walk.array.partial}
    for axis in walk.mesh.axes:
        dim = walk.wanted_next(axis)
        if axis not in used and dim is not None:
            walk.go("slice", (axis,), walk.now | {dim: (*walk.now[dim], axis)})
            return True
    return False


def _permute(walk: _Walk) -> bool:
    """Finish in one permute, if every chip's target block lies within a block that some chip holds: each dim is split
    into as many blocks as in the target, or into a divisor of them (then only part of a block is sent)."""
    for dim, axes in walk.target.items():
        if not _divides(walk.now[dim], axes, walk.mesh):
            return False
    return _send(walk, walk.target)


def _divides(now: tuple[str, ...], wanted: tuple[str, ...], mesh: Mesh) -> bool:
    """Whether blocks split over `wanted` lie within blocks split over `now`, whatever the sizes of the
    axes they share."""
    now_blocks, wanted_blocks = mesh.size(*set(now) - set(wanted)), mesh.size(*set(wanted) - set(now))
    if isinstance(now_blocks, int) and isinstance(wanted_blocks, int):
        return wanted_blocks % now_blocks == 0
    return set(now) <= set(wanted)


def _exchange(walk: _Walk) -> bool:
    """Move a dim's minor axes to the dim that wants them next, in the order it wants; failing that, the last axis to
    the dim that wants it at all, to be put in order later."""
    misplaced = {dim: axes for dim, axes in walk.now.items() if axes and not walk.in_place(dim)}
    for dim, axes in misplaced.items():
        for count in range(len(axes), 0, -1):  # as many axes at once as possible
            for other, wanted in walk.target.items():
                present = len(walk.now[other])
                order = wanted[present : present + count]
                if other != dim and walk.in_place(other) and set(order) == set(axes[-count:]):
                    return _all_to_all(walk, dim, other, order)
    for dim, axes in misplaced.items():
        for other, wanted in walk.target.items():
            if axes[-1] in wanted and other != dim:
                return _all_to_all(walk, dim, other, axes[-1:])
    return False


def _all_to_all(walk: _Walk, dim: str, other: str, order: tuple[str, ...]) -> bool:
    """Move the minor axes of a dim, in some order, to the minor end of another dim."""
    axes, count = walk.now[dim], len(order)
    walk.go("all_to_all", axes[-count:], walk.now | {dim: axes[:-count], other: (*walk.now[other], *order)})
    return True


def _reorder(walk: _Walk) -> bool:
    """Permute the axes that a dim will keep to its major end, so that the others can be gathered or moved."""
    layout: Layout = {}
    for dim, axes in walk.now.items():
        staying = tuple(axis for axis in walk.target[dim] if axis in axes)
        layout[dim] = staying + without(axes, staying)
    return _send(walk, layout)


def _swap(walk: _Walk) -> bool:
    """One permute after which only gathers remain: every target axis in its place, and unwanted axes behind them where
    a dim has more blocks than its target."""
    size = walk.mesh.size
    wanted = tuple(itertools.chain.from_iterable(walk.target.values()))
    unwanted = without(walk.array.axes, wanted)
    if not isinstance(size(*wanted, *unwanted), int):
        return False  # symbols: whether one layout has as many blocks as the other is not known
    layout: Layout = {}
    for dim, axes in walk.now.items():
        blocks, target_blocks = size(*axes), size(*walk.target[dim])
        # fill up to the present number of blocks with unwanted axes, first those that the dim has already
        candidates = sorted(unwanted, key=lambda axis: axes.index(axis) if axis in axes else len(axes))
        fillers: tuple[str, ...] = ()
        for axis in candidates:
            if blocks % (target_blocks * size(*fillers, axis)) == 0:
                fillers = (*fillers, axis)
        if target_blocks * size(*fillers) != blocks:
            return False
        unwanted = without(unwanted, fillers)
        layout[dim] = (*walk.target[dim], *fillers)
    return _send(walk, layout)


def _send(walk: _Walk, layout: Layout) -> bool:
    """Permute blocks to a layout, unless nothing changes."""
    if layout == walk.now:
        return False
    walk.go("permute", moved_axes(walk.now, layout, walk.mesh), layout)
    return True


def _gather(walk: _Walk) -> None:
    """Gather the minor axis of a dim whose axes are not those of its target."""
    # there is one: slices, which are tried first, bring all dims whose axes are in place to their targets
    dim = next(dim for dim in walk.now if walk.now[dim] and not walk.in_place(dim))
    axes = walk.now[dim]
    walk.go("all_gather", axes[-1:], walk.now | {dim: axes[:-1]})


def _merged(steps: list[Step]) -> list[Step]:
    """Neighbouring moves of one kind as one collective over all their axes, which can then use all their wires."""
    merged: list[Step] = []
    for step in steps:
        last = merged[-1] if merged else None
        if last is None or not _can_merge(last, step):
            merged.append(step)
            continue
        # gathers remove minor axes first, so the later one is the major
        axes = (*step.axes, *last.axes) if step.kind == "all_gather" else (*last.axes, *step.axes)
        merged[-1] = replace(last, axes=axes, after=step.after)
    return merged


def _can_merge(first: Step, second: Step) -> bool:
    """Whether two consecutive moves are one collective: of one kind, and of two AllToAlls no dim both loses and gains
    axes."""
    if first.kind != second.kind or first.kind == "permute":
        return False
    if first.kind != "all_to_all":
        return True
    before, after = layout_of(first.before), layout_of(second.after)
    for step in (first, second):
        for dim, axes in layout_of(step.after).items():
            loses_axes = len(axes) < len(layout_of(step.before)[dim])
            if loses_axes and after[dim] != before[dim][: len(after[dim])]:
                return False
    return True
