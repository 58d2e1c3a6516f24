"""The view `collective`: one collective over mesh axes of a slice, whether bytes or hops decide, and its time over
sizes."""

from collections.abc import Callable
from typing import Any

from dragonscale.app.collective import CollectiveAsked
from dragonscale.app.collective_report import CollectiveReport, TransferReport, size_sweep
from dragonscale.app.questions.operations import KINDS
from dragonscale.physics.units import render
from dragonscale.web.amounts import amount, count
from dragonscale.web.page_request import PageRequest

_NAMES = {"bound": "at best", "bandwidth": "bandwidth alone", "latency": "latency alone"}
_ROLES = {"bound": "compute", "bandwidth": "fsdp", "latency": "hbm"}


def answer_panel(asked: PageRequest) -> dict[str, Any]:
    """The answer in a sentence, its numbers, and what goes on inside."""
    report: CollectiveReport | TransferReport = asked.record
    if isinstance(report, TransferReport):
        return _transfer(report)
    over = ", ".join(report.axes)
    rows = [
        ("at best", amount(report.lower_s, "s", "collective:lower_s"), "the larger of the two terms"),
        ("bandwidth", amount(report.bandwidth_s, "s", "collective:bandwidth_s"), "exact bytes over links"),
        ("latency", amount(report.latency_s, "s", "collective:latency_s"), "hops"),
        (
            "expected",
            amount(report.expected_s, "s", "collective:expected_s"),
            "through the measured efficiency profile",
        ),
        ("to first order", amount(report.book_s, "s", "collective:book_s"), report.book_drops),
        ("sent by each chip", amount(report.wire_bytes_per_chip, "bytes", "collective:wire_bytes_per_chip"), ""),
        (
            "algorithm bandwidth",
            amount(report.algorithm_bandwidth_bytes_per_s, "bytes/s", "collective:algorithm_bandwidth_bytes_per_s"),
            "the array over the time",
        ),
        (
            "latency-bound below",
            amount(report.latency_bound_below_bytes, "bytes", "collective:latency_bound_below_bytes"),
            "",
        ),
    ]
    said = (
        f"{render(report.lower_s, 's')} at best for {report.collective.replace('_', '-')} of "
        f"{render(report.bytes, 'bytes')}"
    )
    return {
        "sentence": f"{said} over {over} ({report.chips} chips) of {report.on}: bound by {report.regime}.",
        "advice": report.advice,
        "regime": report.regime,
        "axes": list(report.axes),
        "mesh": report.mesh,
        "bytes": report.bytes,
        "figures": _figures(rows),
        "tiers": [
            {
                "tier": row.tier,
                "children": count(row.children, f"collective:tier:{row.tier}"),
                "link": amount(row.link_bytes_per_s, "bytes/s", f"collective:tier:{row.tier}"),
                "seconds": amount(row.seconds, "s", f"collective:tier:{row.tier}"),
                "into": amount(row.ingress_bytes, "bytes", f"collective:tier:{row.tier}"),
                "out": amount(row.egress_bytes, "bytes", f"collective:tier:{row.tier}"),
            }
            for row in report.tiers
        ],
        "kinds": list(KINDS),
        "notes": list(report.notes_beside),
    }


def _transfer(report: TransferReport) -> dict[str, Any]:
    """One message between chips."""
    rows = [
        ("in all", amount(report.total_s, "s", "collective:total_s"), ""),
        (
            "bandwidth",
            amount(report.bandwidth_s, "s", "collective:bandwidth_s"),
            f"{report.paths} paths that share no link",
        ),
        ("latency", amount(report.latency_s, "s", "collective:latency_s"), f"{report.hops} hops"),
    ]
    return {
        "sentence": f"{report.headline()}.",
        "advice": "",
        "regime": "",
        "axes": [],
        "mesh": {},
        "bytes": report.bytes,
        "figures": _figures(rows),
        "tiers": [],
        "kinds": list(KINDS),
        "notes": list(report.notes_beside),
    }


def _figures(rows: list[tuple[str, Any, str]]) -> list[dict[str, Any]]:
    return [
        {"label": label, "number": number, "about": about} for label, number, about in rows if number["text"] != "–"
    ]


def curve_panel(asked: PageRequest) -> dict[str, Any]:
    """Time over bytes: the two terms, their bound, and where they cross."""
    report: CollectiveReport | TransferReport = asked.record
    read = report.asked
    if isinstance(report, TransferReport) or not isinstance(read, CollectiveAsked) or report.chips == 1:
        return {"series": []}
    curves: dict[str, list[list[float]]] = {}
    for row in size_sweep(read.kind, read.axes, read.mesh, read.options):
        curves.setdefault(str(row["what"]), []).append([float(row["bytes"]), float(row["seconds"])])
    turn = report.latency_bound_below_bytes
    return {
        "x": {"label": "bytes of the whole array", "unit": "bytes", "log": True},
        "y": {"label": "time", "unit": "s", "log": True},
        "series": [
            {"name": _NAMES[name], "role": _ROLES[name], "points": curves[name], "dashed": name != "bound"}
            for name in ("bandwidth", "latency", "bound")
            if name in curves
        ],
        "rules": [{"at": turn, "text": f"latency-bound below {render(turn, 'bytes')}", "role": "limit"}]
        if turn > 0
        else [],
        "marks": [
            {
                "x": report.bytes,
                "y": report.lower_s,
                "text": f"{render(report.bytes, 'bytes')}: {render(report.lower_s, 's')}",
            }
        ],
    }


PANELS: dict[str, Callable[[Any], Any]] = {"answer": answer_panel, "curve": curve_panel}
