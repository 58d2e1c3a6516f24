"""Charts of a comparison: stacked bars of time and of memory, one for each side."""

from dragonscale.blocks.charts import Chart, PartStack, memory_bars, time_bars
from dragonscale.blocks.charts.amounts import amount
from dragonscale.commands.charts.roles import memory_stack, nothing_to_draw, time_parts
from dragonscale.commands.compare.compare_records import CompareReport, Side
from dragonscale.commands.compare.sides import seconds_of


def draw(report: CompareReport, kind: str) -> Chart:
    """The chart that was asked for."""
    shown = [side for side in report.sides if side.terms]
    if not shown:
        raise nothing_to_draw("no side has a plan")
    if kind == "time":
        if report.kind == "serving":
            step = "a decode step"
        else:
            step = "a training step"
        return time_bars(list(map(_time, shown)), f"{_where(report)}: {step}", report.workload)
    limits = {side.hbm_limit_bytes for side in shown}
    # a line that is not every bar's would mislead
    limit = 0.0
    if len(limits) == 1:
        limit = limits.pop()
    title = f"{_where(report)}: memory of the fullest chip"
    return memory_bars(list(map(_memory, shown)), limit, title, report.workload)


def _where(report: CompareReport) -> str:
    """The model, and the slice where all sides run on the same."""
    slices = {side.slice for side in report.sides}
    if len(slices) == 1:
        return f"{report.model} on {slices.pop()}"
    return report.model


def _time(side: Side) -> PartStack:
    parts = time_parts((term.name, term.exposed_s, term.hidden_s) for term in side.terms)
    return PartStack(f"{side.key}: {side.label}", parts, amount(seconds_of(side), "s"))


def _memory(side: Side) -> PartStack:
    parts = [(part.name, part.bytes) for part in side.memory]
    return memory_stack(f"{side.key}: {side.label}", parts, side.hbm_bytes, side.hbm_limit_bytes)
