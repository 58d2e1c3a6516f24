"""Which alternative is this? From the collectives that a compiler used back to a strategy of the algebra.

The alternatives of an einsum are many: every way to split it, times every walk of moves that brings an array from one
layout to another. So they are not all written out; the collectives themselves guide the search. Starting from each
operand's layout, a move is tried only if it is one of the collectives seen, with its kind, its mesh axes and its bytes,
and a copy is sliced only as far as those bytes demand. Two operands that meet in compatible layouts give the local
einsum, and its raw result must reach the wanted layout with exactly the collectives that are left.

>>> from dragonscale.physics.notation import parse_einsum
>>> line = parse_einsum("A[I_X, J] @ B[J, K_X] -> C[I, K_X]")
>>> sizes, mesh = {"I": 8, "J": 8, "K": 8}, Mesh({"X": 4})
>>> strategy = recognise(line, sizes, mesh, [Seen("all_gather", ("X",), 32)])
>>> [str(step) for step in strategy.collectives]
['all_gather_X A[I_X, J] -> A[I, J]']
>>> recognise(line, sizes, mesh, [Seen("all_reduce", ("X",), 32)]) is None
True
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dragonscale.physics.notation import Array, Dim, Einsum
from dragonscale.physics.sharding.algebra import Strategy
from dragonscale.physics.sharding.layout import Sizes, block_of, local_bytes, replicated_over
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.physics.sharding.reshard_step import Layout, Step, layout_of

Places = tuple[tuple[int, ...], ...]
"""For each mesh axis, the coordinate of every chip; for a permute, of the chip that each chip receives from."""
MAX_STATES = 20_000


@dataclass(frozen=True)
class Seen:
    """A collective somebody used: its kind, the mesh axes of its groups, and the bytes each chip passes in.

    A permute has the position of each chip's source instead of axes.
    """

    kind: str
    axes: tuple[str, ...]
    sent: float
    sources: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Walk:
    """An array on its way, with the steps so far and which of the seen collectives they used."""

    array: Array
    used: frozenset[int] = frozenset()
    steps: tuple[Step, ...] = ()

    def then(self, *steps: Step, use: frozenset[int] = frozenset()) -> "_Walk":
        return _Walk(steps[-1].after if steps else self.array, self.used | use, self.steps + steps)


def recognise(
    line: Einsum, sizes: Sizes, mesh: Mesh, seen: list[Seen], anywhere: bool = False, broadcast: bool = False
) -> Strategy | None:
    """A strategy that uses exactly the collectives seen, or None.

    Copies are sliced along an axis only in dims that some array of the line splits over it, or `anywhere`. With
    `broadcast`, an operand may be repeated along the indices it lacks before it is moved.
    """
    search = _Search(line, sizes, mesh, seen, anywhere, broadcast)
    lefts, rights = (search.walks(array) for array in line.operands)
    for left in lefts:
        for right in rights:
            if left.used & right.used:
                continue
            met = _meet(line, left, right, mesh)
            after = met and search.finish(met.local.output, left.used | right.used)
            if met and after:
                return Strategy(met.before, met.local, after.steps, met.replicated)
    return None


def _meet(line: Einsum, left: _Walk, right: _Walk, mesh: Mesh) -> Strategy | None:
    """The local einsum of two operands, sliced where one has more of an index's axes than the other."""
    split: Layout = {}
    for array in (left.array, right.array):
        for dim, axes in layout_of(array).items():
            known = split.setdefault(dim, axes)
            short, long = sorted((known, axes), key=len)
            if long[: len(short)] != short:
                return None
            split[dim] = long
    axes = [axis for held in split.values() for axis in held]
    if len(axes) != len(set(axes)):
        return None
    before = [step for walk in (left, right) for step in (*walk.steps, *_slices_to(walk.array, split))]
    operands = tuple(walk.array.with_layout(split) for walk in (left, right))
    summed = tuple(axis for index in line.contracted for axis in split.get(index, ()))
    raw = line.output.with_layout(split, summed)
    return Strategy(tuple(before), Einsum(operands, raw), (), tuple(axis for axis in mesh.axes if axis not in axes))


def _slices_to(array: Array, target: Layout) -> list[Step]:
    """The slice from a layout to a finer one."""
    now = layout_of(array)
    missing = tuple(axis for dim, held in now.items() for axis in target.get(dim, ())[len(held) :])
    return [Step("slice", missing, array, array.with_layout(target, array.partial))] if missing else []


class _Search:
    """The walks that the collectives seen allow."""

    def __init__(
        self, line: Einsum, sizes: Sizes, mesh: Mesh, seen: list[Seen], anywhere: bool, broadcast: bool
    ) -> None:
        self.line, self.sizes, self.mesh, self.seen, self.broadcast = line, sizes, mesh, seen, broadcast
        arrays = (*line.operands, line.output)
        self.homes = {
            axis: [dim for dim in line.indices if anywhere or any(axis in layout_of(a).get(dim, ()) for a in arrays)]
            for axis in mesh.axes
        }
        self.places = _coordinates(mesh)
        self.finished: dict[tuple[Array, frozenset[int]], _Walk | None] = {}

    def walks(self, start: Array, used: frozenset[int] = frozenset()) -> list[_Walk]:
        """Every walk from a layout with the collectives not yet used; shorter ones first."""
        found = {(start, used): _Walk(start, used)}
        todo = list(found.values())
        for walk in todo:
            for place, seen in enumerate(self.seen):
                if place in walk.used:
                    continue
                for step in self.consume(walk.array, seen):
                    further = walk.then(*step, use=frozenset((place,)))
                    if (further.array, further.used) not in found and len(found) < MAX_STATES:
                        found[further.array, further.used] = further
                        todo.append(further)
        return todo

    def finish(self, raw: Array, used: frozenset[int]) -> _Walk | None:
        """A walk from the raw result to the wanted output with all that is left."""
        key = (raw, used)
        if key not in self.finished:
            self.finished[key] = None
            wanted = layout_of(self.line.output)
            for walk in self.walks(raw, used):
                now = layout_of(walk.array)
                reached = all(wanted[dim][: len(axes)] == axes for dim, axes in now.items()) and not walk.array.partial
                if reached and len(walk.used) == len(self.seen):
                    self.finished[key] = walk.then(*_slices_to(walk.array, wanted))
                    break
        return self.finished[key]

    def consume(self, array: Array, seen: Seen) -> Iterator[tuple[Step, ...]]:
        """Every way to read a collective as a move of this array, sliced first as far as its bytes demand."""
        for wide in dict.fromkeys((array, self.widened(array))):
            ratio = local_bytes(wide, self.sizes, self.mesh) / seen.sent
            for sliced in self.sliced(wide, int(ratio)) if ratio >= 1 and ratio == int(ratio) else ():
                for after in _READINGS[seen.kind](self, sliced, seen):
                    cut = (Step("slice", _added(array, sliced), array, sliced),) if sliced != array else ()
                    yield (*cut, Step(seen.kind, seen.axes, sliced, after))

    def widened(self, array: Array) -> Array:
        """An operand repeated along the indices it lacks, where that is allowed."""
        if not self.broadcast or array.name == self.line.output.name:
            return array
        missing = [index for index in self.line.indices if index not in array.names]
        return replace(array, dims=(*array.dims, *(Dim(index) for index in missing)))

    def sliced(self, array: Array, ratio: int) -> Iterator[Array]:
        """Every finer layout of an array with `ratio` times as many blocks, parts of one axis in order."""
        if ratio == 1:
            yield array
            return
        now = layout_of(array)
        for axis in replicated_over(array, self.mesh):
            size = self.mesh.axes[axis]
            if ratio % size == 0:
                for dim in (dim for dim in now if dim in self.homes[axis]):
                    if self.sizes[dim] % self.mesh.size(*now[dim], axis) == 0:
                        finer = array.with_layout(now | {dim: (*now[dim], axis)}, array.partial)
                        yield from self.sliced(finer, ratio // size)

    def gathered(self, array: Array, seen: Seen) -> Iterator[Array]:
        now = layout_of(array)
        for dim, held in now.items():
            if set(held[-len(seen.axes) :]) == set(seen.axes):
                yield array.with_layout(now | {dim: held[: -len(seen.axes)]}, array.partial)

    def exchanged(self, array: Array, seen: Seen) -> Iterator[Array]:
        now = layout_of(array)
        given = {dim: _minor(held, seen.axes) for dim, held in now.items()}
        if {axis for axes in given.values() for axis in axes} != set(seen.axes):
            return
        givers = [dim for dim in now if given[dim]]
        takers = [dim for dim in now if not given[dim]]
        left = now | {dim: now[dim][: -len(given[dim])] for dim in givers}
        for chosen in itertools.product(takers, repeat=len(givers)):
            if len(set(chosen)) == len(chosen):
                orders = [itertools.permutations(given[dim]) for dim in givers]
                for taken in itertools.product(*orders):
                    gains = {dim: (*now[dim], *axes) for dim, axes in zip(chosen, taken, strict=True)}
                    yield array.with_layout(left | gains, array.partial)

    def scattered(self, array: Array, seen: Seen) -> Iterator[Array]:
        now = layout_of(array)
        if set(seen.axes) <= set(array.partial):
            rest = tuple(axis for axis in array.partial if axis not in seen.axes)
            for dim, order in itertools.product(now, itertools.permutations(seen.axes)):
                yield array.with_layout(now | {dim: (*now[dim], *order)}, rest)

    def reduced(self, array: Array, seen: Seen) -> Iterator[Array]:
        if set(seen.axes) <= set(array.partial):
            rest = tuple(axis for axis in array.partial if axis not in seen.axes)
            yield array.with_layout(layout_of(array), rest)

    def permuted(self, array: Array, seen: Seen) -> Iterator[Array]:
        """The layout that a permute leaves, if it leaves one: each chip now holds its source's block of every dim."""
        layout: Layout = {}
        for dim, held in layout_of(array).items():
            blocks = [block_of(held, {a: self.places[a][s] for a in held}, self.mesh) for s in seen.sources]
            axes = self.axes_of(blocks, self.mesh.size(*held))
            if axes is None or any(axis in array.partial for axis in axes):
                return
            layout[dim] = axes
        yield array.with_layout(layout, array.partial)

    def axes_of(self, blocks: list[int], parts: int) -> tuple[str, ...] | None:
        """The axes, major first, along which chips hold these blocks of a dim in so many parts."""
        if parts == 1:
            return ()
        for axis, place in self.places.items():
            size = self.mesh.axes[axis]
            if parts % size == 0 and all(block * size // parts == at for block, at in zip(blocks, place, strict=True)):
                rest = self.axes_of([block % (parts // size) for block in blocks], parts // size)
                return None if rest is None else (axis, *rest)
        return None


def _coordinates(mesh: Mesh) -> dict[str, tuple[int, ...]]:
    table = itertools.product(*(range(size) for size in mesh.axes.values()))
    return dict(zip(mesh.axes, zip(*table, strict=True), strict=True))


def _minor(held: tuple[str, ...], axes: tuple[str, ...]) -> tuple[str, ...]:
    """The longest minor part of a dim's axes that lies within `axes`."""
    place = len(held)
    while place and held[place - 1] in axes:
        place -= 1
    return held[place:]


def _added(before: Array, after: Array) -> tuple[str, ...]:
    return tuple(axis for axis in after.axes if axis not in before.axes)


_READINGS = {
    "all_gather": _Search.gathered,
    "all_to_all": _Search.exchanged,
    "reduce_scatter": _Search.scattered,
    "all_reduce": _Search.reduced,
    "permute": _Search.permuted,
}
