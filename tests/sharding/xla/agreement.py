"""Does XLA do what the algebra says, and if not, which other legal thing does it do?

Each compiled einsum gets one verdict, the first that holds:

- `cheapest`: XLA uses the collectives of the algebra's cheapest strategy;
- `listed`: of another strategy that `derive` lists;
- `other walk`: of a strategy that is listed but for the way it brings an array from one layout to another, which is
  another walk through the graph of legal moves;
- `parts of axes`: the same once mesh axes are cut into their prime parts (over `X=8` XLA may gather pairs);
- `broadcast first`: the same where an operand is repeated along missing indices before it is moved, which XLA does
  where it turns an einsum without sums into elementwise products;
- `aborted`: XLA stopped on a failed check of its own;
- `unexplained`: none of these. (So far each such case was XLA computing wrong numbers: see `is_wrong`.)
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dragonscale.evidence.xla.collectives import Collective, read_collectives
from dragonscale.evidence.xla.device_groups import axis_parts, moved_axes, spanned_axes
from dragonscale.physics.notation import Array, Einsum
from dragonscale.physics.sharding.algebra import Strategy, derive, strategies
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.physics.sharding.reshard_step import Step, layout_of
from tests.sharding.xla.einsum_worker import Case, check_cases
from tests.sharding.xla.recognise import Seen, recognise

VERDICTS = ("cheapest", "listed", "other walk", "parts of axes", "broadcast first", "aborted", "unexplained")
Spelling = tuple[tuple[str, tuple[str, ...], float], ...]
"""Collectives as kind, axes and volume, in order of these."""


@dataclass(frozen=True)
class Verdict:
    """How XLA's collectives relate to the algebra's, and the bytes each chip sends in XLA's and in the cheapest way."""

    how: str
    strategy: Strategy | None
    seen: tuple[Collective, ...]
    wire: float
    cheapest_wire: float

    @property
    def relative(self) -> str:
        """Whether XLA sends `less`, `equal` or `more` bytes than the algebra's cheapest strategy."""
        if math.isclose(self.wire, self.cheapest_wire):
            return "equal"
        return "less" if self.wire < self.cheapest_wire else "more"


def judge(case: Case, hlo: str | None) -> Verdict:
    """The verdict on one compiled einsum."""
    mesh = Mesh(dict(case.mesh))
    listed = strategies(case.line, case.sizes, mesh)
    cheapest = listed[0].wire_bytes(case.sizes, mesh)
    if hlo is None:
        return Verdict("aborted", None, (), cheapest, cheapest)
    found = read_collectives(hlo)
    how, strategy = _verdict(case, mesh, found, listed)
    return Verdict(how, strategy, tuple(found), sum(each.wire_bytes for each in found), cheapest)


def _verdict(case: Case, mesh: Mesh, found: list[Collective], listed: list[Strategy]) -> tuple[str, Strategy | None]:
    spelled = _spell(found, case.mesh)
    for strategy in [*listed, *derive(case.line, mesh, prefer="gather")] if spelled is not None else []:
        if spelled in _spellings(strategy, case.sizes, mesh):
            return "cheapest" if strategy is listed[0] else "listed", strategy
    cut, cut_mesh = cut_line(case.line, mesh)
    for broadcast in (False, True):
        for name, line, over in (("other walk", case.line, mesh), ("parts of axes", cut, cut_mesh)):
            seen = seen_over(found, over.axes)
            for anywhere in (False, True) if seen is not None else ():
                strategy = recognise(line, case.sizes, over, seen or [], anywhere, broadcast)
                if strategy is not None:
                    return "broadcast first" if broadcast else name, strategy
    return "unexplained", None


def _spell(found: list[Collective], axes: dict[str, int]) -> Spelling | None:
    spelled = []
    for each in found:
        spanned = moved_axes(each.groups, axes) if each.kind == "permute" else spanned_axes(each.groups, axes)
        if spanned is None:
            return None
        spelled.append((each.kind, spanned, float(each.volume)))
    return tuple(sorted(spelled))


def _spellings(strategy: Strategy, sizes: dict[str, int], mesh: Mesh) -> set[Spelling]:
    """A strategy's collectives; one that gathers or scatters several dims at once, also dim by dim in any order."""
    order = list(mesh.axes)
    ways = [
        [
            [(each.kind, tuple(sorted(each.axes, key=order.index)), float(each.volume(sizes, mesh))) for each in way]
            for way in _by_dim(step)
        ]
        for step in strategy.collectives
    ]
    return {tuple(sorted(itertools.chain(*chosen))) for chosen in itertools.product(*ways)}


def _by_dim(step: Step) -> Iterator[list[Step]]:
    yield [step]
    before, after = layout_of(step.before), layout_of(step.after)
    changed = [dim for dim in before if before[dim] != after[dim]]
    if step.kind not in ("all_gather", "reduce_scatter") or len(changed) < 2:
        return
    for dims in itertools.permutations(changed):
        way: list[Step] = []
        array = step.before
        for dim in dims:
            axes = tuple(axis for axis in step.axes if (axis in before[dim]) != (axis in after[dim]))
            partial = tuple(axis for axis in array.partial if axis not in axes)
            then = array.with_layout(layout_of(array) | {dim: after[dim]}, partial)
            way.append(Step(step.kind, axes, array, then))
            array = then
        yield way


def seen_over(found: list[Collective], axes: dict[str, int]) -> list[Seen] | None:
    """The collectives in the words of `recognise`, or None where groups do not follow these axes."""
    chips = math.prod(axes.values())
    seen: list[Seen] = []
    for each in found:
        if each.kind == "permute":
            sources = {target: source for source, target in each.groups}
            if len(sources) != chips:
                return None
            order = tuple(sources[chip] for chip in range(chips))
            seen.append(Seen("permute", moved_axes(each.groups, axes), each.sent.bytes, order))
        else:
            spanned = spanned_axes(each.groups, axes)
            if spanned is None:
                return None
            seen.append(Seen(each.kind, spanned, each.sent.bytes))
    return seen


def cut_line(line: Einsum, mesh: Mesh) -> tuple[Einsum, Mesh]:
    """The same einsum over a mesh whose axes are cut into their prime parts.

    >>> from dragonscale.physics.notation import parse_einsum
    >>> line, mesh = cut_line(parse_einsum("A[I_X, J] @ B[J, K] -> C[I_X, K]"), Mesh({"X": 4}))
    >>> print(line, mesh.axes)
    A[I_X1X2, J] · B[J, K] -> C[I_X1X2, K] {'X1': 2, 'X2': 2}
    """
    parts = axis_parts(mesh.axes)

    def cut(array: Array) -> Array:
        dims = [replace(dim, axes=tuple(part for axis in dim.axes for part in parts[axis])) for dim in array.dims]
        partial = tuple(part for axis in array.partial for part in parts[axis])
        return replace(array, dims=tuple(dims), partial=partial)

    sizes = {part: size for axis in parts for part, size in parts[axis].items()}
    return Einsum(tuple(cut(array) for array in line.operands), cut(line.output)), Mesh(sizes)


def is_wrong(case: Case) -> bool:
    """Whether XLA's own partitioning of a case gives wrong numbers when run on virtual CPU devices, at small sizes."""
    arrays = (*case.line.operands, case.line.output)
    splits = {index: {axis for array in arrays for axis in layout_of(array).get(index, ())} for index in case.sizes}
    small = {index: 2 * math.prod(case.mesh[axis] for axis in axes) for index, axes in splits.items()}
    return check_cases([replace(case, sizes=small)])[0] is False
