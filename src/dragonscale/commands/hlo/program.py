"""A program's text as an answer: the ops that matter, sums by kind, collectives by group, loops, patterns, shapes back
to global."""

import math
from collections import Counter
from typing import Any, ClassVar

import msgspec

from dragonscale.commands.record import Record, shared
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
    """Of a matmul: global batch, rows, sum and columns, where the program is split and the text tells how; else empty.
    """
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


class HloModuleReport(Record):
    """A program on one device. Sums count what runs as often as it runs, and once where nobody knows how often."""

    ROWS: ClassVar[str] = "ops"

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
    listed: int = 12

    def headline(self) -> str:
        at_best = f", {self.bound_s:.3g} s at best" if self.bound_s else ""
        name = self.name or "a program"
        return f"{name}: {self.matmul_flops:.4g} matmul FLOPs, {self.hbm_bytes:.4g} HBM bytes{at_best}"


def program_answer(dump: HloDump, chip: Chip | None, listed: int) -> HloModuleReport:
    """The answer about a module."""
    module = dump.module
    try:
        callers_first(module)  # a program that runs itself has no sums
        ops = running_ops(module, dump.platform)
        spread = ModuleWays(module) if dump.partitions > 1 and dump.optimized else None
        rows = sorted((_row(each, chip, spread) for each in ops), key=lambda row: _weight(row, chip), reverse=True)
        fused = [each.work for each in ops if each.work.opcode == "fusion"]
        grouped = [each.work.groups for each in ops if each.work.is_collective]
        named = ("name", "platform", "optimized", "partitions", "replicas")
        known: dict[str, Any] = {name: getattr(dump, name) for name in named}
        known |= {what: math.fsum(getattr(each.work, what) * each.times for each in ops) for what in _TOTALS}
        return HloModuleReport(
            **known,
            at_least_devices=max(dump.devices, least_devices(grouped)),
            computations=len(module.computations),
            instructions=sum(len(each.instructions) for each in module.computations.values()),
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
            computed_flops=math.fsum(each.work.computed_flops * each.times for each in ops),
            listed=listed,
        )
    except InputError:
        raise
    except (ValueError, KeyError, IndexError, OverflowError, RecursionError) as error:
        raise InputError(f"The HLO text of {dump.name or 'the program'} cannot be read: {error!r:.120}.") from None


def _row(each: RunningOp, chip: Chip | None, spread: ModuleWays | None) -> HloOpRow:
    work, bound = each.work, op_bound(each.work, chip) if chip else None
    shape = next((f"{one.batch}x{one.m}x{one.k}x{one.n}".removeprefix("1x") for one in work.matmuls), "")
    known = {"shape": shape, "whole": _whole(each, spread), "unknown": list(work.unknown)}
    known |= {what: getattr(work, what) * each.times for what in _SUMMED}
    known |= {"padding_bytes": work.padding_bytes.get("HBM", 0.0) * each.times}
    known |= {"bound_s": bound.seconds * each.times, "bound_by": bound.by} if bound else {}
    return HloOpRow(**shared(HloOpRow, each, work, **known))


def _whole(each: RunningOp, spread: ModuleWays | None) -> list[int | None]:
    if spread is None or len(each.work.matmuls) != 1:
        return []
    instruction = spread.module.computations[each.where].named[each.work.name]
    return list(whole_matmul(spread, each.where, instruction, each.work.matmuls[0]) or ())


def _weight(row: HloOpRow, chip: Chip | None) -> tuple[float, ...]:
    """What comes first: the most time on a chip, else the most FLOPs and bytes."""
    return (row.bound_s or 0.0,) if chip else (row.matmul_flops / 300 + row.hbm_bytes + 10 * row.wire_bytes,)


def _kinds(rows: list[HloOpRow]) -> list[KindRow]:
    found: dict[str, KindRow] = {}
    for row in rows:
        kind = found.setdefault(row.kind, KindRow(row.kind, 0, 0.0, 0.0, 0.0, 0.0, 0.0, None))
        kind.ops += row.times
        for what in (*_SUMMED, "padding_bytes"):
            setattr(kind, what, getattr(kind, what) + getattr(row, what))
        if row.bound_s is not None:
            kind.bound_s = (kind.bound_s or 0.0) + row.bound_s
    return sorted(found.values(), key=lambda one: (-(one.bound_s or 0.0), -one.hbm_bytes))


def _groups(ops: list[RunningOp]) -> list[GroupRow]:
    found: dict[tuple[str, int | None, int | None, int | None], GroupRow] = {}
    for each in ops:
        work = each.work
        if not work.is_collective or work.half in ("done", "update"):
            continue
        shape = group_shape(work.groups) if work.groups else None
        key = work.kind, work.group_size, shape.stride if shape else None, shape.groups if shape else None
        row = found.setdefault(key, GroupRow(*key, 0, 0.0))
        row.runs += each.times
        row.wire_bytes += work.wire_bytes * each.times
    return sorted(found.values(), key=lambda row: -row.wire_bytes)


def _loops(dump: HloDump) -> list[LoopRow]:
    rows, counts = [], upper_executions(dump.module)
    for computation, each in dump.module.placed:
        times = counts[computation.name]
        if each.opcode == "while" and times:
            trips = trip_count(dump.module, computation.name, each)
            total = trips * times if UNKNOWN not in (trips, times) else None
            rows.append(LoopRow(each.name, each.op_name, None if trips == UNKNOWN else trips, total))
    return rows


def _unknown(dump: HloDump, ops: list[RunningOp]) -> list[str]:
    """What the text does not tell, each with how often."""
    counts = Counter(what for each in ops for what in each.work.unknown)
    told = [f"{what} ({count} op{'s' * (count > 1)})" for what, count in counts.items()]
    once = sum(each.counted_once for each in ops)
    told += [f"how often {once} ops in loops or branches run; they are counted once"] if once else []
    empty = sum(not one.instructions for one in dump.module.computations.values())
    told += [f"{empty} computations that are called and not in the text"] if empty else []
    unsplit = sum(not one.whole for one in global_parameters(dump.module, dump.optimized))
    if dump.devices > 1 and unsplit:
        told.append(f"how {unsplit} of the arguments are split: nothing is written beside them")
    if not dump.optimized:
        told.append("what XLA will fuse, and how it will lay out and split the program: it is not compiled")
    return told
