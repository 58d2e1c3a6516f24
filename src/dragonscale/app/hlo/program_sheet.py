"""A program's text laid out: what matters first, then sums, collectives, loops, patterns, what could not be known."""

from typing import Any

from dragonscale.app.hlo.program import HloModuleReport, HloOpRow
from dragonscale.sheets.sheet import Block, Column, Grid, Prose, Sheet, Title, amount, facts, records, table

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
    blocks += _patterns(report)
    if report.loops:
        blocks.append(_loops(report))
    if any(one.whole for one in report.parameters) and (detail or any(one.ways for one in report.parameters)):
        blocks.append(_parameters(report, detail))
    if report.unknown:
        blocks.append(Prose(f"What the text does not tell: {'; '.join(report.unknown)}.", "dim"))
    return Sheet(tuple(blocks))


def _totals(report: HloModuleReport) -> Block:
    padding = f", and {amount(report.padding_bytes, 'bytes')} of padding" if report.padding_bytes else ""
    memory = report.memory
    return facts(
        ("matmul FLOPs", amount(report.matmul_flops, "FLOPs")),
        ("other FLOPs", f"{amount(report.vector_flops, 'FLOPs')}, and {report.transcendentals:.3g} functions"),
        ("HBM", f"{amount(report.hbm_bytes, 'bytes')} read and written{padding}"),
        ("sends", f"{amount(report.wire_bytes, 'bytes')} from each device") if report.wire_bytes else None,
        (
            "memory",
            f"{amount(memory.arguments_bytes, 'bytes')} of arguments, {amount(memory.outputs_bytes, 'bytes')} of "
            "outputs, "
            f"{amount(memory.temp_bytes, 'bytes')} of temporaries",
        )
        if memory
        else None,
        (
            "at best",
            f"{amount(report.bound_s, 's')} on {report.chip}, each op at its bound and none beside another",
            "key",
        )
        if report.bound_s
        else None,
    )


def _ops(report: HloModuleReport) -> Grid:
    whole = [Column("globally", keep=2)] if any(row.whole for row in report.ops) else []
    columns = [
        Column("op", wrap=True),
        Column("kind"),
        Column("times", right=True, keep=5),
        Column("m x k x n", keep=3),
        *whole,
    ]
    columns += [Column("matmul FLOPs", right=True), Column("HBM", right=True), Column("sends", right=True, keep=4)]
    columns += [Column("at best", right=True), Column("bound by", keep=4)] if report.chip else []
    rows = [_op(row, bool(report.chip), bool(whole)) for row in report.ops[: report.listed]]
    rest = len(report.ops) - len(rows)
    foot = f"{rest:,} more ops: `--top N` lists more, `--json` all." if rest > 0 else ""
    return table(columns, rows, "The ops that matter, all their executions", foot)


def _op(row: HloOpRow, timed: bool, whole: bool) -> list[str]:
    globally = "x".join("?" if size is None else str(size) for size in row.whole).removeprefix("1x")
    cells = [row.name, row.kind.replace("_", "-"), f"{row.times:,}", row.shape, *([globally] if whole else [])]
    cells += [_some(row.matmul_flops, "FLOPs"), _some(row.hbm_bytes, "bytes"), _some(row.wire_bytes, "bytes")]
    return [*cells, amount(row.bound_s, "s"), row.bound_by or ""] if timed else cells


def _some(value: float, unit: str) -> str:
    return amount(value, unit) if value else ""


def _kinds(report: HloModuleReport) -> Grid:
    columns = {
        "kind": lambda row: row.kind.replace("_", "-"),
        "runs": "ops",
        "matmul FLOPs": (lambda row: row.matmul_flops or "", "FLOPs"),
        "other FLOPs": (lambda row: row.vector_flops or "", "FLOPs"),
        "HBM": (lambda row: row.hbm_bytes or "", "bytes"),
        "padding": (lambda row: row.padding_bytes or "", "bytes"),
        "sends": (lambda row: row.wire_bytes or "", "bytes"),
    }
    if report.chip:
        columns["at best"] = ("bound_s", "s")
    return records(report.kinds, columns, "By kind", how={"other FLOPs": {"keep": 4}, "padding": {"keep": 3}})


def _collectives(report: HloModuleReport) -> Grid:
    columns = {
        "collective": lambda row: row.kind.replace("_", "-"),
        "devices": lambda row: "?" if row.degree is None else row.degree,
        "apart": lambda row: "" if row.stride is None else row.stride,
        "groups": lambda row: "" if row.groups is None else row.groups,
        "runs": "runs",
        "sends": ("wire_bytes", "bytes"),
    }
    how = {"apart": {"keep": 5, "right": True}, "groups": {"keep": 3, "right": True}, "devices": {"right": True}}
    return records(report.collectives, columns, "Collectives by group", how=how)


def _patterns(report: HloModuleReport) -> list[Block]:
    blocks: list[Block] = []
    if report.windowed_einsums:
        columns = {
            "windowed einsum": "name",
            "form": "form",
            "turns": lambda row: row.trips if row.trips is not None else "?",
            "permutes": "permutes",
            "matmuls": "matmuls",
            "matmul FLOPs": ("matmul_flops", "FLOPs"),
        }
        how: dict[str, dict[str, Any]] = {"windowed einsum": {"wrap": True}, "matmul FLOPs": {"keep": 5}}
        how |= {name: {"right": True, "keep": keep} for name, keep in (("turns", 6), ("permutes", 3), ("matmuls", 2))}
        title = "Matmuls whose collective goes round a ring while they compute"
        blocks.append(records(report.windowed_einsums, columns, title, how=how))
    for one in report.hidden_reduce_scatters[:_FEW]:
        told = (
            f"`{one.all_reduce}` and `{one.slice}` are a reduce-scatter written as an all-reduce and a slice: half "
            "the bytes would do."
        )
        blocks.append(Prose(told, "warn"))
    return blocks


def _loops(report: HloModuleReport) -> Grid:
    columns = {
        "loop": "name",
        "turns": lambda row: "?" if row.trips is None else row.trips,
        "in all": lambda row: "?" if row.times is None else row.times,
        "scope": "scope",
    }
    return records(report.loops[:20], columns, "Loops", how={"scope": {"keep": 2, "wrap": True}})


def _parameters(report: HloModuleReport, detail: bool) -> Grid:
    every = [one for one in report.parameters if one.whole]
    shown = every if detail else every[:_FEW]
    columns = {
        "argument": "name",
        "on a device": lambda row: f"{row.dtype}[{','.join(map(str, row.local))}]",
        "whole": lambda row: f"{row.dtype}[{','.join(map(str, row.whole))}]",
        "split": lambda row: " x ".join(map(str, row.ways)),
        "copies": "copies",
    }
    foot = f"{len(every) - len(shown)} more: `--explain` lists all." if len(shown) < len(every) else ""
    how = {"argument": {"wrap": True}, "split": {"keep": 3}, "copies": {"keep": 2, "right": True}}
    return records(shown, columns, "Shapes back to global", foot, how)
