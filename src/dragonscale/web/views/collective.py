"""The view `collective`: one collective over mesh axes of a slice, whether bytes or hops decide, and its time over
sizes."""

from dragonscale.blocks.amounts import quantities
from dragonscale.commands.charts.pictures import collective_lines
from dragonscale.commands.collective import CollectiveAsked
from dragonscale.commands.collective_report import CollectiveReport, TransferReport
from dragonscale.commands.questions.operations import KINDS
from dragonscale.physics.units import render
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.cards import TABLES, Card, drawn, fields, figures_of, known, log_axis, mark, rule

_TABLE = TABLES["collective"]


def answer_panel(request: PageRequest) -> Card:
    """The answer in a sentence, its numbers, and what goes on inside; of one message between chips, less of it."""
    report: CollectiveReport | TransferReport = request.record
    sent = isinstance(report, TransferReport)
    figures = figures_of(report, _TABLE["transfer" if sent else "answer"]["figures"], "collective")
    notes = list(report.notes_beside)
    common = {"bytes": report.bytes, "figures": known(figures), "kinds": list(KINDS), "notes": notes}
    if sent:
        nothing = {"advice": "", "regime": "", "axes": [], "mesh": {}, "tiers": []}
        return common | nothing | {"sentence": f"{report.headline()}."}
    what = f"{report.collective.replace('_', '-')} of {render(report.bytes, 'bytes')}"
    over = f"over {', '.join(report.axes)} ({report.chips} chips) of {report.on}"
    tiers = [
        {"tier": row.tier, **quantities(row, _TABLE["tier"], f"collective:tier:{row.tier}")} for row in report.tiers
    ]
    return common | {
        "sentence": f"{render(report.lower_s, 's')} at best for {what} {over}: bound by {report.regime}.",
        **fields(report, "advice regime mesh"),
        "axes": list(report.axes),
        "tiers": tiers,
    }


def curve_panel(request: PageRequest) -> Card:
    """Time over bytes: the two terms, their bound, and where they cross."""
    report: CollectiveReport | TransferReport = request.record
    if isinstance(report, TransferReport) or not isinstance(report.asked, CollectiveAsked) or report.chips == 1:
        return {"series": []}
    turn = report.latency_bound_below_bytes
    here = f"{render(report.bytes, 'bytes')}: {render(report.lower_s, 's')}"
    return {
        "x": log_axis("bytes of the whole array", "bytes"),
        "y": log_axis("time", "s"),
        "series": [{"dashed": False} | drawn(line) for line in collective_lines(report, {"bound": "at best"})],
        "rules": [rule(turn, f"latency-bound below {render(turn, 'bytes')}")] if turn > 0 else [],
        "marks": [mark(report.bytes, report.lower_s, here)],
    }


PANELS = {"answer": answer_panel, "curve": curve_panel}
