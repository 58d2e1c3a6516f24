"""What a sharded einsum needs: local shapes, collectives, bytes and times, in every legal way, forward and backward.

A strategy asks three resources for time: the matrix unit, HBM and the network. The slowest is the lower bound and is
named. Collectives are counted exactly, as `dscale collective` does; the book's first-order figure stands beside.

Where the blocks of one array lie: which part of it each chip of the mesh holds.

Chips are numbered along the mesh's axes, the last one fastest, as `jax.make_mesh` numbers virtual devices.

Mesh axes that split nothing: chips along them repeat the work of others, and their links could help a gather.
"""

import itertools
import re
from typing import Any, ClassVar

import msgspec

from dragonscale.commands.record import Record
from dragonscale.commands.roofline_report import prepare
from dragonscale.course.closed_forms.spread import spread_gather
from dragonscale.errors import InputError, shorten
from dragonscale.physics.collectives import BOOK, EXACT, collective_time, wire_bytes
from dragonscale.physics.notation import Array, Dim, parse_chain
from dragonscale.physics.numbers import Number, is_symbolic
from dragonscale.physics.sharding.algebra import Strategy, book_case
from dragonscale.physics.sharding.chain import PlannedEinsum, collectives, passes
from dragonscale.physics.sharding.layout import Sizes, block_of, local_bytes, local_shape, replicated_over, total_bytes
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.physics.sharding.partition_spec import partition_spec_text
from dragonscale.physics.sharding.reshard_step import Step
from dragonscale.physics.units import render

# A number, or a formula while sizes are open.
Value = float | str


class ArrayRow(msgspec.Struct):
    """One array: as laid out, what each chip holds of it, what all chips hold, and how many replicas those make."""

    array: str
    local_shape: list[int | str]
    local_bytes: Value
    total_bytes: Value
    replicas: int


class MoveRow(msgspec.Struct):
    """One collective; `when` is before or after the einsum, `book_s` the time without the (N-1)/N."""

    when: str
    collective: str
    axes: list[str]
    array: str
    result: str
    bytes: Value
    wire_bytes_per_chip: Value
    seconds: Value | None
    book_s: Value | None
    spread_over: list[str] = []
    """Mesh axes that hold copies: sliced over them first, which is free, a gather uses their links as well."""
    spread_s: float | None = None


class StrategyRow(msgspec.Struct):
    """One way to do it: its collectives in order, the local einsum, and the time of each resource."""

    collectives: list[MoveRow]
    free_slices: list[str]
    local: str
    computes: bool
    flops_per_chip: Value
    hbm_read_bytes_per_chip: Value
    hbm_written_bytes_per_chip: Value
    hbm_bytes_per_chip: Value
    repeated_over: list[str]
    wire_bytes_per_chip: Value
    math_s: Value | None
    hbm_s: Value | None
    comms_s: Value | None
    lower_s: Value | None
    upper_s: Value | None
    bound_by: str | None
    flops_all_chips: Value = 0.0
    """Of all chips together: more than the einsum's own where an axis splits nothing."""


class LineReport(msgspec.Struct):
    """One einsum: its case in the book, its arrays, and the ways to do it, cheapest first."""

    einsum: str
    book_case: int
    arrays: list[ArrayRow]
    strategies: list[StrategyRow]
    more_ways: int = 0
    """Legal ways that are not listed."""


class BlockRow(msgspec.Struct):
    """One chip: its number, its place on each mesh axis, and what it holds of each dim."""

    chip: int
    at: dict[str, int]
    holds: list[str]


class ShardReport(Record):
    """Every einsum of the expression, forward and backward, with its ways; of one array alone, where its blocks lie."""

    ROWS: ClassVar[str] = "forward_collectives"
    CHARTS: ClassVar[tuple[str, ...]] = ("bars", "mesh")

    expression: str
    mesh: dict[str, int]
    on: str
    sizes: dict[str, int]
    free: list[str]
    forward: list[LineReport]
    backward: list[LineReport]
    forward_collectives: list[MoveRow]
    backward_collectives: list[MoveRow]
    advice: str
    blocks: list[BlockRow] = []
    partition_spec: str = ""
    repeats: str = ""
    """That chips repeat the work of others, where a mesh axis splits nothing."""

    @property
    def best(self) -> list[StrategyRow]:
        """The cheapest way of each einsum of the forward pass."""
        return [line.strategies[0] for line in self.forward]

    def headline(self) -> str:
        return f"{self.expression}: {self.advice}"


def shown(value: Number) -> Value:
    """A number as such, a formula as text."""
    if not is_symbolic(value):
        return float(value)
    import sympy

    if not value.has(sympy.Max):
        value = sympy.nsimplify(sympy.simplify(value), rational=True)
    if value.is_number:
        return float(value)
    return str(value)


# Ways that are shown of a single einsum; of a chain it is the cheapest of each.
WAYS = 3


def shard_report(
    expression: str,
    mesh: Mesh,
    on: str,
    sizes: dict[str, int] | None = None,
    max_ways: int | None = None,
    both: bool = True,
) -> ShardReport:
    """Everything about `A[I_X, J] @ B[J_X, K] -> C[I, K]` on a mesh; the backward pass too where
    `both` are asked for."""
    if re.search(r"\]\s*\+", expression):
        rule = "a sum is done where its operands lie, if these lie alike"
        raise InputError(
            f"{shorten(expression)} adds; {rule}: `dscale roofline` times it, a product (·) is sharded here."
        )
    einsum = prepare(expression, sizes or {})
    line, all_sizes, free = einsum.line, einsum.sizes, einsum.free
    for axis in line.axes:
        if axis not in mesh.axes:
            has = ", ".join(f"{name}={size}" for name, size in mesh.axes.items()) or "no axes"
            raise InputError(
                f"The expression uses the mesh axis {axis}, but the mesh has {has}; add {axis}=… to --mesh."
            )
    chain = parse_chain(expression)
    # of a chain only the cheapest way of each einsum is of interest
    max_ways = max_ways or (WAYS if len(chain) == 1 else 1)
    there, back = passes(chain, all_sizes, mesh, EXACT)
    if not both:
        back = []
    forward = [line_report(planned, all_sizes, mesh, max_ways) for planned in there]
    report = ShardReport(
        expression=str(line),
        mesh={name: int(size) for name, size in mesh.axes.items()},
        on=on,
        sizes={name: int(size) for name, size in all_sizes.items() if name not in free},
        free=free,
        forward=forward,
        backward=[line_report(planned, all_sizes, mesh, max_ways) for planned in back],
        forward_collectives=_pass(there, all_sizes, mesh),
        backward_collectives=_pass(back, all_sizes, mesh),
        advice="",
        repeats=_repeats(forward, mesh),
    )
    report.advice = _advice(report)
    if len(line.operands) == 1 and not re.search("->|→", expression):  # an array alone
        _lay_out(report, line.operands[0], all_sizes, mesh)
    return report


def _lay_out(report: ShardReport, array: Array, sizes: dict[str, Number], mesh: Mesh) -> None:
    """One array and no arrow asks where it lies; nothing moves."""
    report.expression, report.backward, report.partition_spec = str(array), [], partition_spec_text(array)
    report.forward = [msgspec.structs.replace(line, arrays=line.arrays[:1]) for line in report.forward]
    report.blocks = block_rows(array, sizes, mesh)
    over = replicated_over(array, mesh)
    parts: list[str] = []
    if over:
        parts.append(f"Every block lies on {int(mesh.size(*over))} chips, replicated over {', '.join(over)}")
    if array.partial:
        parts.append(f"the chips along {', '.join(array.partial)} hold partial sums")
    layout = "; ".join(parts) or "Every block lies on one chip"
    report.advice = f"{layout[0].upper()}{layout[1:]}; '{array} -> …' tells what another layout costs."


def line_report(planned: PlannedEinsum, sizes: dict[str, Number], mesh: Mesh, max_ways: int) -> LineReport:
    """One einsum on a mesh."""
    line = planned.line
    arrays = (*line.operands, line.output)
    rows: list[ArrayRow] = []
    for array in arrays:
        # open sizes are formulas
        shape = [size if isinstance(size, int) else str(size) for size in local_shape(array, sizes, mesh)]
        local, total = shown(local_bytes(array, sizes, mesh)), shown(total_bytes(array, sizes, mesh))
        rows.append(ArrayRow(str(array), shape, local, total, int(mesh.size(*replicated_over(array, mesh)))))
    ways = [_strategy_row(strategy, sizes, mesh) for strategy in planned.ways[:max_ways]]
    return LineReport(str(line), book_case(line), rows, ways, len(planned.ways) - len(ways))


def _strategy_row(strategy: Strategy, sizes: dict[str, Number], mesh: Mesh) -> StrategyRow:
    """One way with its counts; with times where the mesh is of a chip, and a bound where all of them are numbers."""
    each: dict[str, Value] = {}
    lower_s = upper_s = bound_by = None
    if mesh.chip is not None:
        times = strategy.seconds(sizes, mesh, EXACT)
        each = {name: shown(seconds) for name, seconds in times.items()}
        lower_s, upper_s = shown(strategy.lower_seconds(sizes, mesh, EXACT)), shown(sum(times.values()))
        if not any(map(is_symbolic, times.values())):  # which of two formulas is larger is not known
            bound_by = _slowest(times)
    flops = strategy.flops(sizes, mesh)
    before = [step for step in strategy.before if not step.free]  # slicing what a chip has costs nothing
    return StrategyRow(
        collectives=_rows(list(strategy.collectives), sizes, mesh, before),
        free_slices=[str(step) for step in strategy.steps if step.free],
        local=str(strategy.local),
        computes=not strategy.is_reshard,
        flops_per_chip=shown(flops),
        hbm_read_bytes_per_chip=shown(strategy.hbm_read(sizes, mesh)),
        hbm_written_bytes_per_chip=shown(strategy.hbm_written(sizes, mesh)),
        hbm_bytes_per_chip=shown(strategy.hbm_bytes(sizes, mesh)),
        repeated_over=list(strategy.replicated),
        wire_bytes_per_chip=shown(strategy.wire_bytes(sizes, mesh)),
        math_s=each.get("compute"),
        hbm_s=each.get("HBM"),
        comms_s=each.get("network"),
        lower_s=lower_s,
        upper_s=upper_s,
        bound_by=bound_by,
        flops_all_chips=shown(flops * mesh.size(*mesh.axes)),
    )


def _slowest(times: dict[str, Number]) -> str | None:
    """The resource that takes longest; none where nothing takes any time, as for a reshard that keeps parts of what is
    there."""
    if any(times.values()):
        return max(times, key=lambda name: times[name])
    return None


def _pass(planned: list[PlannedEinsum], sizes: dict[str, Number], mesh: Mesh) -> list[MoveRow]:
    """The collectives of a whole pass."""
    return _rows(collectives(planned), sizes, mesh, [step for line in planned for step in line.best.before])


def _rows(steps: list[Step], sizes: dict[str, Number], mesh: Mesh, before: list[Step]) -> list[MoveRow]:
    """Collectives in order, each with its exact and its first-order time."""
    rows: list[MoveRow] = []
    for step in steps:
        volume, times = step.volume(sizes, mesh), [None, None]
        if mesh.chip is not None:
            group = mesh.group(step.axes)
            times = [shown(collective_time(step.kind, volume, group, how).lower) for how in (EXACT, BOOK)]
        sent = wire_bytes(step.kind, volume, mesh.size(*step.axes))  # by each chip
        move = step.kind, list(step.axes), str(step.before), str(step.after), shown(volume), shown(sent)
        over, spread_s = spread(step, times[0], sizes, mesh)
        when = "before" if step in before else "after"
        rows.append(MoveRow(when, *move, times[0], times[1], spread_over=over, spread_s=spread_s))
    return rows


def _repeats(lines: list[LineReport], mesh: Mesh) -> str:
    """A sentence that chips repeat the work of others in the cheapest ways; else empty."""
    ways: list[tuple[float | str, list[str]]] = []
    for line in lines:
        way = line.strategies[0]
        if way.computes:
            ways.append((way.flops_all_chips, way.repeated_over))
    return repeated(ways, mesh)


def _advice(report: ShardReport) -> str:
    """What each pass needs and what bounds it; where both passes end alike, the end is said once."""
    if not report.backward:
        needed, bound = _needs(report.forward_collectives), _bound(report, report.forward, report.forward_collectives)
        return f"Needs {needed}; {bound}."
    there, back = _needs(report.forward_collectives), _needs(report.backward_collectives)
    bound = _bound(report, report.forward, report.forward_collectives)
    bound_back = _bound(report, report.backward, report.backward_collectives)
    if bound != bound_back:
        return f"Forward needs {there}; {bound}. Backward needs {back}; {bound_back}."
    if there == back:
        return f"Needs {there}, forward and backward; {bound}."
    return f"Forward needs {there}. Backward needs {back}. {bound[0].upper()}{bound[1:]}."


def _needs(moves: list[MoveRow]) -> str:
    needs: list[str] = []
    for row in moves:
        # the array's letter: `A` of `A[I_X, J]`
        letter = row.array.split("[")[0].split(":")[0]
        needs.append(f"{row.collective} of {letter or row.array} over {', '.join(row.axes)}")
    return "; ".join(needs) or "no communication"


def _bound(report: ShardReport, lines: list[LineReport], moves: list[MoveRow]) -> str:
    """What bounds one pass, and what would help."""
    if not report.on:
        return "add --on CHIP for times"
    if report.free:
        return f"give sizes (--sizes {report.free[0]}=…) to see what bounds it"
    times = {"compute": 0.0, "HBM": 0.0, "the network": 0.0}
    computes = False
    for line in lines:
        # the cheapest way of each einsum
        way = line.strategies[0]
        computes = computes or way.computes
        times["compute"] += float(way.math_s or 0)
        times["HBM"] += float(way.hbm_s or 0)
    for row in moves:
        times["the network"] += float(row.seconds or 0)
    if not computes and moves:
        return "a reshard computes nothing, so the network alone takes the time"
    if not computes:
        return "each chip keeps its part of what it has"
    bound = max(times, key=lambda name: times[name])
    if bound == "compute":
        return "bound by compute, under which everything else can hide"
    if times["compute"]:
        against = f"{times[bound] / times['compute']:.3g}x the compute time"
    else:
        against = "no FLOPs"
    change = "a larger dim that no collective carries, or fewer chips per axis, helps"
    if bound == "HBM":
        change = "larger kept dims reuse what is read, narrower dtypes read less"
    return f"bound by {bound}, {against}: {change}"


# Chips listed at most: the pattern is plain long before.
MAX_CHIPS = 1024


def block_rows(array: Array, sizes: Sizes, mesh: Mesh) -> list[BlockRow]:
    """What each chip holds, chip after chip.

    >>> from dragonscale.physics.notation import parse_array
    >>> rows = block_rows(parse_array("A[I_YX, J]"), {"I": 8, "J": 3}, Mesh({"X": 2, "Y": 2}))
    >>> [row.holds for row in rows]
    [['0:2', '0:3'], ['4:6', '0:3'], ['2:4', '0:3'], ['6:8', '0:3']]
    """
    rows: list[BlockRow] = []
    # positions on the mesh, the last axis fastest
    positions = itertools.product(*(range(int(size)) for size in mesh.axes.values()))
    for chip, position in enumerate(itertools.islice(positions, MAX_CHIPS)):
        at = dict(zip(mesh.axes, position, strict=True))
        rows.append(BlockRow(chip, at, [_held(dim, sizes[dim.name], at, mesh) for dim in array.dims]))
    return rows


def _held(dim: Dim, size: Any, at: dict[str, int], mesh: Mesh) -> str:
    """The elements of a dim as a slice where its size is known, else the number of the block."""
    ways, block = int(mesh.size(*dim.axes)), block_of(dim.axes, at, mesh)
    if isinstance(size, int):
        return f"{block * size // ways}:{(block + 1) * size // ways}"
    if ways > 1:
        return f"block {block} of {ways}"
    return "all"


# A way that takes at least this fraction of another's time is not worth a word.
MIN_SHORTER = 0.98


def spread(
    step: Step, seconds: float | str | None, sizes: dict[str, Number], mesh: Mesh
) -> tuple[list[str], float | None]:
    """The idle axes that a gather could use too, and its time with them, if that is shorter."""
    if step.kind != "all_gather" or not isinstance(seconds, float):
        return [], None
    try:
        steps = spread_gather(step.before, step.after, mesh)
        for part in steps:
            local_shape(part.after, sizes, mesh)
    except InputError:
        return [], None  # the dim does not divide into so many parts
    idle, best_s = list[str](), 0.0
    for part in steps:
        if not part.free:  # slicing over the idle axes first costs nothing
            idle += [axis for axis in part.axes if axis not in step.axes]
            best_s += float(collective_time(part.kind, part.volume(sizes, mesh), mesh.group(part.axes), EXACT).lower)
    if idle and best_s < MIN_SHORTER * seconds:
        return idle, best_s
    return [], None


def repeated(ways: list[tuple[float | str, list[str]]], mesh: Mesh) -> str:
    """A sentence that chips repeat the work of others, from the FLOPs of all chips and the axes that split nothing;
    else empty.

    >>> repeated([(8e9, ["Y"])], Mesh({"X": 2, "Y": 4}))
    'Y splits nothing: all chips do 8GFLOP together, 4x what the einsum takes.'
    """
    axes = list(dict.fromkeys(axis for _, over in ways for axis in over))
    if not axes:
        return ""
    text = f"{' and '.join(axes)} {'split' if axes[1:] else 'splits'} nothing"
    total = needed = 0.0
    for flops, over in ways:
        if not isinstance(flops, float):  # a size is open
            return f"{text}: its chips repeat the work of others."
        total += flops
        # chips along these axes all do the same work, of which the einsum takes it once
        needed += flops / mesh.size(*over)
    return f"{text}: all chips do {render(total, 'FLOP')} together, {total / needed:.3g}x what the einsum takes."
