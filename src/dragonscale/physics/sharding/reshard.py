"""From one layout of an array to another, in collectives.

Five moves cover everything. A *slice* drops part of a copy and is free. An *all_gather* removes axes from a dim (only
its minor ones: the blocks must be neighbours). An *all_to_all* moves an axis from one dim to another. A *permute* sends
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

from dataclasses import dataclass, replace

from dragonscale.errors import InputError
from dragonscale.physics.collectives import wire_bytes
from dragonscale.physics.notation import Array
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
        after = self.array.with_layout(layout, self.array.partial if partial is None else partial)
        self.steps.append(Step(kind, axes, self.array, after))
        self.array = after

    def wanted_next(self, axis: str) -> str | None:
        """The dim that wants this axis next at its minor end."""
        for dim, axes in self.target.items():
            held = self.now[dim]
            if axes[: len(held)] == held and axes[len(held) : len(held) + 1] == (axis,):
                return dim
        return None

    def wanted_in(self, axis: str) -> str | None:
        """The dim that wants this axis at all."""
        return next((dim for dim, axes in self.target.items() if axis in axes), None)

    def in_place(self, dim: str) -> bool:
        """Whether what a dim holds is the major part of what it should hold."""
        return self.target[dim][: len(self.now[dim])] == self.now[dim]


def reshard(source: Array, target: Array, mesh: Mesh, prefer: str = "move") -> tuple[Step, ...]:
    """The moves from `source` to the layout of `target`.

    `prefer="move"` exchanges and sends axes where it can; `prefer="gather"` gathers and slices, sends only to finish,
    and makes partial sums whole before slicing them, which some compilers choose for small arrays. A walk of several
    collectives that prefers moving falls back on gathering where that sends less.
    """
    for axis in target.partial:
        if axis not in source.partial:
            raise InputError(f"{source} holds no partial sums over {axis}, so it cannot become {target}.")
    steps = _walk(source, target, mesh, prefer)
    if prefer == "move" and sum(not step.free for step in steps) > 1:
        other = _walk(source, target, mesh, "gather")
        return other if _sent(other, mesh) < _sent(steps, mesh) else steps
    return steps


def _walk(source: Array, target: Array, mesh: Mesh, prefer: str) -> tuple[Step, ...]:
    walk = _Walk(source, layout_of(target), mesh, [])
    _reduce(walk, target.partial, scatter=prefer == "move")
    while walk.now != walk.target:
        if not (
            _slice(walk) or _permute(walk) or (prefer == "move" and (_swap(walk) or _exchange(walk) or _reorder(walk)))
        ):
            _gather(walk)
    return tuple(_merged(walk.steps))


def _sent(steps: tuple[Step, ...], mesh: Mesh) -> float:
    """Bytes that each chip sends, in units of the whole array; 0 where the mesh has no plain sizes."""
    if not all(isinstance(size, int) for size in mesh.axes.values()):
        return 0.0
    unit = {dim.name: 1 for step in steps for dim in step.before.dims}
    moving = [step for step in steps if not step.free]
    return sum(wire_bytes(step.kind, step.volume(unit, mesh), mesh.size(*step.axes)) for step in moving)


def _reduce(walk: _Walk, keep: tuple[str, ...], scatter: bool) -> None:
    """Add up the partial sums that the target does not keep, straight into the dims that want the axis."""
    progress = scatter
    while progress:
        progress = False
        for axis in walk.array.partial:
            dim = None if axis in keep else walk.wanted_next(axis)
            if dim is not None:
                rest = tuple(other for other in walk.array.partial if other != axis)
                walk.go("reduce_scatter", (axis,), walk.now | {dim: (*walk.now[dim], axis)}, rest)
                progress = True
                break
    axes = tuple(axis for axis in walk.array.partial if axis not in keep)
    if axes:
        walk.go("all_reduce", axes, walk.now, tuple(axis for axis in walk.array.partial if axis in keep))


def _slice(walk: _Walk) -> bool:
    """Keep only part of a copy, where the target wants an axis that splits nothing yet."""
    idle = [axis for axis in walk.mesh.axes if axis not in (*walk.array.axes, *walk.array.partial)]
    for axis in idle:
        dim = walk.wanted_next(axis)
        if dim is not None:
            walk.go("slice", (axis,), walk.now | {dim: (*walk.now[dim], axis)})
            return True
    return False


def _permute(walk: _Walk) -> bool:
    """Finish in one send, if every chip's wanted block lies within a block that some chip holds: each dim is split into
    as many parts as it should be, or into a divisor of them (then only the wanted part of a block is sent)."""
    if any(not _divides(walk.now[dim], axes, walk.mesh) for dim, axes in walk.target.items()):
        return False
    return _send(walk, walk.target)


def _divides(now: tuple[str, ...], wanted: tuple[str, ...], mesh: Mesh) -> bool:
    """Whether blocks split over `wanted` lie within blocks split over `now`, whatever the sizes of the
    axes they share."""
    parts, whole = (mesh.size(*set(one) - set(other)) for one, other in ((now, wanted), (wanted, now)))
    if isinstance(parts, int) and isinstance(whole, int):
        return whole % parts == 0
    return all(axis in wanted for axis in now)


def _exchange(walk: _Walk) -> bool:
    """Move a dim's minor axes to the dim that wants them next, in the order it wants; failing that, the last axis to
    the dim that wants it at all, to be put in order later."""
    loose = [(dim, held) for dim, held in walk.now.items() if held and not walk.in_place(dim)]
    for dim, held in loose:
        for count in range(len(held), 0, -1):
            for other, wanted in walk.target.items():
                have = len(walk.now[other])
                order = wanted[have : have + count]
                if other != dim and walk.in_place(other) and set(order) == set(held[-count:]):
                    return _give(walk, dim, count, other, order)
    for dim, held in loose:
        wanting = walk.wanted_in(held[-1])
        if wanting is not None and wanting != dim:
            return _give(walk, dim, 1, wanting, held[-1:])
    return False


def _give(walk: _Walk, dim: str, count: int, other: str, order: tuple[str, ...]) -> bool:
    held = walk.now[dim]
    walk.go("all_to_all", held[-count:], walk.now | {dim: held[:-count], other: (*walk.now[other], *order)})
    return True


def _reorder(walk: _Walk) -> bool:
    """Bring the axes that a dim will keep to its major end, so that the others can be gathered or moved."""
    order: Layout = {}
    for dim, held in walk.now.items():
        kept = tuple(axis for axis in walk.target[dim] if axis in held)
        order[dim] = kept + tuple(axis for axis in held if axis not in kept)
    return _send(walk, order)


def _swap(walk: _Walk) -> bool:
    """One send after which only gathers remain: every wanted axis in its place, and unwanted axes of the same sizes
    where blocks are still to be gathered."""
    sizes = walk.mesh.size
    wanted = [axis for axes in walk.target.values() for axis in axes]
    spare = [axis for axis in walk.array.axes if axis not in wanted]
    if not all(isinstance(walk.mesh.axes[axis], int) for axis in (*wanted, *walk.array.axes)):
        return False
    order: Layout = {}
    for dim, held in walk.now.items():
        parts, ways = sizes(*held), sizes(*walk.target[dim])
        filling = [axis for axis in held if axis in spare] + [axis for axis in spare if axis not in held]
        chosen: tuple[str, ...] = ()
        for axis in filling:
            if parts % (ways * sizes(*chosen, axis)) == 0:
                chosen = (*chosen, axis)
        if ways * sizes(*chosen) != parts:
            return False
        spare = [axis for axis in spare if axis not in chosen]
        order[dim] = (*walk.target[dim], *chosen)
    return _send(walk, order)


def _send(walk: _Walk, layout: Layout) -> bool:
    """A permute to a layout, unless nothing changes."""
    if layout == walk.now:
        return False
    walk.go("permute", moved_axes(walk.now, layout, walk.mesh), layout)
    return True


def _gather(walk: _Walk) -> None:
    """Remove the minor axis of a dim that is not on its way."""
    dim = next(dim for dim in walk.now if walk.now[dim] and not walk.in_place(dim))
    held = walk.now[dim]
    walk.go("all_gather", held[-1:], walk.now | {dim: held[:-1]})


def _merged(steps: list[Step]) -> list[Step]:
    """Neighbouring moves of one kind as one collective over all their axes, which can then use all their wires."""
    merged: list[Step] = []
    for step in steps:
        last = merged[-1] if merged else None
        if last and last.kind == step.kind and (step.kind not in ("permute", "all_to_all") or _independent(last, step)):
            axes = (*step.axes, *last.axes) if step.kind == "all_gather" else (*last.axes, *step.axes)
            merged[-1] = replace(last, axes=axes, after=step.after)
        else:
            merged.append(step)
    return merged


def _independent(first: Step, second: Step) -> bool:
    """Whether two exchanges can be one: no dim both gives and takes axes."""
    if first.kind != "all_to_all":
        return False
    before, after = layout_of(first.before), layout_of(second.after)
    moves = [(layout_of(step.before), layout_of(step.after)) for step in (first, second)]
    gives = [dim for held, left in moves for dim in left if len(left[dim]) < len(held[dim])]
    return all(after[dim] == before[dim][: len(after[dim])] for dim in gives)
