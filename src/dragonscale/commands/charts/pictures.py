"""Charts of the smaller answers: rows out of their records, drawn by `dragonscale.blocks.charts`.

The larger answers have theirs beside them (`commands/train/train_charts.py`). A kind is one of the record's `CHARTS`.
"""

import statistics
from collections.abc import Mapping

from dragonscale.blocks import charts
from dragonscale.blocks.charts import AxisMove, Bar, Chart, LineSeries, Mark, MeshAxis, Roof, RoofPoint, RuleLine
from dragonscale.blocks.charts.amounts import amount
from dragonscale.blocks.charts.axes import log_axis
from dragonscale.blocks.charts.theme import SERIES
from dragonscale.commands.charts.roles import nothing_to_draw
from dragonscale.commands.collective_report import CollectiveReport, size_sweep
from dragonscale.commands.roofline_report import RooflineReport, chart_points
from dragonscale.commands.shard_report import MoveRow, ShardReport
from dragonscale.evidence.score import ScoreReport

# one operation


def draw_roofline(report: RooflineReport, kind: str) -> Chart:  # noqa: ARG001  there is one kind
    """The operation, or its samples over an open dim, under the roof of the memory that was asked for."""
    if report.peak_flops_per_s is None or report.bandwidth_bytes_per_s is None:
        raise nothing_to_draw("a roofline is drawn for a chip; say which with --on")
    level = {"hbm": "HBM", "pcie": "PCIe", "dcn": "DCN"}.get(report.memory, report.memory.upper())
    roof = Roof(level, report.peak_flops_per_s, report.bandwidth_bytes_per_s)
    points = [point for point in chart_points(report) if point[1] > 0 and point[2] > 0]
    if len(points) == 1:  # the title names it already
        [(_, intensity, rate)] = points
        where = f"{amount(rate, 'FLOP/s')} at {amount(intensity, 'number')} FLOPs/byte"
        points = [(where, intensity, rate)]
    subtitle = f"one {report.chip_title}, {report.compute_dtype}"
    if report.unit != "matrix":
        subtitle += f", {report.unit} unit"
    return charts.roofline_chart([roof], [RoofPoint(*point) for point in points], report.expression, subtitle)


# Curves of a collective over sizes. The terms are thin beside their bound, which is drawn last and covers the larger
# of them.
COLLECTIVE_ROLES = {"bandwidth": "fsdp", "latency": "hbm", "bound": "compute"}


def collective_lines(report: CollectiveReport, names: Mapping[str, str]) -> list[LineSeries]:
    """Seconds over bytes: the terms of a collective, dashed, and their bound; none where one chip sends nothing."""
    understood = report.asked
    curves = size_sweep(understood.kind, understood.axes, understood.mesh, understood.options)
    series: list[LineSeries] = []
    for name, role in COLLECTIVE_ROLES.items():
        if name in curves:
            label = names.get(name, f"{name} alone")
            series.append(LineSeries(label, tuple(curves[name]), role, dashed=name != "bound"))
    return series


def draw_collective(report: CollectiveReport, kind: str) -> Chart:  # noqa: ARG001  there is one kind
    """Time against size, with the regimes of latency and of bandwidth."""
    series = collective_lines(report, {"bound": "lower bound"})
    if not series or series[-1].dashed:
        raise nothing_to_draw("one chip sends nothing")
    sizes, times = zip(*series[-1].points, strict=True)
    x = log_axis("bytes of the whole array", "bytes", sizes, margin=0.0)
    y = log_axis("time", "s", [min(times) / 2, *times])
    turn = report.latency_bound_below_bytes
    rules, marks = list[RuleLine](), list[Mark]()
    if x.low < turn < x.high:
        rules.append(RuleLine(turn, f"latency-bound below {amount(turn, 'bytes')}", "muted"))
    here = Mark(report.bytes, report.lower_s, f"{amount(report.bytes, 'bytes')}: {amount(report.lower_s, 's')}")
    if x.low <= here.x <= x.high and y.low <= here.y <= y.high:
        marks.append(here)
    title = f"{report.collective.replace('_', '-')} over {', '.join(report.axes)} ({report.chips:,} chips)"
    return charts.line_chart(series, x, y, title, f"on {report.on}, at datasheet rates", rules, marks)


# Colours of mesh axes, which a user names as they like, in their order.
AXES = ("tensor", "fsdp", "data", "context", "expert", "pipe")


def axis_roles(report: ShardReport) -> dict[str, str]:
    """The colour of each axis of a mesh."""
    return {name: AXES[index % len(AXES)] for index, name in enumerate(report.mesh)}


def draw_shard(report: ShardReport, kind: str) -> Chart:
    """What each way of computing an einsum asks of compute, HBM and network; or the mesh it runs on."""
    mesh = ", ".join(f"{name}={size}" for name, size in report.mesh.items())
    title = "; ".join(line.einsum for line in report.forward)
    subtitle = f"mesh {mesh}"
    if report.on:
        subtitle += f" on {report.on}"
    if kind == "bars":
        return _shard_bars(report, title, subtitle)
    return _shard_mesh(report, title, subtitle)


def _shard_bars(report: ShardReport, title: str, subtitle: str) -> Chart:
    """The cheapest way of each einsum: compute, HBM and every collective, side by side since they may overlap."""
    roles, rows = axis_roles(report), list[Bar]()
    for line in report.forward:
        best, prefix = line.strategies[0], ""
        if len(report.forward) > 1:  # of a chain each einsum has bars of its own
            prefix = f"{line.einsum}: "
        for name, time, role in (("compute", best.math_s, "compute"), ("HBM", best.hbm_s, "hbm")):
            if isinstance(time, float) and time > 0:
                rows.append(Bar(prefix + name, time, role))
        for move in best.collectives:
            if isinstance(move.seconds, float):
                name = f"{move.collective.replace('_', '-')} over {', '.join(move.axes)}: {move.array}"
                rows.append(Bar(name, move.seconds, roles.get(move.axes[0], SERIES[1])))
    if not rows:
        raise nothing_to_draw("times need a chip (--on) and every size (--sizes)")
    return charts.bars(rows, title, f"{subtitle}: time of each resource, forward", "s")


def _shard_mesh(report: ShardReport, title: str, subtitle: str) -> Chart:
    """The mesh with the collectives of the forward and the backward pass beside each axis."""
    moves: dict[str, list[AxisMove]] = {name: [] for name in report.mesh}
    for when, rows in (("forward", report.forward_collectives), ("backward", report.backward_collectives)):
        for row in rows:
            if isinstance(row.wire_bytes_per_chip, float):
                moves[row.axes[0]].append(_move(when, row, row.wire_bytes_per_chip))
    roles = axis_roles(report)
    axes = [MeshAxis(name, size, roles[name], "", tuple(moves[name])) for name, size in report.mesh.items()]
    sizes = ", ".join(f"{name}={size:,}" for name, size in report.sizes.items())
    if sizes:
        subtitle += f", {sizes}"
    sent = "what is sent needs --sizes"
    if any(moves.values()) or sizes:
        sent = "what each chip sends"
    return charts.mesh_chart(axes, title, f"{subtitle}: {sent}", down=len(axes) == 2)


def _move(when: str, row: MoveRow, sent: float) -> AxisMove:
    text = f"{row.collective.replace('_', '-')} {row.array}, {when}"
    if len(row.axes) > 1:
        text += f" (with {', '.join(row.axes[1:])})"
    return AxisMove(text, sent, row.seconds if isinstance(row.seconds, float) else None)


# measured rows

# What the rows of each kind of file are measured in; inference has times and rates, so its axes are plain numbers.
DIMENSIONS = {"training": "s", "collectives": "s", "kernels": "s", "memory": "bytes"}


def draw_scores(report: ScoreReport, what: str) -> Chart:
    """Every scored row of a kind (training, inference …), predicted against measured, with the band of ten percent."""
    rows = [(row.measured, row.predicted, row.group or row.source, row.id) for row in report.scored]
    if not rows:
        raise nothing_to_draw("no row was scored")
    median = statistics.median(row.ape for row in report.scored)
    subtitle = f"{len(rows):,} rows, median error {median:.1%}; colours by {report.group_name}"
    title, dimension = f"Predicted against measured: {what}", DIMENSIONS.get(what, "number")
    return charts.predicted_against_measured(rows, dimension, title, subtitle)
