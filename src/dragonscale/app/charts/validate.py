"""The chart of `dscale validate`: every scored row, predicted against measured, with the band of ten percent."""

import statistics

from dragonscale.app.charts.roles import chosen_kind, nothing_to_draw
from dragonscale.evidence.score import ScoreReport
from dragonscale.sheets.charts import Chart, predicted_against_measured

KINDS = ("scatter",)
DIMENSIONS = {"training": "s", "collectives": "s", "kernels": "s", "memory": "bytes"}
"""What the rows of each kind of file are measured in; inference has times and rates, so its axes are plain numbers."""


def draw(kind: str, asked: str, report: ScoreReport) -> Chart:
    """`asked` is what was scored: training, inference, serving …"""
    chosen_kind(kind, KINDS)
    rows = [(row.measured, row.predicted, row.group or row.source, row.id) for row in report.scored]
    if not rows:
        raise nothing_to_draw("no row was scored")
    median = statistics.median(row.ape for row in report.scored)
    subtitle = f"{len(rows):,} rows, median error {median:.1%}; colours by {report.group_name}"
    title = f"Predicted against measured: {asked}"
    return predicted_against_measured(rows, DIMENSIONS.get(asked, "number"), title, subtitle)
