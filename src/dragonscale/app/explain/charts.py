"""The chart of `dscale explain`: the times behind an answer, each a bar; crossovers in words below the title."""

from dragonscale.app.charts.kinds import chosen_kind, nothing_to_draw
from dragonscale.app.explain.formulas import Explanation
from dragonscale.sheets.charts import Bar, Chart, bars

KINDS = ("times",)
_BOUNDS = ("bound", "step", "total")
"""Words in the names of lines that are made of the others."""


def draw(kind: str, asked: object, report: Explanation) -> Chart:  # noqa: ARG001  the record says it all
    """Every line that is a time, in the order of the explanation."""
    chosen_kind(kind, KINDS)
    rows = [
        Bar(line.name.split(" = ")[0], line.value_si, _role(line.name))
        for line in report.lines
        if line.unit == "s" and line.value_si is not None
    ]
    if not rows:
        raise nothing_to_draw("no line of the explanation is a time with all its sizes known")
    crossing = report.crossovers[0] if report.crossovers else ""
    return bars(rows, report.subject, crossing, "s")


def _role(name: str) -> str:
    """What a line is of, by the words of its name."""
    if any(word in name for word in _BOUNDS):
        return "overhead"
    if "bytes" in name or "hbm" in name.lower():
        return "hbm"
    return "tensor" if any(word in name for word in ("latency", "bandwidth", "network", "collectives")) else "compute"
