"""`dscale hlo` laid out: a shape, an instruction, a program, a note.

A program's text laid out: what matters first, then sums, collectives, loops, patterns, what could not be known.
"""

from typing import Any

from dragonscale.blocks.sheet import Block, Column, Grid, NextStep, Prose, Sheet, Title, amount, facts, table
from dragonscale.commands.grids import grid
from dragonscale.commands.hlo.op import ArrayFacts, HloOp, HloTopic, LayoutFacts
from dragonscale.commands.hlo.program import HloModuleReport

_WIDE = 16
"""Columns of a grid of places that a terminal holds."""


def joined(sizes: list[int] | list[int | str]) -> str:
    """Sizes as a shape is spoken."""
    return " x ".join(map(str, sizes)) or "one element"


def exact(size: float) -> str:
    """Bytes as they are, with the rounded figure behind."""
    return f"{size:,.0f} B ({amount(size, 'bytes')})" if size >= 1000 and size == int(size) else amount(size, "bytes")


def layout_rows(array: ArrayFacts) -> list[tuple[str, str] | None]:
    """What is to say of an array with its layout."""
    tiles = ", inside it ".join(joined(tile) for tile in array.tiles)
    padded = f"{joined(array.padded)}, {array.expansion:.4g}x the memory" if array.expansion > 1 else ""
    size = exact(array.bytes) + (f", {exact(array.padded_bytes)} with padding" if padded else "")
    space = f", S({array.memory_space})" if array.memory_space else ", as no S(…) is written"
    return [
        ("elements", f"{array.elements:,} of {array.dtype}, {size}"),
        ("in memory", f"{joined(array.physical)}, major to minor"),
        ("tiles", tiles),
        ("padded to", padded),
        ("memory", array.memory + space),
    ]


def layout_sheet(report: LayoutFacts) -> Sheet:
    """A shape, and for a small one the grid of places."""
    array = report.array
    blocks: list[Block] = [Title(array.text, "a shape of HLO"), facts(*layout_rows(array))]
    rows = _rows(report.offsets, len(array.shape))
    if rows and len(rows[0]) <= _WIDE and len(rows) <= 2 * _WIDE:
        columns = [Column(f"[{place}]", right=True) for place in range(len(rows[0]))]
        blocks.append(table(columns, rows, "Where each element lies, counted in elements"))
    elif report.offsets is not None:
        blocks.append(Prose("`--json` has the place of every element."))
    return Sheet(tuple(blocks))


def _rows(offsets: Any, dims: int) -> list[list[int]]:
    """Nested places as rows of the last dim."""
    if offsets is None:
        return []
    if dims == 0:
        return [[offsets]]
    return [offsets] if dims == 1 else [row for part in offsets for row in _rows(part, dims - 1)]


def op_sheet(report: HloOp, detail: bool) -> Sheet:
    """An instruction in words."""
    about = f"{report.opcode}{f', {report.fusion_kind}' if report.fusion_kind else ''}"
    kind = report.kind.replace("_", "-") + (f" ({report.detail})" if report.detail else "")
    blocks: list[Block] = [Title(report.name, about)]
    rows: list[tuple[str, str] | None] = [("kind", kind)]
    for place, array in enumerate(report.results):
        label = "result" if len(report.results) == 1 else f"result {place}"
        rows.append((label, f"{array.text} in {array.memory}{_laid_out(array)}"))
    rows += [("reads" if place == 0 else "", operand.told) for place, operand in enumerate(report.operands)]
    rows += [("runs", ", ".join(report.calls))] if report.calls else []
    rows += _work_rows(report)
    rows += [("scope", report.scope), ("source", report.source)] if detail else []
    blocks.append(facts(*rows))
    if report.bound_s:
        shares = ", ".join(f"{name} {amount(seconds, 's')}" for name, seconds in report.resources_s.items())
        at_best = f"On {report.chip} at best {amount(report.bound_s, 's')}, bound by {report.bound_by} ({shares})."
        blocks.append(Prose(at_best, "key"))
    if report.unknown:
        blocks.append(Prose(f"Not to be seen in this line: {'; '.join(report.unknown)}.", "dim"))
    return Sheet(tuple(blocks))


def _laid_out(array: ArrayFacts) -> str:
    tiles = f", tiles {', then '.join(joined(tile) for tile in array.tiles)}" if array.tiles else ""
    order = f", {joined(array.physical)} major to minor" if array.physical != array.shape else ""
    padding = f", {array.expansion:.3g}x with padding" if array.expansion > 1.001 else ""
    return f"{order}{tiles}{padding}"


def _work_rows(report: HloOp) -> list[tuple[str, str] | None]:
    group = report.group
    stride = f", {group.stride} apart" if group and group.stride and group.stride > 1 else ""
    many = f"{group.groups:,} group{'s' * (group.groups > 1)} of" if group else ""
    devices = f"{many} {group.degree}{stride}, at least {group.at_least} devices" if group else ""
    matmuls = ", ".join(
        f"[{one.m} x {one.k}] x [{one.k} x {one.n}]{f', {one.batch} times' if one.batch > 1 else ''}"
        for one in report.matmuls
    )
    moved = {"read": report.read_bytes, "written": report.written_bytes, "padding": report.padding_bytes}
    shown = "; ".join(f"{what} {_by_memory(by)}" for what, by in moved.items() if any(by.values()))
    intensity = report.intensity_flops_per_byte
    return [
        ("matmul", matmuls),
        ("matmul FLOPs", amount(report.matmul_flops, "FLOPs")) if report.matmul_flops else None,
        ("other FLOPs", amount(report.vector_flops, "FLOPs")) if report.vector_flops else None,
        ("functions", f"{report.transcendentals:,.0f} of exp, tanh and the like") if report.transcendentals else None,
        ("bytes", shown),
        ("intensity", f"{intensity:.4g} FLOPs per byte of HBM") if intensity else None,
        ("sends", f"{exact(report.wire_bytes)} from each device") if report.wire_bytes else None,
        ("devices", devices),
        ("turns", f"{report.trips:,}") if report.trips is not None else None,
        ("global", joined(report.whole_shape)) if report.whole_shape else None,
    ]


def _by_memory(sizes: dict[str, float]) -> str:
    return ", ".join(f"{exact(size)} of {memory}" for memory, size in sizes.items() if size)


def topic_sheet(report: HloTopic) -> Sheet:
    """A note."""
    rows = [[point.name, point.about] for point in report.points]
    blocks: list[Block] = [Title(report.title), table([Column(""), Column("", wrap=True)], rows)]
    blocks += [NextStep(report.example, "Try:")] if report.example else []
    return Sheet(tuple(blocks))


_FEW = 6


def program_sheet(report: HloModuleReport, detail: bool) -> Sheet:
    """The program: totals, the ops that matter, and what stands around them."""
    where = {"tpu": "for a TPU", "gpu": "for a GPU", "cpu": "for a CPU"}.get(report.platform, "")
    devices = f"{report.partitions * report.replicas} devices" if report.partitions * report.replicas > 1 else ""
    if not devices and report.at_least_devices > 1:
        devices = f"at least {report.at_least_devices} devices"
    aside = ", ".join(word for word in ("compiled" if report.optimized else "not compiled", where, devices) if word)
    blocks: list[Block] = [Title(report.name or "a program", aside), _totals(report), _ops(report)]
    blocks += [_kinds(report)] if len(report.kinds) > 1 else []
    blocks += [_collectives(report)] if report.collectives else []
    blocks += [*_patterns(report), *([_loops(report)] if report.loops else [])]
    if any(one.whole for one in report.parameters) and (detail or any(one.ways for one in report.parameters)):
        blocks.append(_parameters(report, detail))
    if report.unknown:
        blocks.append(Prose(f"What the text does not tell: {'; '.join(report.unknown)}.", "dim"))
    return Sheet(tuple(blocks))


def _totals(report: HloModuleReport) -> Block:
    padding = f", and {amount(report.padding_bytes, 'bytes')} of padding" if report.padding_bytes else ""
    held = {}
    if report.memory:
        sizes = (report.memory.arguments_bytes, report.memory.outputs_bytes, report.memory.temp_bytes)
        held = dict(zip(("arguments", "outputs", "temporaries"), sizes, strict=True))
    at_best = f"{amount(report.bound_s, 's')} on {report.chip}, each op at its bound and none beside another"
    matmuls, computed = report.matmul_flops, report.computed_flops or report.matmul_flops
    half = f"; {amount(computed, 'FLOPs')} are computed, half of causal attention's" if computed < matmuls else ""
    return facts(
        ("matmul FLOPs", amount(matmuls, "FLOPs") + half),
        ("other FLOPs", f"{amount(report.vector_flops, 'FLOPs')}, and {report.transcendentals:.3g} functions"),
        ("HBM", f"{amount(report.hbm_bytes, 'bytes')} read and written{padding}"),
        ("sends", f"{amount(report.wire_bytes, 'bytes')} from each device") if report.wire_bytes else None,
        ("memory", ", ".join(f"{amount(size, 'bytes')} of {what}" for what, size in held.items())),
        ("at best", at_best, "key") if report.bound_s else None,
    )


def _ops(report: HloModuleReport) -> Grid:
    shown = report.ops[: report.listed]
    rest = len(report.ops) - len(shown)
    foot = f"{rest:,} more ops: `--top N` lists more, `--json` all." if rest > 0 else ""
    own = {"kind": _kind, "globally": lambda row: "x".join(str(one or "?") for one in row.whole).removeprefix("1x")}
    without = () if report.chip else ("at best", "bound by")
    without += () if any(row.whole for row in report.ops) else ("globally",)
    return grid("hlo-ops", shown, foot=foot, own=own, without=without)


def _kind(row: Any) -> str:
    return row.kind.replace("_", "-")


def _kinds(report: HloModuleReport) -> Grid:
    return grid("hlo-kinds", report.kinds, own={"kind": _kind}, without=() if report.chip else ("at best",))


def _collectives(report: HloModuleReport) -> Grid:
    own = {"collective": _kind, "devices": lambda row: _known(row.degree)}
    return grid("hlo-collectives", report.collectives, own=own)


def _patterns(report: HloModuleReport) -> list[Block]:
    blocks: list[Block] = []
    if report.windowed_einsums:
        blocks.append(grid("hlo-windowed", report.windowed_einsums, own={"turns": lambda row: _known(row.trips)}))
    for one in report.hidden_reduce_scatters[:_FEW]:
        pair = f"`{one.all_reduce}` and `{one.slice}` are a reduce-scatter written as an all-reduce and a slice"
        blocks.append(Prose(f"{pair}: half the bytes would do.", "warn"))
    return blocks


def _known(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"


def _loops(report: HloModuleReport) -> Grid:
    own = {"turns": lambda row: _known(row.trips), "in all": lambda row: _known(row.times)}
    return grid("hlo-loops", report.loops[:20], own=own)


def _parameters(report: HloModuleReport, detail: bool) -> Grid:
    every = [one for one in report.parameters if one.whole]
    shown = every if detail else every[:_FEW]
    own = {
        "on a device": lambda row: f"{row.dtype}[{','.join(map(str, row.local))}]",
        "whole": lambda row: f"{row.dtype}[{','.join(map(str, row.whole))}]",
        "split": lambda row: " x ".join(map(str, row.ways)),
    }
    foot = f"{len(every) - len(shown)} more: `--explain` lists all." if len(shown) < len(every) else ""
    return grid("hlo-parameters", shown, foot=foot, own=own)
