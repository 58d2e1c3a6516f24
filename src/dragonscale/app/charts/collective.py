"""The chart of `dscale collective`: time against size, with the regimes of latency and of bandwidth."""

from collections.abc import Sequence
from typing import Any

from dragonscale.app.charts.roles import chosen_kind, nothing_to_draw
from dragonscale.app.collective_report import CollectiveReport
from dragonscale.sheets.charts import Chart, LineSeries, Mark, RuleLine, line_chart
from dragonscale.sheets.charts.amounts import amount
from dragonscale.sheets.charts.axes import log_axis

KINDS = ("size",)
_NAMES = {"bound": "lower bound", "bandwidth": "bandwidth alone", "latency": "latency alone"}
_ROLES = {"bound": "compute", "bandwidth": "fsdp", "latency": "hbm"}


def draw(kind: str, asked: Sequence[dict[str, Any]], report: CollectiveReport) -> Chart:
    """`asked` are the rows of `size_sweep`: bytes, seconds, and which of the curves they are on."""
    chosen_kind(kind, KINDS)
    curves: dict[str, list[tuple[float, float]]] = {}
    for row in asked:
        curves.setdefault(row["what"], []).append((row["bytes"], row["seconds"]))
    if "bound" not in curves:
        raise nothing_to_draw("one chip sends nothing")
    # The terms are thin beside their bound, which covers the larger of them; both are dashed below it.
    order = [name for name in ("bandwidth", "latency", "bound") if name in curves]
    lowest = min(seconds for _, seconds in curves["bound"])
    series = [LineSeries(_NAMES[name], tuple(curves[name]), _ROLES[name], dashed=name != "bound") for name in order]
    x = log_axis("bytes of the whole array", "bytes", [size for size, _ in curves["bound"]], room=0.0)
    y = log_axis("time", "s", [lowest / 2, *(seconds for _, seconds in curves["bound"])])
    turn = report.latency_bound_below_bytes
    rules = [RuleLine(turn, f"latency-bound below {amount(turn, 'bytes')}", "muted")] if x.low < turn < x.high else []
    marks = [Mark(report.bytes, report.lower_s, f"{amount(report.bytes, 'bytes')}: {amount(report.lower_s, 's')}")]
    marks = [mark for mark in marks if x.low <= mark.x <= x.high and y.low <= mark.y <= y.high]
    over = ", ".join(report.axes)
    title = f"{report.collective.replace('_', '-')} over {over} ({report.chips:,} chips)"
    return line_chart(series, x, y, title, f"on {report.on}, at datasheet rates", rules, marks)
