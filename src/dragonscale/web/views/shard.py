"""The view `shard`: a sharded einsum as typed, the collectives that it needs, every way to do it, and which chip holds
what."""

from dragonscale.blocks.amounts import count, quantities, quantity
from dragonscale.commands.charts.pictures import AXES, axis_roles
from dragonscale.commands.shard_report import LineReport, ShardReport, StrategyRow
from dragonscale.physics.notation import parse_einsum
from dragonscale.physics.units import render
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.array_picture import mesh_picture, stages_of
from dragonscale.web.views.cards import TABLES, Card, fields, figure, figures_of
from dragonscale.web.views.notation import notation_card

_TABLE = TABLES["shard"]
MOST = 24
"""Letters of an expression that get a slider each."""


def _record(request: PageRequest) -> ShardReport:
    return request.record


def notation_panel(request: PageRequest) -> Card:
    """The letters of the expression with their sliders; or what is wrong with it, and where."""
    return notation_card(request, parse_einsum, _record, MOST)


def answer_panel(request: PageRequest) -> Card:
    """What is needed in a sentence, and the cheapest way's numbers."""
    report = _record(request)
    # a time is a formula as long as a size is open: then there is no sum
    times = [way.lower_s for way in report.best if isinstance(way.lower_s, float)]
    lead = ""
    if len(times) == len(report.best) and sum(times):
        lead = f"{render(sum(times), 's')} at best{', forward' if report.backward else ''}. "
    figures = figures_of(report.best[0], _TABLE["answer"]["figures"], "shard:forward:0:0")
    for way in ("forward", "backward") if report.backward else ("forward",):
        moves = f"{way}_collectives"
        figures.append(figure("collectives", count(len(getattr(report, moves)), f"shard:{moves}"), way))
    return {
        "sentence": lead + report.advice,
        **fields(report, "on expression"),
        "figures": figures,
        "bound_by": report.best[0].bound_by,
        "notes": list(report.notes_beside),
        "mesh": mesh_picture(report.mesh, AXES),
    }


def passes_panel(request: PageRequest) -> Card:
    """Each einsum of the forward and the backward pass: arrays, and the ways to do it with their steps drawn."""
    report = _record(request)
    roles = axis_roles(report)
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
            {
                "array": row.array,
                "shape": " × ".join(f"{size:,}" if isinstance(size, int) else size for size in row.local_shape),
            }
            | quantities(row, _TABLE["array"], f"{why}:array:{at}:")
            for at, row in enumerate(line.arrays)
        ],
        "ways": [_way(way, f"{why}:{at}", report, roles) for at, way in enumerate(line.strategies)],
    }


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
        "moves": [
            fields(row, "when axes array result")
            | {"collective": row.collective.replace("_", "-")}
            | quantities(row, _TABLE["move"], f"{why}:move:{at}:")
            for at, row in enumerate(way.collectives)
        ],
        "stages": stages_of(way, report.mesh, report.sizes, roles, why),
    }


PANELS = {"notation": notation_panel, "answer": answer_panel, "passes": passes_panel}
