"""The view `shard`: a sharded einsum as typed, the collectives that it needs, every way to do it, and which chip holds
what."""

from collections.abc import Callable
from typing import Any

from dragonscale.app.charts.shard import AXES
from dragonscale.app.given import sizes_of
from dragonscale.app.shard_report import LineReport, MoveRow, ShardReport, StrategyRow
from dragonscale.errors import InputError
from dragonscale.physics.notation import parse_einsum
from dragonscale.physics.units import render
from dragonscale.web.amounts import count
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.array_picture import mesh_picture, stages_of
from dragonscale.web.views.notation import letters, marked, value_of
from dragonscale.web.words import question_of

MOST = 24
"""Letters and axes of an expression that get a slider each."""


def _record(asked: PageRequest) -> ShardReport:
    return asked.record


def notation_panel(asked: PageRequest) -> dict[str, Any]:
    """The letters of the expression with their sliders; or what is wrong with it, and where."""
    given = str(asked.fields.get("expression", ""))
    try:
        question = question_of("shard", asked.fields)
        line, sizes = parse_einsum(given), sizes_of(question.sizes)
        _record(asked)
        return {"wrong": "", "at": None, "letters": letters(line.indices[:MOST], line.sizes, sizes)}
    except InputError as error:
        return {"wrong": str(error), "at": marked(given, str(error)), "letters": []}


def answer_panel(asked: PageRequest) -> dict[str, Any]:
    """What is needed in a sentence, and the cheapest way's numbers."""
    report = _record(asked)
    best, why = report.best, "shard:forward:0:0"
    times = [one.lower_s for one in best]
    total = (
        sum(one for one in times if isinstance(one, float))
        if times and all(isinstance(one, float) for one in times)
        else None
    )
    lead = f"{render(total, 's')} at best{', forward' if report.backward else ''}. " if total else ""
    one = best[0]
    rows: list[tuple[str, Any, str]] = [
        ("sent by each chip", value_of(one.wire_bytes_per_chip, "bytes", f"{why}:wire_bytes_per_chip"), ""),
        ("FLOPs of each chip", value_of(one.flops_per_chip, "FLOP", f"{why}:flops_per_chip"), ""),
        (
            "read and written",
            value_of(one.hbm_bytes_per_chip, "bytes", f"{why}:hbm_bytes_per_chip"),
            "of each chip's HBM",
        ),
        ("collectives", count(len(report.forward_collectives), "shard:forward_collectives"), "forward"),
    ]
    if report.backward:
        rows.append(("collectives", count(len(report.backward_collectives), "shard:backward_collectives"), "backward"))
    return {
        "sentence": lead + report.advice,
        "on": report.on,
        "expression": report.expression,
        "figures": [{"label": label, "number": number, "about": about} for label, number, about in rows],
        "bound_by": one.bound_by,
        "notes": list(report.notes_beside),
        "mesh": mesh_picture(report.mesh, AXES),
    }


def passes_panel(asked: PageRequest) -> dict[str, Any]:
    """Each einsum of the forward and the backward pass: arrays, and the ways to do it with their steps drawn."""
    report = _record(asked)
    roles = {name: AXES[place % len(AXES)] for place, name in enumerate(report.mesh)}
    passes = {"forward": report.forward, "backward": report.backward}
    return {
        "mesh": mesh_picture(report.mesh, AXES),
        "passes": [
            {"name": name, "lines": [_line(line, f"shard:{name}:{at}", report, roles) for at, line in enumerate(lines)]}
            for name, lines in passes.items()
            if lines
        ],
    }


def _line(line: LineReport, why: str, report: ShardReport, roles: dict[str, str]) -> dict[str, Any]:
    computes = any(way.computes for way in line.strategies)
    return {
        "einsum": line.einsum,
        "case": line.book_case if computes else 0,
        "arrays": [
            {
                "array": row.array,
                "shape": " × ".join(f"{size:,}" if isinstance(size, int) else str(size) for size in row.local_shape),
                "bytes": value_of(row.local_bytes, "bytes", f"{why}:array:{at}:local_bytes"),
                "total": value_of(row.total_bytes, "bytes", f"{why}:array:{at}:total_bytes"),
                "replicas": count(row.replicas, f"{why}:array:{at}:replicas"),
            }
            for at, row in enumerate(line.arrays)
        ],
        "ways": [_way(way, f"{why}:{at}", report, roles) for at, way in enumerate(line.strategies)],
    }


def _way(way: StrategyRow, why: str, report: ShardReport, roles: dict[str, str]) -> dict[str, Any]:
    """One way: its times and its steps, in the order in which they run."""
    seconds = {"compute": way.math_s, "HBM": way.hbm_s, "network": way.comms_s}
    return {
        "local": way.local,
        "computes": way.computes,
        "bound_by": way.bound_by,
        "repeated_over": way.repeated_over,
        "free_slices": way.free_slices,
        "lower": value_of(way.lower_s, "s", f"{why}:lower_s"),
        "upper": value_of(way.upper_s, "s", f"{why}:upper_s"),
        "sent": value_of(way.wire_bytes_per_chip, "bytes", f"{why}:wire_bytes_per_chip"),
        "flops": value_of(way.flops_per_chip, "FLOP", f"{why}:flops_per_chip"),
        "read": value_of(way.hbm_read_bytes_per_chip, "bytes", f"{why}:hbm_read_bytes_per_chip"),
        "written": value_of(way.hbm_written_bytes_per_chip, "bytes", f"{why}:hbm_written_bytes_per_chip"),
        "times": [
            {
                "name": name,
                "role": {"compute": "compute", "HBM": "hbm", "network": "fsdp"}[name],
                "shown": value_of(value, "s", f"{why}:{name}"),
            }
            for name, value in seconds.items()
            if value is not None
        ],
        "moves": [_move(row, f"{why}:move:{at}") for at, row in enumerate(way.collectives)],
        "stages": stages_of(way, report.mesh, report.sizes, roles, why),
    }


def _move(row: MoveRow, why: str) -> dict[str, Any]:
    return {
        "when": row.when,
        "collective": row.collective.replace("_", "-"),
        "axes": row.axes,
        "array": row.array,
        "result": row.result,
        "bytes": value_of(row.bytes, "bytes", f"{why}:bytes"),
        "sent": value_of(row.wire_bytes_per_chip, "bytes", f"{why}:wire_bytes_per_chip"),
        "seconds": value_of(row.seconds, "s", f"{why}:seconds"),
        "book": value_of(row.book_s, "s", f"{why}:book_s"),
    }


PANELS: dict[str, Callable[[Any], Any]] = {"notation": notation_panel, "answer": answer_panel, "passes": passes_panel}
