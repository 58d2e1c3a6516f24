"""`dscale shard`: what each chip holds, then for each einsum the ways to do it, step by step as they run."""

import math
import re

from dragonscale.blocks.sheet import Block, Column, Grid, Prose, Sheet, Title, amount, facts, sheet, table
from dragonscale.commands.charts.pictures import draw_shard
from dragonscale.commands.given import maybe_target, mesh_of, sizes_of, written_target
from dragonscale.commands.grids import grid
from dragonscale.commands.questions.operations import ShardQuestion
from dragonscale.commands.record import Face, bind
from dragonscale.commands.shard_report import (
    LineReport,
    MoveRow,
    ShardReport,
    StrategyRow,
    Value,
    prepare,
    shard_report,
)
from dragonscale.errors import InputError
from dragonscale.listener import Listener
from dragonscale.physics.hardware.changes import check_effect, with_changes
from dragonscale.physics.notation import parse_array, parse_einsum


def ask(question: ShardQuestion, listener: Listener) -> ShardReport:
    """Every way to do it, cheapest first."""
    if question.alternatives is not None and question.alternatives < 1:
        raise InputError(f"--alternatives is {question.alternatives}; show at least one strategy.")
    check_effect(question.set, "wires")
    on = with_changes(question.on, question.set)
    chip, slice_ = maybe_target(on, listener)
    if question.mesh or slice_:
        axes = ""
    else:
        # two chips along each axis show which moves are needed
        axes = ",".join(f"{axis}=2" for axis in prepare(question.expression, {}).line.axes)
    if axes:
        listener.note(f"No mesh given: two chips along each axis (--mesh {axes}); other sizes need the same moves.")
    mesh = mesh_of(question.mesh or axes, chip, slice_)
    if chip is not None and slice_ is None and chip.kind == "tpu":
        listener.note("No slice given: every mesh axis is taken as a full ring of its own, the book's ideal.")
    shown = question.alternatives, question.backward
    report = shard_report(question.expression, mesh, written_target(on), sizes_of(question.sizes), *shown)
    return report.came_from(mesh, listener.notes)


# Chips whose blocks are listed.
MAX_CHIPS = 16


def shard_blocks(report: ShardReport, _detail: bool) -> Sheet:
    """The forward pass, the backward pass where it was asked for, and what bounds them."""
    axes = ", ".join(f"{name}={size}" for name, size in report.mesh.items())
    where = f"mesh {axes}" if axes else "one chip"
    if report.on:
        where += f" on {report.on}"
    if not re.search(r"\b(bf|fp|int)\d+", report.expression):
        where += "; bytes in bf16 (or write int8[I, J])"
    blocks: list[Block] = [Title(report.expression, where), Prose(report.advice, "key"), Prose(report.repeats, "key")]
    for line in report.forward:
        blocks.append(_arrays(line))
        if not report.blocks:
            blocks += _ways(line)
    if report.blocks:  # an array alone, of which nothing moves
        blocks += [facts(("in JAX", report.partition_spec)), _blocks(report)]
    if report.backward:
        for line in report.backward:
            blocks += [Prose(f"backward: {_head(line)}"), *_ways(line)]
        there, back = len(report.forward_collectives), len(report.backward_collectives)
        blocks.append(Prose(f"Collectives in all, each once: {there} forward, {back} backward."))
    return sheet(*blocks)


def _blocks(report: ShardReport) -> Grid:
    """What each chip holds, the first of them where there are many."""
    rows = [[row.chip, *row.at.values(), *row.holds] for row in report.blocks[:MAX_CHIPS]]
    chips = math.prod(report.mesh.values())
    foot = ""
    if chips > len(rows):
        foot = f"{chips - len(rows):,} more chips; `--json` lists them."
    dims = [dim.name for dim in parse_array(report.expression).dims]
    return table(["chip", *report.mesh, *dims], rows, "what each chip holds", foot)


def _head(line: LineReport) -> str:
    computes = any(way.computes for way in line.strategies)
    if computes:
        return f"{line.einsum}   (case {line.book_case} of the book)"
    return f"{line.einsum}   (a reshard)"


def _arrays(line: LineReport) -> Grid:
    shape = {"each chip holds": lambda row: " x ".join(map(str, row.local_shape))}
    title = ""
    if len(line.arrays) > 1:  # an array alone is no einsum
        title = f"forward: {_head(line)}"
    return grid("shard-arrays", line.arrays, title, own=shape)


def _ways(line: LineReport) -> list[Block]:
    blocks: list[Block] = []
    for number, way in enumerate(line.strategies, 1):
        if not way.computes and not way.collectives:
            blocks.append(Prose("Free: each chip keeps its part of what it has."))
            continue
        blocks.append(_way(way, number, line.strategies[0].wire_bytes_per_chip))
        blocks += [Prose(_spread(row)) for row in way.collectives if number == 1 and row.spread_s is not None]
    if line.more_ways and len(line.strategies) > 1:  # of a chain only the cheapest way of each einsum is shown
        more = f"{line.more_ways} more way{'s' * (line.more_ways > 1)}"
        blocks.append(Prose(f"{more}: --alternatives {len(line.strategies) + line.more_ways}.", "dim"))
    return blocks


def _way(way: StrategyRow, number: int, least: Value) -> Grid:
    """One way as a table of its steps, in the order in which they run."""
    rows = [_move(row) for row in way.collectives if row.when == "before"]
    if way.computes:
        flops = way.flops_per_chip
        work = amount(flops, "FLOP")
        if isinstance(flops, str):  # a formula where a size is open
            work += " FLOPs"
        work += f", {amount(way.hbm_read_bytes_per_chip, 'bytes')} read"
        work += f", {amount(way.hbm_written_bytes_per_chip, 'bytes')} written"
        rows.append([f"{_work(way.local)} {way.local}", work, _longer(way)])
    rows += [_move(row) for row in way.collectives if row.when == "after"]
    head = f"{number}. {'cheapest' if number == 1 else 'or'}: {amount(way.wire_bytes_per_chip, 'bytes')} sent per chip"
    if number > 1 and isinstance(least, float) and isinstance(way.wire_bytes_per_chip, float) and least:
        head += f" ({way.wire_bytes_per_chip / least:.3g}x)"
    if way.bound_by:
        times = {"compute": way.math_s, "HBM": way.hbm_s, "network": way.comms_s}
        each = ", ".join(f"{name} {amount(time, 's')}" for name, time in times.items())
        head += f", {amount(way.lower_s, 's')} at best, bound by {way.bound_by}"
        if way.computes:  # a reshard has no compute to hold the network against
            head += f" ({each})"
    columns = [Column("step", wrap=True), Column("per chip", wrap=True)]
    if way.bound_by:  # else there are no times
        columns.append(Column("at best", right=True))
    return table(columns, [row[: len(columns)] for row in rows], head)


def _work(local: str) -> str:
    """What an einsum is called: one that sums over nothing multiplies element by element."""
    line = parse_einsum(local)
    if len(line.operands) == 1:
        return "sum"
    if line.contracted:
        return "matmul"
    if not {*line.operands[0].names} & {*line.operands[-1].names}:
        return "outer product"
    return "elementwise product"


def _spread(row: MoveRow) -> str:
    name = row.array.split("[")[0].split(":")[0] or row.array
    return (
        f"Sliced over {', '.join(row.spread_over)} first (free), the gather of {name} takes "
        f"{amount(row.spread_s, 's')}."
    )


def _longer(way: StrategyRow) -> str:
    """The time of the local einsum, by compute or HBM; empty where an open size leaves which of them is longer open."""
    if isinstance(way.math_s, str) or isinstance(way.hbm_s, str):
        return ""
    return amount(max(way.math_s or 0.0, way.hbm_s or 0.0), "s")


def _move(row: MoveRow) -> list[str]:
    step = f"{row.collective} over {', '.join(row.axes)}: {row.array} -> {row.result}"
    moved, seconds = amount(row.bytes, "bytes"), ""
    if isinstance(row.seconds, float):
        seconds = amount(row.seconds, "s")
        # the book leaves out the (N-1)/N, which long rings do not show
        if isinstance(row.book_s, float) and row.book_s > 1.001 * row.seconds:
            moved += f"; {amount(row.book_s, 's')} to first order"
    return [step, moved, seconds]


bind(ShardReport, Face(shard_blocks, draw_shard))
