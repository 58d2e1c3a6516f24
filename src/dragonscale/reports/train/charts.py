"""Charts of a training plan, as Vega-Lite: where time and memory go, strong scaling, the roofline of a layer's lines."""

from typing import Any

from dragonscale.errors import InputError
from dragonscale.hardware import parse_slice
from dragonscale.reports.train.question import TrainAsked
from dragonscale.reports.train.records import TrainReport
from dragonscale.roofline.chart import line_chart, roofline_chart
from dragonscale.training.plan import Plan

_SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"


def draw(kind: str, asked: TrainAsked, report: TrainReport) -> dict[str, Any]:
    """The chart that was asked for."""
    makers = {"time": time_chart, "memory": memory_chart, "scaling": scaling_chart, "roofline": layer_chart}
    return makers[kind](asked, report)


def _bars(rows: list[dict[str, Any]], value: str, title: str, unit: str) -> dict[str, Any]:
    """A stacked bar for each plan."""
    return {
        "$schema": _SCHEMA,
        "title": title,
        "width": 560,
        "data": {"values": rows},
        "mark": {"type": "bar", "tooltip": True},
        "encoding": {
            "y": {"field": "plan", "type": "nominal", "sort": None, "axis": {"labelLimit": 320}},
            "x": {"field": value, "type": "quantitative", "title": unit},
            "color": {"field": "part", "type": "nominal", "sort": None},
        },
    }


def _named(plan: dict[str, Any], number: int) -> str:
    return f"{number}: {Plan(**plan)}"


def time_chart(asked: TrainAsked, report: TrainReport) -> dict[str, Any]:
    """Exposed seconds of each plan by term."""
    rows = [
        {"plan": _named(one.plan, number), "part": term.name, "seconds": term.exposed_s}
        for number, one in enumerate(report.plans, 1)
        for term in one.terms
    ]
    return _bars(rows, "seconds", f"{asked.model.name} on {report.slice}: a step", "seconds")


def memory_chart(asked: TrainAsked, report: TrainReport) -> dict[str, Any]:
    """Gigabytes of each plan by part, with the chip's limit as a line."""
    rows = [
        {"plan": _named(one.plan, number), "part": part.name, "gigabytes": part.bytes / 1e9}
        for number, one in enumerate(report.plans, 1)
        for part in one.memory
    ]
    limit = report.plans[0].hbm_limit_bytes / 1e9
    bars = _bars(rows, "gigabytes", f"{asked.model.name} on {report.slice}: memory of a chip", "GB")
    line = {
        "data": {"values": [{"limit": limit}]},
        "mark": {"type": "rule", "color": "#c0392b", "strokeWidth": 2},
        "encoding": {"x": {"field": "limit", "type": "quantitative"}},
    }
    layer = {key: bars.pop(key) for key in ("data", "mark", "encoding")}
    return bars | {"layer": [layer, line]}


def scaling_chart(asked: TrainAsked, report: TrainReport) -> dict[str, Any]:
    """Seconds of a step against chips: expected, and what perfect scaling would give."""
    from dragonscale.reports.train.extras import scaling_rows

    rows = report.scaling or scaling_rows(asked, parse_slice(report.slice), None)
    known = [row for row in rows if row.step_s is not None]
    if not known:
        raise InputError("There is no scaling to draw: nothing fits on any of the slices.")
    start = known[0]
    values = [{"chips": row.chips, "seconds": row.step_s, "what": "best plan"} for row in known]
    values += [
        {"chips": row.chips, "seconds": (start.step_s or 0.0) * start.chips / row.chips, "what": "perfect scaling"}
        for row in known
    ]
    return line_chart(values, "chips", "seconds", "what", f"{asked.model.name}: strong scaling on {report.slice}")


def layer_chart(asked: TrainAsked, report: TrainReport) -> dict[str, Any]:
    """The matrix multiplications of one layer under the best plan, as points under the chip's roof."""
    from dragonscale.training.layer_rooflines import layer_points

    job = asked.job(parse_slice(report.slice))
    plan = Plan(**report.plans[0].plan)
    return roofline_chart(job.slice.chip, layer_points(job, plan), plan.dtype)
