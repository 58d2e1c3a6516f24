"""`dscale hlo` laid out: a shape, an instruction, a program, a note.

A program's text laid out: what matters first, then sums, collectives, loops, patterns, what could not be known.
"""

from typing import Any

from dragonscale.blocks.sheet import Block, Column, Grid, NextStep, Prose, Sheet, Title, amount, facts, table
from dragonscale.commands.grids import grid
from dragonscale.commands.hlo.hlo_records import HloModuleReport, HloOp, HloTopic, LayoutFacts
from dragonscale.evidence.xla.op_facts import ArrayFacts, Operand

# Columns of a grid of positions that a terminal holds, and rows of it that are still readable.
_MAX_COLUMNS = 16
_MAX_ROWS = 32
# Rows of a list of parameters or patterns without `--explain`, and of loops.
_MAX_LISTED = 6
_MAX_LOOPS = 20
_PLATFORMS = {"tpu": "for a TPU", "gpu": "for a GPU", "cpu": "for a CPU"}


def joined(sizes: list[int] | list[int | str]) -> str:
    """Sizes as a shape is spoken."""
    return " x ".join(map(str, sizes)) or "one element"


def exact(size: float) -> str:
    """Bytes as they are, followed by the rounded figure."""
    rounded = amount(size, "bytes")
    if size >= 1000 and size == int(size):
        return f"{size:,.0f} B ({rounded})"
    return rounded


def layout_rows(array: ArrayFacts) -> list[tuple[str, str]]:
    """Sizes of an array with its layout: elements, order in memory, tiles, padding."""
    padded, size = "", exact(array.bytes)
    if array.expansion > 1:
        padded = f"{joined(array.padded)}, {array.expansion:.4g}x the memory"
        size += f", {exact(array.padded_bytes)} with padding"
    if array.memory_space:
        space = f", S({array.memory_space})"
    else:
        space = ", as no S(…) is written"
    return [
        ("elements", f"{array.elements:,} of {array.dtype}, {size}"),
        ("in memory", f"{joined(array.physical)}, major to minor"),
        ("tiles", ", inside it ".join(map(joined, array.tiles))),
        ("padded to", padded),
        ("memory", array.memory + space),
    ]


def layout_blocks(report: LayoutFacts) -> Sheet:
    """A shape, and for a small one the grid of positions."""
    array = report.array
    blocks: list[Block] = [Title(array.text, "a shape of HLO"), facts(*layout_rows(array))]
    if report.offsets is not None:
        # one row for each index of the major dims
        rows = _rows(report.offsets, len(array.shape))
        if rows and len(rows[0]) <= _MAX_COLUMNS and len(rows) <= _MAX_ROWS:
            columns = [Column(f"[{index}]", right=True) for index in range(len(rows[0]))]
            blocks.append(table(columns, rows, "Where each element lies, counted in elements"))
        else:
            blocks.append(Prose("`--json` has the position of every element."))
    return Sheet(tuple(blocks))


def _rows(offsets: Any, dims: int) -> list[list[int]]:
    """Positions, nested once for each dim, as rows of the last dim."""
    if dims == 0:
        return [[offsets]]
    if dims == 1:
        return [offsets]
    rows: list[list[int]] = []
    for part in offsets:
        rows += _rows(part, dims - 1)
    return rows


def op_blocks(report: HloOp, detail: bool) -> Sheet:
    """An instruction: its kind, what it makes and reads, its work, and its shortest time on a chip."""
    kind = _with_dashes(report.kind)
    if report.detail:
        kind += f" ({report.detail})"
    rows = [("kind", kind)]
    for index, array in enumerate(report.results):
        label = "result" if len(report.results) == 1 else f"result {index}"
        rows.append((label, f"{array.text} in {array.memory}{_layout_text(array)}"))
    for index, operand in enumerate(report.operands):
        rows.append(("" if index else "reads", _operand_text(operand)))
    rows.append(("runs", ", ".join(report.calls)))
    rows += _work_rows(report)
    if detail:
        rows += [("scope", report.scope), ("source", report.source)]
    blocks: list[Block] = [Title(report.name, ", ".join(filter(None, (report.opcode, report.fusion_kind))))]
    blocks.append(facts(*rows))
    if report.bound_s:
        resources = ", ".join(f"{name} {amount(seconds, 's')}" for name, seconds in report.resources_s.items())
        at_best = f"On {report.chip} at best {amount(report.bound_s, 's')}, bound by {report.bound_by} ({resources})."
        blocks.append(Prose(at_best, "key"))
    if report.unknown:
        blocks.append(Prose(f"This line does not say: {'; '.join(report.unknown)}.", "dim"))
    return Sheet(tuple(blocks))


def _operand_text(operand: Operand) -> str:
    """`x: bf16[8,128] in HBM`, or the name alone where the line does not give the type.

    >>> _operand_text(Operand("x", []))
    'x'
    """
    arrays = ", ".join(f"{_shape(array.dtype, array.shape)} in {array.memory}" for array in operand.arrays)
    if arrays:
        return f"{operand.name}: {arrays}"
    return operand.name


def _shape(dtype: str, sizes: Any) -> str:
    return f"{dtype}[{','.join(map(str, sizes))}]"


def _layout_text(array: ArrayFacts) -> str:
    """What is unusual about an array's layout: order, tiles, padding."""
    text = ""
    if array.physical != array.shape:
        text += f", {joined(array.physical)} major to minor"
    if array.tiles:
        text += f", tiles {', then '.join(map(joined, array.tiles))}"
    if array.expansion > 1.001:
        text += f", {array.expansion:.3g}x with padding"
    return text


def _work_rows(report: HloOp) -> list[tuple[str, str]]:
    """FLOPs, bytes and devices of an instruction; what it has none of is left out, as empty text is."""
    rows = [("matmul", ", ".join(map(_matmul_text, report.matmuls)))]
    if report.matmul_flops:
        rows.append(("matmul FLOPs", amount(report.matmul_flops, "FLOPs")))
    if report.vector_flops:
        rows.append(("other FLOPs", amount(report.vector_flops, "FLOPs")))
    if report.transcendentals:
        rows.append(("functions", f"{report.transcendentals:,.0f} of exp, tanh and the like"))
    rows.append(("bytes", _bytes_text(report)))
    if report.intensity_flops_per_byte:
        rows.append(("intensity", f"{report.intensity_flops_per_byte:.4g} FLOPs per byte of HBM"))
    if report.wire_bytes:
        rows.append(("sends", f"{exact(report.wire_bytes)} from each device"))
    if report.group:
        group = report.group
        if group.stride and group.stride > 1:
            stride = f", {group.stride} apart"
        else:
            stride = ""
        count = f"{group.groups:,} group{'s' * (group.groups > 1)} of {group.degree}"
        rows.append(("devices", f"{count}{stride}, at least {group.at_least} devices"))
    if report.trips is not None:
        rows.append(("turns", f"{report.trips:,}"))
    if report.whole_shape:
        rows.append(("global", joined(report.whole_shape)))
    return rows


def _matmul_text(matmul: Any) -> str:
    """`[8 x 4] x [4 x 2], 16 times`."""
    times = ""
    if matmul.batch > 1:
        times = f", {matmul.batch} times"
    return f"[{matmul.m} x {matmul.k}] x [{matmul.k} x {matmul.n}]{times}"


def _bytes_text(report: HloOp) -> str:
    """Bytes read, written and padded, each by memory."""
    texts: list[str] = []
    moved = {"read": report.read_bytes, "written": report.written_bytes, "padding": report.padding_bytes}
    for what, by_memory in moved.items():
        sizes = [f"{exact(size)} of {memory}" for memory, size in by_memory.items() if size]
        if sizes:
            texts.append(f"{what} {', '.join(sizes)}")
    return "; ".join(texts)


def topic_blocks(report: HloTopic) -> Sheet:
    """A note."""
    rows = [[point.name, point.about] for point in report.points]
    blocks: list[Block] = [Title(report.title), table([Column(""), Column("", wrap=True)], rows)]
    if report.example:
        blocks.append(NextStep(report.example, "Try:"))
    return Sheet(tuple(blocks))


def program_blocks(report: HloModuleReport, detail: bool) -> Sheet:
    """The program: totals, the ops that matter, and what stands around them."""
    blocks: list[Block] = [Title(report.name or "a program", _program_aside(report)), _totals(report), _ops(report)]
    if len(report.kinds) > 1:
        without = () if report.chip else ("at best",)
        blocks.append(grid("hlo-kinds", report.kinds, own={"kind": _kind}, without=without))
    if report.collectives:
        columns = {"collective": _kind, "devices": lambda row: _count(row.degree)}
        blocks.append(grid("hlo-collectives", report.collectives, own=columns))
    blocks += _patterns(report)
    if report.loops:
        columns = {"turns": lambda row: _count(row.trips), "in all": lambda row: _count(row.times)}
        blocks.append(grid("hlo-loops", report.loops[:_MAX_LOOPS], own=columns))
    parameters = [parameter for parameter in report.parameters if parameter.whole]
    if parameters and (detail or any(parameter.ways for parameter in report.parameters)):
        blocks.append(_parameters(parameters, detail))
    if report.unknown:
        blocks.append(Prose(f"The text does not say: {'; '.join(report.unknown)}.", "dim"))
    return Sheet(tuple(blocks))


def _program_aside(report: HloModuleReport) -> str:
    """Whether it is compiled, for what, and for how many devices."""
    devices, count = "", report.partitions * report.replicas
    if count > 1:
        devices = f"{count} devices"
    elif report.at_least_devices > 1:
        devices = f"at least {report.at_least_devices} devices"
    compiled = "compiled" if report.optimized else "not compiled"
    return ", ".join(filter(None, (compiled, _PLATFORMS.get(report.platform, ""), devices)))


def _totals(report: HloModuleReport) -> Block:
    """FLOPs, bytes and the time at best of the whole program on one device."""
    flops, computed = amount(report.matmul_flops, "FLOPs"), report.computed_flops
    if computed and computed < report.matmul_flops:
        flops += f"; {amount(computed, 'FLOPs')} are computed, half of causal attention's"
    hbm = f"{amount(report.hbm_bytes, 'bytes')} read and written"
    if report.padding_bytes:
        hbm += f", and {amount(report.padding_bytes, 'bytes')} of padding"
    rows: list[tuple[str, str] | tuple[str, str, str]] = [
        ("matmul FLOPs", flops),
        ("other FLOPs", f"{amount(report.vector_flops, 'FLOPs')}, and {report.transcendentals:.3g} functions"),
        ("HBM", hbm),
    ]
    if report.wire_bytes:
        rows.append(("sends", f"{amount(report.wire_bytes, 'bytes')} from each device"))
    if report.memory:
        arguments, outputs = (
            amount(report.memory.arguments_bytes, "bytes"),
            amount(report.memory.outputs_bytes, "bytes"),
        )
        temporaries = amount(report.memory.temp_bytes, "bytes")
        rows.append(("memory", f"{arguments} of arguments, {outputs} of outputs, {temporaries} of temporaries"))
    if report.bound_s:
        at_best = f"{amount(report.bound_s, 's')} on {report.chip}, each op at its bound and none overlapping another"
        rows.append(("at best", at_best, "key"))
    return facts(*rows)


def _ops(report: HloModuleReport) -> Grid:
    """The ops that matter most."""
    shown = report.ops[: report.listed]
    rest = len(report.ops) - len(shown)
    foot = ""
    if rest > 0:
        foot = f"{rest:,} more ops: `--top N` lists more, `--json` all."
    without: list[str] = []
    if not report.chip:
        without += ["at best", "bound by"]
    if not any(row.whole for row in report.ops):
        without.append("globally")
    return grid("hlo-ops", shown, foot=foot, own={"kind": _kind, "globally": _global_matmul}, without=without)


def _global_matmul(row: Any) -> str:
    """The global sizes of a matmul, `?` where the text does not tell one; a batch of 1 is left out."""
    return "x".join(str(size or "?") for size in row.whole).removeprefix("1x")


def _kind(row: Any) -> str:
    return _with_dashes(row.kind)


def _with_dashes(kind: str) -> str:
    return kind.replace("_", "-")


def _count(count: int | None) -> str:
    if count is None:
        return "?"
    return f"{count:,}"


def _patterns(report: HloModuleReport) -> list[Block]:
    """Collective matmuls, and reduce-scatters that XLA did not find."""
    blocks: list[Block] = []
    if report.windowed_einsums:
        blocks.append(grid("hlo-windowed", report.windowed_einsums, own={"turns": lambda row: _count(row.trips)}))
    for pair in report.hidden_reduce_scatters[:_MAX_LISTED]:
        names = f"`{pair.all_reduce}` and `{pair.slice}`"
        blocks.append(
            Prose(
                f"{names} are a reduce-scatter written as an all-reduce and a slice: half the bytes would do.", "warn"
            )
        )
    return blocks


def _parameters(parameters: list[Any], detail: bool) -> Grid:
    """Arguments as a device holds them and as they are globally."""
    shown = parameters if detail else parameters[:_MAX_LISTED]
    columns = {
        "on a device": lambda row: _shape(row.dtype, row.local),
        "whole": lambda row: _shape(row.dtype, row.whole),
        "split": lambda row: " x ".join(map(str, row.ways)),
    }
    foot = ""
    if len(shown) < len(parameters):
        foot = f"{len(parameters) - len(shown)} more: `--explain` lists all."
    return grid("hlo-parameters", shown, foot=foot, own=columns)
