"""The view `shard`: a sharded einsum as typed, the collectives that it needs, every way to do it, and which chip holds
what."""

from dragonscale.app.given import sizes_of
from dragonscale.app.shard import AXES
from dragonscale.app.shard_report import LineReport, MoveRow, ShardReport, StrategyRow
from dragonscale.errors import InputError
from dragonscale.physics.notation import parse_einsum
from dragonscale.physics.units import render
from dragonscale.web.amounts import count, quantities, quantity
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.array_picture import mesh_picture, stages_of
from dragonscale.web.views.cards import TABLES, Card, fields, figure
from dragonscale.web.views.notation import letters, marked
from dragonscale.web.words import question_of

_TABLE = TABLES["shard"]
MOST = 24
"""Letters and axes of an expression that get a slider each."""


def _record(asked: PageRequest) -> ShardReport:
    return asked.record


def notation_panel(asked: PageRequest) -> Card:
    """The letters of the expression with their sliders; or what is wrong with it, and where."""
    given = str(asked.fields.get("expression", ""))
    try:
        question = question_of("shard", asked.fields)
        line, sizes = parse_einsum(given), sizes_of(question.sizes)
        _record(asked)
        return {"wrong": "", "at": None, "letters": letters(line.indices[:MOST], line.sizes, sizes)}
    except InputError as error:
        return {"wrong": str(error), "at": marked(given, str(error)), "letters": []}


def answer_panel(asked: PageRequest) -> Card:
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
    figures = [
        figure("sent by each chip", quantity("bytes", one.wire_bytes_per_chip, f"{why}:wire_bytes_per_chip")),
        figure("FLOPs of each chip", quantity("flops", one.flops_per_chip, f"{why}:flops_per_chip")),
        figure(
            "read and written",
            quantity("bytes", one.hbm_bytes_per_chip, f"{why}:hbm_bytes_per_chip"),
            "of each chip's HBM",
        ),
        figure("collectives", count(len(report.forward_collectives), "shard:forward_collectives"), "forward"),
    ]
    if report.backward:
        many = count(len(report.backward_collectives), "shard:backward_collectives")
        figures.append(figure("collectives", many, "backward"))
    return {
        "sentence": lead + report.advice,
        **fields(report, "on expression"),
        "figures": figures,
        "bound_by": one.bound_by,
        "notes": list(report.notes_beside),
        "mesh": mesh_picture(report.mesh, AXES),
    }


def passes_panel(asked: PageRequest) -> Card:
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


def _line(line: LineReport, why: str, report: ShardReport, roles: dict[str, str]) -> Card:
    computes = any(way.computes for way in line.strategies)
    return {
        "einsum": line.einsum,
        "case": line.book_case if computes else 0,
        "arrays": [
            {"array": row.array, "shape": " × ".join(map(_size, row.local_shape))}
            | quantities(row, _TABLE["array"], f"{why}:array:{at}:")
            for at, row in enumerate(line.arrays)
        ],
        "ways": [_way(way, f"{why}:{at}", report, roles) for at, way in enumerate(line.strategies)],
    }


def _size(size: int | str) -> str:
    return f"{size:,}" if isinstance(size, int) else str(size)


def _way(way: StrategyRow, why: str, report: ShardReport, roles: dict[str, str]) -> Card:
    """One way: its times and its steps, in the order in which they run."""
    seconds = {"compute": way.math_s, "HBM": way.hbm_s, "network": way.comms_s}
    return {
        **fields(way, "local computes bound_by repeated_over free_slices"),
        **quantities(way, _TABLE["way"], f"{why}:"),
        "times": [
            {"name": name, "role": _TABLE["times"][name], "shown": quantity("seconds", value, f"{why}:{name}")}
            for name, value in seconds.items()
            if value is not None
        ],
        "moves": [_move(row, f"{why}:move:{at}:") for at, row in enumerate(way.collectives)],
        "stages": stages_of(way, report.mesh, report.sizes, roles, why),
    }


def _move(row: MoveRow, why: str) -> Card:
    named = {"collective": row.collective.replace("_", "-")}
    return fields(row, "when axes array result") | named | quantities(row, _TABLE["move"], why)


PANELS = {"notation": notation_panel, "answer": answer_panel, "passes": passes_panel}
