"""The view `collective`: one collective over mesh axes of a slice, whether bytes or hops decide, and its time over
sizes."""

from dragonscale.app.collective import CollectiveAsked
from dragonscale.app.collective_report import CollectiveReport, TransferReport, size_sweep
from dragonscale.app.questions.operations import KINDS
from dragonscale.physics.units import render
from dragonscale.web.amounts import quantities
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.cards import TABLES, Card, fields, figures_of, known, line, log_axis, mark, rule

_TABLE = TABLES["collective"]
_NAMES = {"bound": "at best", "bandwidth": "bandwidth alone", "latency": "latency alone"}
_ROLES = {"bound": "compute", "bandwidth": "fsdp", "latency": "hbm"}


def answer_panel(asked: PageRequest) -> Card:
    """The answer in a sentence, its numbers, and what goes on inside."""
    report: CollectiveReport | TransferReport = asked.record
    if isinstance(report, TransferReport):
        return _transfer(report)
    what = f"{report.collective.replace('_', '-')} of {render(report.bytes, 'bytes')}"
    over = f"over {', '.join(report.axes)} ({report.chips} chips) of {report.on}"
    tiers = [
        {"tier": row.tier, **quantities(row, _TABLE["tier"], f"collective:tier:{row.tier}")} for row in report.tiers
    ]
    return _card(report, "answer") | {
        "sentence": f"{render(report.lower_s, 's')} at best for {what} {over}: bound by {report.regime}.",
        **fields(report, "advice regime mesh"),
        "axes": list(report.axes),
        "tiers": tiers,
    }


def _transfer(report: TransferReport) -> Card:
    """One message between chips."""
    return _card(report, "transfer") | {"sentence": f"{report.headline()}."}


def _card(report: CollectiveReport | TransferReport, kind: str) -> Card:
    """What both kinds of answer have."""
    figures = figures_of(report, _TABLE[kind]["figures"], "collective")
    empty = {"advice": "", "regime": "", "axes": [], "mesh": {}, "tiers": []}
    notes = list(report.notes_beside)
    return empty | {"bytes": report.bytes, "figures": known(figures), "kinds": list(KINDS), "notes": notes}


def curve_panel(asked: PageRequest) -> Card:
    """Time over bytes: the two terms, their bound, and where they cross."""
    report: CollectiveReport | TransferReport = asked.record
    read = report.asked
    if isinstance(report, TransferReport) or not isinstance(read, CollectiveAsked) or report.chips == 1:
        return {"series": []}
    every = size_sweep(read.kind, read.axes, read.mesh, read.options).items()
    curves = {name: [[*point] for point in points] for name, points in every}
    turn = report.latency_bound_below_bytes
    names = [name for name in ("bandwidth", "latency", "bound") if name in curves]
    here = f"{render(report.bytes, 'bytes')}: {render(report.lower_s, 's')}"
    return {
        "x": log_axis("bytes of the whole array", "bytes"),
        "y": log_axis("time", "s"),
        "series": [line(_NAMES[name], _ROLES[name], curves[name], dashed=name != "bound") for name in names],
        "rules": [rule(turn, f"latency-bound below {render(turn, 'bytes')}")] if turn > 0 else [],
        "marks": [mark(report.bytes, report.lower_s, here)],
    }


PANELS = {"answer": answer_panel, "curve": curve_panel}
