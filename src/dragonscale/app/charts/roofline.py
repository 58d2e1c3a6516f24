"""The chart of `dscale roofline`: the operation, or its samples over an open dim, under the chip's roof."""

from dragonscale.app.charts.roles import chosen_kind, nothing_to_draw
from dragonscale.app.roofline_report import RooflineReport, chart_points
from dragonscale.physics.hardware import Chip
from dragonscale.sheets.charts import Chart, Roof, RoofPoint, roofline_chart
from dragonscale.sheets.charts.amounts import amount

KINDS = ("roofline",)


def draw(kind: str, asked: Chip, report: RooflineReport) -> Chart:
    """The roof of the memory that was asked for, and the points below it."""
    chosen_kind(kind, KINDS)
    if report.peak_flops_per_s is None or report.bandwidth_bytes_per_s is None:
        raise nothing_to_draw("a roofline is drawn for a chip; say which with --on")
    level = {"hbm": "HBM", "pcie": "PCIe", "dcn": "DCN"}.get(report.memory, report.memory.upper())
    roof = Roof(level, report.peak_flops_per_s, report.bandwidth_bytes_per_s)
    ops = [RoofPoint(*point) for point in chart_points(report) if point[1] > 0 and point[2] > 0]
    if len(ops) == 1:  # the title names it already
        [one] = ops
        ops = [
            RoofPoint(
                f"{amount(one.rate, 'FLOP/s')} at {amount(one.intensity, 'number')} FLOPs/byte", one.intensity, one.rate
            )
        ]
    unit = "" if report.unit == "matrix" else f", {report.unit} unit"
    return roofline_chart([roof], ops, report.expression, f"one {asked.title}, {report.compute_dtype}{unit}")
