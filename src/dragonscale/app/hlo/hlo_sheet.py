"""`dscale hlo` laid out: a shape, an instruction, a program, a note."""

from typing import Any

from dragonscale.app.hlo.op import ArrayFacts, HloOp, LayoutFacts
from dragonscale.app.hlo.topics import HloTopic
from dragonscale.sheets.sheet import Block, Column, NextStep, Prose, Sheet, Title, amount, facts, table

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
    return [
        ("elements", f"{array.elements:,} of {array.dtype}, {size}"),
        ("in memory", f"{joined(array.physical)}, major to minor"),
        ("tiles", tiles) if tiles else None,
        ("padded to", padded) if padded else None,
        (
            "memory",
            f"{array.memory}" + (f", S({array.memory_space})" if array.memory_space else ", as no S(…) is written"),
        ),
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
        blocks.append(
            Prose(
                f"On {report.chip} at best {amount(report.bound_s, 's')}, bound by {report.bound_by} ({shares}).", "key"
            )
        )
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
