"""Pictures fit for a slide: charts as records that know no chips and no plans, only rows, names and quantities.

    theme      one palette by meaning, light and dark
    chart      the record: a Vega-Lite specification with colours by meaning; several in one figure
    save       SVG, PNG, PDF, HTML and JSON
    stacks     time and memory as stacked bars, one for each plan
    bars       plain bars, alone or in pairs
    lines      scaling, frontiers, distributions, a fleet over time, a sweep
    heat       one quantity over two parameters
    roofs      rooflines with their operations
    scatter    predicted against measured
    mesh       a mesh of chips and what its axes move
    axes, amounts, text, placing      where things go, before anything is drawn

Reports build the rows (`draw(kind, asked, report)` beside each of them) and choose the kind.
"""

from dragonscale.blocks.charts.bars import Bar, bars
from dragonscale.blocks.charts.chart import Chart, check_chart, save_chart, together
from dragonscale.blocks.charts.heat import heat_map
from dragonscale.blocks.charts.line_charts import LineSeries, Mark, RuleLine, line_chart
from dragonscale.blocks.charts.mesh import AxisMove, MeshAxis, mesh_chart
from dragonscale.blocks.charts.roofs import Roof, RoofPoint, roofline_chart
from dragonscale.blocks.charts.scatter import predicted_against_measured
from dragonscale.blocks.charts.stacks import PartStack, StackPart, memory_bars, time_bars

__all__ = [
    "AxisMove",
    "Bar",
    "Chart",
    "LineSeries",
    "Mark",
    "MeshAxis",
    "PartStack",
    "Roof",
    "RoofPoint",
    "RuleLine",
    "StackPart",
    "bars",
    "check_chart",
    "heat_map",
    "line_chart",
    "memory_bars",
    "mesh_chart",
    "predicted_against_measured",
    "roofline_chart",
    "save_chart",
    "time_bars",
    "together",
]
