"""Charts of a training plan, as Vega-Lite: where time and memory go, strong scaling, the roofline of a layer's lines."""

from typing import Any

from dragonscale.errors import InputError
from dragonscale.reports.train.question import TrainAsked
from dragonscale.reports.train.records import TrainReport
from dragonscale.reports.train.scaling import scaling_rows
from dragonscale.reports.train.several import chosen_slice
from dragonscale.rooflines.chart import SCHEMA, line_chart, roofline_chart
from dragonscale.training.plan import Plan


def draw(kind: str, asked: TrainAsked, report: TrainReport) -> dict[str, Any]:
    """The chart that was asked for."""
    makers = {"time": time_chart, "memory": memory_chart, "scaling": scaling_chart, "roofline": layer_chart}
    return makers[kind](asked, report)


def _bars(rows: list[tuple[str, str, float]], value: str, title: str, unit: str) -> dict[str, Any]:
    """A stacked bar for each plan: rows of the plan, the part and its value."""
    encoding = {
        "y": {"field": "plan", "type": "nominal", "sort": None, "axis": {"labelLimit": 320}},
        "x": {"field": value, "type": "quantitative", "title": unit},
        "color": {"field": "part", "type": "nominal", "sort": None},
    }
    values = [{"plan": plan, "part": part, value: number} for plan, part, number in rows]
    marks = {"data": {"values": values}, "mark": {"type": "bar", "tooltip": True}, "encoding": encoding}
    return {"$schema": SCHEMA, "title": title, "width": 560} | marks


def _named(report: TrainReport) -> list[tuple[str, Any]]:
    return [(f"{number}: {Plan(**one.plan)}", one) for number, one in enumerate(report.plans, 1)]


def time_chart(asked: TrainAsked, report: TrainReport) -> dict[str, Any]:
    """Exposed seconds of each plan by term."""
    rows = [(name, term.name, term.exposed_s) for name, one in _named(report) for term in one.terms]
    return _bars(rows, "seconds", f"{asked.model.name} on {report.slice}: a step", "seconds")


def memory_chart(asked: TrainAsked, report: TrainReport) -> dict[str, Any]:
    """Gigabytes of each plan by part, with the chip's limit as a line."""
    rows = [(name, part.name, part.bytes / 1e9) for name, one in _named(report) for part in one.memory]
    bars = _bars(rows, "gigabytes", f"{asked.model.name} on {report.slice}: memory of a chip", "GB")
    line = {
        "data": {"values": [{"limit": report.plans[0].hbm_limit_bytes / 1e9}]},
        "mark": {"type": "rule", "color": "#c0392b", "strokeWidth": 2},
        "encoding": {"x": {"field": "limit", "type": "quantitative"}},
    }
    layer = {key: bars.pop(key) for key in ("data", "mark", "encoding")}
    return bars | {"layer": [layer, line]}


def scaling_chart(asked: TrainAsked, report: TrainReport) -> dict[str, Any]:
    """Seconds of a step against chips: expected, and what perfect scaling would give."""
    rows = report.scaling or scaling_rows(asked, chosen_slice(asked, report), None)
    known = [(row.chips, row.step_s) for row in rows if row.step_s is not None]
    if not known:
        raise InputError("There is no scaling to draw: nothing fits on any of the slices.")
    work = known[0][0] * known[0][1]
    curves = {"best plan": known, "perfect scaling": [(chips, work / chips) for chips, _ in known]}
    values = [{"chips": chips, "seconds": s, "what": what} for what, points in curves.items() for chips, s in points]
    return line_chart(values, "chips", "seconds", "what", f"{asked.model.name}: strong scaling on {report.slice}")


def layer_chart(asked: TrainAsked, report: TrainReport) -> dict[str, Any]:
    """The matrix multiplications of one layer under the best plan, as points under the chip's roof."""
    from dragonscale.training.layer_rooflines import layer_points

    job, plan = asked.job(chosen_slice(asked, report)), Plan(**report.plans[0].plan)
    return roofline_chart(job.slice.chip, layer_points(job, plan), plan.dtype)
