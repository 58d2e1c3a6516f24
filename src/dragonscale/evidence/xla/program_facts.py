"""What a program's HLO text says: the ops that matter most, sums by kind, collectives by group, loops, patterns, and
global shapes of arguments."""

import math
from collections import Counter

import msgspec

from dragonscale.errors import InputError
from dragonscale.evidence.xla.call_graph import UNKNOWN, callers_first, trip_count
from dragonscale.evidence.xla.compiled import upper_executions
from dragonscale.evidence.xla.device_groups import group_shape, least_devices
from dragonscale.evidence.xla.dumps import BufferRow, HloDump
from dragonscale.evidence.xla.global_sizes import ModuleWays, whole_matmul
from dragonscale.evidence.xla.op_work import RunningOp, op_bound, running_ops
from dragonscale.evidence.xla.patterns import HiddenScatter, WindowedEinsum, hidden_scatters, windowed_einsums
from dragonscale.evidence.xla.shardings import ParameterRow, global_parameters
from dragonscale.physics.hardware import Chip

# Amounts of an op that are added up over its executions, and those that only the whole program has.
_SUMMED = ("matmul_flops", "vector_flops", "hbm_bytes", "wire_bytes")
_TOTALS = (*_SUMMED, "transcendentals")


class HloOpRow(msgspec.Struct):
    """One op: FLOPs, bytes and seconds are those of all its executions."""

    name: str
    where: str
    kind: str
    detail: str
    times: int
    shape: str
    whole: list[int | None]
    """Of a matmul: global batch, rows, contracted size and columns, where the program is split and the text tells how;
    else empty."""
    matmul_flops: float
    vector_flops: float
    hbm_bytes: float
    padding_bytes: float
    wire_bytes: float
    scope: str
    source: str
    bound_s: float | None = None
    bound_by: str | None = None
    unknown: list[str] = []


class KindRow(msgspec.Struct):
    """All ops of a kind."""

    kind: str
    ops: int
    matmul_flops: float
    vector_flops: float
    hbm_bytes: float
    padding_bytes: float
    wire_bytes: float
    bound_s: float | None = None


class GroupRow(msgspec.Struct):
    """Collectives of one kind over groups of one shape: how many devices, how far apart, and the bytes each device
    sends in all."""

    kind: str
    degree: int | None
    stride: int | None
    groups: int | None
    runs: int
    wire_bytes: float


class LoopRow(msgspec.Struct):
    """A loop, and how often its body runs in all and each time; None where that depends on data."""

    name: str
    scope: str
    trips: int | None
    times: int | None


class ProgramFacts(msgspec.Struct):
    """A program on one device. Sums count what runs as often as it runs, and once where nobody knows how often."""

    name: str
    platform: str
    optimized: bool
    partitions: int
    replicas: int
    at_least_devices: int
    computations: int
    instructions: int
    fusions: int
    most_matmuls_in_a_fusion: int
    matmul_flops: float
    vector_flops: float
    transcendentals: float
    hbm_bytes: float
    padding_bytes: float
    wire_bytes: float
    kinds: list[KindRow]
    ops: list[HloOpRow]
    collectives: list[GroupRow]
    loops: list[LoopRow]
    windowed_einsums: list[WindowedEinsum]
    hidden_reduce_scatters: list[HiddenScatter]
    parameters: list[ParameterRow]
    memory: BufferRow | None
    unknown: list[str]
    chip: str | None = None
    bound_s: float | None = None
    """The busiest resource of each op, added up: no op overlaps another."""
    computed_flops: float | None = None
    """Those of `matmul_flops` that are computed: half of causal attention's, of which XLA counts all scores."""


def program_facts(dump: HloDump, chip: Chip | None) -> ProgramFacts:
    """The facts of a module, with times at a chip's datasheet rates where one is given."""
    try:
        return _read(dump, chip)
    except InputError:
        raise
    except (ValueError, KeyError, IndexError, OverflowError, RecursionError) as error:
        raise InputError(f"The HLO text of {dump.name or 'the program'} cannot be read: {error!r:.120}.") from None


def _read(dump: HloDump, chip: Chip | None) -> ProgramFacts:
    module = dump.module
    callers_first(module)  # raises for a program that runs itself, which has no sums
    ops = running_ops(module, dump.platform)
    # how many ways each dim is split, from which the global sizes of matmuls follow
    ways = ModuleWays(module) if dump.partitions > 1 and dump.optimized else None
    rows = [_row(op, chip, ways) for op in ops]
    rows.sort(key=lambda row: _weight(row, chip), reverse=True)
    fused = [op.work for op in ops if op.work.opcode == "fusion"]
    groups = [op.work.groups for op in ops if op.work.is_collective]
    totals = {what: math.fsum(getattr(op.work, what) * op.times for op in ops) for what in _TOTALS}
    return ProgramFacts(
        name=dump.name,
        platform=dump.platform,
        optimized=dump.optimized,
        partitions=dump.partitions,
        replicas=dump.replicas,
        at_least_devices=max(dump.devices, least_devices(groups)),
        computations=len(module.computations),
        instructions=sum(len(computation.instructions) for computation in module.computations.values()),
        fusions=len(fused),
        most_matmuls_in_a_fusion=max((len(work.matmuls) for work in fused), default=0),
        padding_bytes=sum(row.padding_bytes for row in rows),
        kinds=_kinds(rows),
        ops=rows,
        collectives=_groups(ops),
        loops=_loops(dump),
        windowed_einsums=windowed_einsums(module),
        hidden_reduce_scatters=hidden_scatters(module),
        parameters=global_parameters(module, dump.optimized),
        memory=dump.buffers,
        unknown=_unknown(dump, ops),
        chip=chip.title if chip else None,
        bound_s=sum(row.bound_s or 0.0 for row in rows) if chip else None,
        computed_flops=math.fsum(op.work.computed_flops * op.times for op in ops),
        **totals,
    )


def _row(op: RunningOp, chip: Chip | None, ways: ModuleWays | None) -> HloOpRow:
    """One op with the work of all its executions."""
    work = op.work
    matmul = work.matmuls[0] if work.matmuls else None
    row = HloOpRow(
        name=work.name,
        where=op.where,
        kind=work.kind,
        detail=work.detail,
        times=op.times,
        shape=f"{matmul.batch}x{matmul.m}x{matmul.k}x{matmul.n}".removeprefix("1x") if matmul else "",
        whole=_whole(op, ways),
        padding_bytes=work.padding_bytes.get("HBM", 0.0) * op.times,
        scope=op.scope,
        source=op.source,
        unknown=list(work.unknown),
        **{what: getattr(work, what) * op.times for what in _SUMMED},
    )
    if chip is not None:
        bound = op_bound(work, chip)
        row.bound_s, row.bound_by = bound.seconds * op.times, bound.by
    return row


def _whole(op: RunningOp, ways: ModuleWays | None) -> list[int | None]:
    """The global sizes of an op that is one matmul."""
    if ways is None or len(op.work.matmuls) != 1:
        return []
    instruction = ways.module.computations[op.where].named[op.work.name]
    return list(whole_matmul(ways, op.where, instruction, op.work.matmuls[0]) or ())


def _weight(row: HloOpRow, chip: Chip | None) -> float:
    """What ops are ranked by: time on a chip; else FLOPs and bytes, at some 300 FLOPs for a byte of HBM and a tenth of
    HBM's rate for the network, as chips roughly have them."""
    if chip:
        return row.bound_s or 0.0
    return row.matmul_flops / 300 + row.hbm_bytes + 10 * row.wire_bytes


def _kinds(rows: list[HloOpRow]) -> list[KindRow]:
    """Ops by kind: the longest first, then those with most bytes."""
    kinds: dict[str, KindRow] = {}
    for row in rows:
        kind = kinds.setdefault(row.kind, KindRow(row.kind, 0, 0.0, 0.0, 0.0, 0.0, 0.0, None))
        kind.ops += row.times
        kind.matmul_flops += row.matmul_flops
        kind.vector_flops += row.vector_flops
        kind.hbm_bytes += row.hbm_bytes
        kind.padding_bytes += row.padding_bytes
        kind.wire_bytes += row.wire_bytes
        if row.bound_s is not None:
            kind.bound_s = (kind.bound_s or 0.0) + row.bound_s
    return sorted(kinds.values(), key=lambda kind: (-(kind.bound_s or 0.0), -kind.hbm_bytes))


def _groups(ops: list[RunningOp]) -> list[GroupRow]:
    """Collectives by kind and shape of their groups, those that send most first."""
    rows: dict[tuple[str, int | None, int | None, int | None], GroupRow] = {}
    for op in ops:
        work = op.work
        # an asynchronous collective is counted with its start
        if not work.is_collective or work.half in ("done", "update"):
            continue
        shape = group_shape(work.groups) if work.groups else None
        key = work.kind, work.group_size, shape.stride if shape else None, shape.groups if shape else None
        row = rows.setdefault(key, GroupRow(*key, 0, 0.0))
        row.runs += op.times
        row.wire_bytes += work.wire_bytes * op.times
    return sorted(rows.values(), key=lambda row: -row.wire_bytes)


def _loops(dump: HloDump) -> list[LoopRow]:
    """The loops that run, with how often their bodies do."""
    rows, counts = list[LoopRow](), upper_executions(dump.module)
    for computation, instruction in dump.module.placed:
        times = counts[computation.name]
        if instruction.opcode == "while" and times:
            trips = trip_count(dump.module, computation.name, instruction)
            total = trips * times if UNKNOWN not in (trips, times) else None
            rows.append(LoopRow(instruction.name, instruction.op_name, None if trips == UNKNOWN else trips, total))
    return rows


def _unknown(dump: HloDump, ops: list[RunningOp]) -> list[str]:
    """What the text does not tell, each with how often."""
    counts = Counter(what for op in ops for what in op.work.unknown)
    notes = [f"{what} ({count} op{'s' * (count > 1)})" for what, count in counts.items()]
    if once := sum(op.counted_once for op in ops):
        notes.append(f"how often {once} ops in loops or branches run; they are counted once")
    if empty := sum(not computation.instructions for computation in dump.module.computations.values()):
        notes.append(f"{empty} computations that are called and not in the text")
    unsplit = sum(not parameter.whole for parameter in global_parameters(dump.module, dump.optimized))
    if dump.devices > 1 and unsplit:
        notes.append(f"how {unsplit} of the arguments are split: nothing is written beside them")
    if not dump.optimized:
        notes.append("what XLA will fuse, and how it will lay out and split the program: it is not compiled")
    return notes
