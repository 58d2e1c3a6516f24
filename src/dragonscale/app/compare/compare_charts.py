"""Charts of a comparison: stacked bars of time and of memory, one for each side."""

from dragonscale.app.charts.roles import memory_parts, nothing_to_draw, time_parts
from dragonscale.app.compare.compare_records import CompareReport, Side
from dragonscale.app.compare.sides import seconds_of
from dragonscale.sheets.charts import Chart, PartStack, memory_bars, time_bars
from dragonscale.sheets.charts.amounts import amount


def draw(report: CompareReport, kind: str) -> Chart:
    """The chart that was asked for."""
    shown = [side for side in report.sides if side.terms]
    if not shown:
        raise nothing_to_draw("no side has a plan")
    return _time(report, shown) if kind == "time" else _memory(report, shown)


def _name(side: Side) -> str:
    return f"{side.key}: {side.label}"


def _time(report: CompareReport, sides: list[Side]) -> Chart:
    step = "a decode step" if report.kind == "serving" else "a training step"
    stacks = []
    for side in sides:
        parts = time_parts((term.name, term.exposed_s, term.hidden_s) for term in side.terms)
        stacks.append(PartStack(_name(side), parts, amount(seconds_of(side), "s")))
    return time_bars(stacks, f"{report.model}: {step}", report.workload)


def _memory(report: CompareReport, sides: list[Side]) -> Chart:
    stacks = []
    for side in sides:
        told = f"{amount(side.hbm_bytes, 'bytes')} of {amount(side.hbm_limit_bytes, 'bytes')}"
        stacks.append(PartStack(_name(side), memory_parts((part.name, part.bytes) for part in side.memory), told))
    limits = {side.hbm_limit_bytes for side in sides}
    limit = limits.pop() if len(limits) == 1 else 0.0  # a line that is not every bar's would mislead
    return memory_bars(stacks, limit, f"{report.model}: memory of the fullest chip", report.workload)
