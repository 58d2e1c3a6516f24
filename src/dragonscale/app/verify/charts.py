"""The chart of `dscale verify`: memory, FLOPs and bytes sent, planned and compiled, each as a part of
what was planned."""

from dragonscale.app.charts.kinds import chosen_kind, nothing_to_draw
from dragonscale.app.verify.view import quantity, ratio_text
from dragonscale.app.verify.words import over
from dragonscale.evidence.verify.records import VerifyLine, VerifyReport
from dragonscale.sheets.charts import Bar, Chart, bars

KINDS = ("compiled",)


def draw(kind: str, asked: object, report: VerifyReport) -> Chart:  # noqa: ARG001  the record says it all
    """Pairs of bars; quantities differ in their units, so each pair is drawn against its own plan."""
    chosen_kind(kind, KINDS)
    known = [("arguments", report.arguments), ("peak memory", report.peak), ("matmul FLOPs", report.flops)]
    known += [(f"sent over {over(one.axes)}", one.line) for one in report.axes]
    rows = [bar for name, line in known if line is not None and line.planned for bar in _pair(name, line)]
    if not rows:
        raise nothing_to_draw("nothing was compiled")
    ask = report.request
    return bars(rows, f"{ask.model} on {ask.slice}: planned and compiled", f"{ask.plan}; each of its plan", "share")


def _pair(name: str, line: VerifyLine) -> list[Bar]:
    ratio = line.compiled / line.planned
    said = f"{quantity(line.compiled, line.unit)}, {ratio_text(line.planned, line.compiled)}"
    return [
        Bar(name, 1.0, remark=quantity(line.planned, line.unit), group="planned"),
        Bar(name, ratio, remark=said, group="compiled"),
    ]
