"""Charts of a simulated run: distributions of latencies, and the fleet over time."""

from dragonscale.blocks.charts import Chart, LineSeries, RuleLine, line_chart, together
from dragonscale.blocks.charts.amounts import amount
from dragonscale.blocks.charts.axes import Axis, log_axis, zero_axis
from dragonscale.commands.charts.roles import nothing_to_draw
from dragonscale.commands.simulate.simulate_records import SimulateReport
from dragonscale.simulation import SimulationResult

# Seconds below which nobody cares how short a wait was.
SHORTEST_S = 1e-4

# Height in pixels of each of two panels.
PANEL_HEIGHT = 170

_LATENCIES = {"queue_s": "until scheduled", "ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "whole request"}


def draw(report: SimulateReport, kind: str) -> Chart:
    """The chart that was asked for."""
    if kind == "latency":
        return latency_chart(report, report.result)
    return occupancy_chart(report, report.result)


def _fleet(report: SimulateReport) -> str:
    pools = " and ".join(f"{pool.replicas} x {pool.slice}" for pool in report.fleet)
    rate = report.rates.arrived_per_s
    return f"{pools}, {rate:.3g} requests/s arriving, {report.requests.finished:,} finished"


def latency_chart(report: SimulateReport, result: SimulationResult) -> Chart:
    """Distribution functions of latencies, with targets as vertical rules."""
    series: list[LineSeries] = []
    for name, title in _LATENCIES.items():
        points = tuple(point for point in result.curves.get(name, []) if point[0] > SHORTEST_S)
        if points:
            series.append(LineSeries(title, points))
    if not series:
        raise nothing_to_draw("no request has ended")
    # the axis holds the curves and the targets
    seconds = [point[0] for curve in series for point in curve.points]
    rules: list[RuleLine] = []
    for name, limit in report.slo.items():
        if limit > 0:
            seconds.append(limit)
            rules.append(RuleLine(limit, f"{_LATENCIES.get(name, name)} target {amount(limit, 's')}"))
    x = log_axis("time", "s", seconds)
    y = Axis("share of requests", "share", 0.0, 1.0)
    return line_chart(series, x, y, f"{report.model}: latencies", _fleet(report), rules)


def occupancy_chart(report: SimulateReport, result: SimulationResult) -> Chart:
    """The cache's occupancy, and running and waiting requests, over time."""
    shares = _series(result, {"pages": "KV cache in use", "busy": "replicas busy"})
    counts = _series(result, {"running": "running", "waiting": "waiting", "replicas": "replicas"})
    seconds = [point[0] for line in (*shares, *counts) for point in line.points]
    if not seconds:
        raise nothing_to_draw("nothing happened")
    x = Axis("time", "s", 0.0, max(seconds) or 1.0)
    largest = max((point[1] for line in counts for point in line.points), default=1.0)
    panels = [
        line_chart(shares, x, Axis("share", "share", 0.0, 1.0), "", height=PANEL_HEIGHT),
        line_chart(counts, x, zero_axis("requests", "number", [largest]), "", height=PANEL_HEIGHT),
    ]
    return together(panels, f"{report.model}: the fleet over time", _fleet(report))


def _series(result: SimulationResult, names: dict[str, str]) -> list[LineSeries]:
    lines: list[LineSeries] = []
    for name, title in names.items():
        if result.series.get(name):
            lines.append(LineSeries(title, tuple(result.series[name])))
    return lines
