"""Charts of a simulated run, as Vega-Lite: distributions of latencies, and the fleet over time."""

from typing import Any

from dragonscale.reports.simulate.records import SimulateReport
from dragonscale.simulation import SimulationResult

_SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
SHORTEST = 1e-4
"""Seconds below which nobody cares how short a wait was."""
_LATENCIES = {"ttft_s": "first token", "tpot_s": "per output token", "e2e_s": "whole request", "queue_s": "queueing"}


def draw(kind: str, report: SimulateReport, result: SimulationResult) -> dict[str, Any]:
    """The chart that was asked for."""
    return latency_chart(report, result) if kind == "latency" else occupancy_chart(report, result)


def latency_chart(report: SimulateReport, result: SimulationResult) -> dict[str, Any]:
    """Distribution functions of latencies, with targets as vertical rules."""
    rows = [
        {"seconds": seconds, "share": share, "what": title}
        for name, title in _LATENCIES.items()
        for seconds, share in result.curves.get(name, [])
        if seconds > SHORTEST
    ]
    rules = [{"seconds": limit, "what": _LATENCIES[name]} for name, limit in report.slo.items()]
    x = {"field": "seconds", "type": "quantitative", "scale": {"type": "log"}, "title": "seconds"}
    share = {"field": "share", "type": "quantitative", "title": "share of requests", "axis": {"format": "%"}}
    colour = {"field": "what", "type": "nominal", "title": None}
    line = {"type": "line", "interpolate": "step-after", "strokeWidth": 2}
    curves = {"data": {"values": rows}, "mark": line, "encoding": {"x": x, "y": share, "color": colour}}
    rule = {"type": "rule", "strokeDash": [4, 3]}
    targets = {"data": {"values": rules}, "mark": rule, "encoding": {"x": x, "color": colour}}
    title = f"{report.model}: latencies"
    return {"$schema": _SCHEMA, "title": title, "width": 560, "height": 320, "layer": [curves, targets]}


def occupancy_chart(report: SimulateReport, result: SimulationResult) -> dict[str, Any]:
    """The cache's occupancy, and running and waiting requests, over time."""

    def panel(names: dict[str, str], title: str, percent: bool) -> dict[str, Any]:
        rows = [
            {"seconds": at, "value": value, "what": label}
            for name, label in names.items()
            for at, value in result.series.get(name, [])
        ]
        axis = {"format": "%"} if percent else {"format": "~s"}
        return {
            "width": 560,
            "height": 180,
            "data": {"values": rows},
            "mark": {"type": "line", "strokeWidth": 1.5},
            "encoding": {
                "x": {"field": "seconds", "type": "quantitative"},
                "y": {"field": "value", "type": "quantitative", "title": title, "axis": axis},
                "color": {"field": "what", "type": "nominal", "title": None},
            },
        }

    return {
        "$schema": _SCHEMA,
        "title": f"{report.model}: the fleet over time",
        "vconcat": [
            panel({"pages": "cache in use", "busy": "replicas busy"}, "share", percent=True),
            panel({"running": "running", "waiting": "waiting", "replicas": "replicas"}, "requests", percent=False),
        ],
    }
