"""Charts of the smaller answers: rows out of their records, drawn by `dragonscale.blocks.charts`.

The larger answers have theirs beside them (`commands/train/train_charts.py`). A kind is one of the record's `CHARTS`.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence

from dragonscale.blocks import charts
from dragonscale.blocks.charts import AxisMove, Bar, Chart, LineSeries, Mark, MeshAxis, Roof, RoofPoint, RuleLine
from dragonscale.blocks.charts.amounts import amount
from dragonscale.blocks.charts.axes import log_axis
from dragonscale.blocks.charts.theme import SERIES
from dragonscale.commands.charts.roles import nothing_to_draw
from dragonscale.commands.chips_report import ChipReport, ChipsReport
from dragonscale.commands.collective_report import CollectiveReport, size_sweep
from dragonscale.commands.roofline_report import RooflineReport, chart_points
from dragonscale.commands.shard_report import MoveRow, ShardReport
from dragonscale.evidence.score import ScoreReport

# chips

# Roofs that one picture can tell apart; of more the newest are drawn.
MOST = 8
# Bytes a second inside a node of the slowest GPU among the roofs of many chips: cards that PCIe alone joins (128 GB/s
# both ways at most) are left out.
LINK = 1e11
# Roofs within this factor are drawn as one.
ALIKE = 1.2
_CHIP_BARS = {
    "flops": ("bf16 peak", "bf16_flops_per_s", "FLOP/s", "compute"),
    "hbm": ("memory", "hbm_bytes", "bytes", "hbm"),
    "bandwidth": ("memory bandwidth", "hbm_bytes_per_s", "bytes/s", "hbm"),
}


def draw_chips(report: ChipReport | ChipsReport, kind: str) -> Chart:
    """The roofs of one chip's formats or of several chips, or bars of what they have."""
    chips = [report] if isinstance(report, ChipReport) else report.chips
    if not chips:
        raise nothing_to_draw("no chip is named")
    if kind == "roofs":
        return _formats_chart(chips[0]) if len(chips) == 1 else _roofs_chart(chips)
    title, field, dimension, role = _CHIP_BARS[kind]
    rows = [Bar(chip.title, getattr(chip, field), role) for chip in chips]
    if len(chips) == 1:
        return charts.bars(rows, f"{title} of {chips[0].title}", "", dimension)
    return charts.bars(rows, f"{title} of {len(chips)} chips", "TPUs first, then by date of release", dimension)


def roofs_by_peak(peaks: Iterable[tuple[str, float]], bandwidth: float) -> list[Roof]:
    """A roof for each rate, the highest first: formats of the same rate are one roof."""
    names: dict[float, list[str]] = {}
    for name, peak in peaks:
        names.setdefault(peak, []).append(name)
    highest = sorted(names.items(), key=lambda roof: -roof[0])[:MOST]
    return [Roof(", ".join(alike), peak, bandwidth) for peak, alike in highest]


def _formats_chart(chip: ChipReport) -> Chart:
    """Every format of one chip over its HBM."""
    rates = [(fact.path.removeprefix("matrix."), fact.value) for fact in chip.facts if fact.unit == "FLOP/s"]
    peaks = [(name.replace(".", " "), rate) for name, rate in rates if isinstance(rate, float)]
    over = f"over HBM at {amount(chip.hbm_bytes_per_s, 'bytes/s')}, datasheet rates"
    roofs = roofs_by_peak(peaks, chip.hbm_bytes_per_s)
    return charts.roofline_chart(roofs, [], f"{chip.title}: roofs by format", over)


def _roofs_chart(chips: Sequence[ChipReport]) -> Chart:
    """bf16 over HBM of several chips, those that could not be told apart as one roof; of many, those that are rented
    and scale beyond PCIe."""
    if len(chips) > MOST:
        chips = [chip for chip in chips if chip.price_usd_per_h and _scales(chip)]
    # chips whose roofs could not be told apart, each group by its fastest chip
    groups: list[list[ChipReport]] = []
    for chip in sorted(chips, key=lambda chip: (-chip.bf16_flops_per_s, -chip.hbm_bytes_per_s)):
        alike = next((group for group in groups if _alike(group[0], chip)), None)
        if alike is None:
            groups.append([chip])
        else:
            alike.append(chip)
    newest = sorted(groups, key=lambda group: max(chip.released for chip in group))[-MOST:]
    roofs: list[Roof] = []
    for group in groups:
        if group in newest:
            name = ", ".join(chip.name for chip in group[:3])
            if len(group) > 3:
                name += f" and {len(group) - 3} more"
            rates = f"{_span(group, 'bf16_flops_per_s', 'FLOP/s')}, {_span(group, 'hbm_bytes_per_s', 'bytes/s')}"
            roofs.append(Roof(name, group[0].bf16_flops_per_s, group[0].hbm_bytes_per_s, rates))
    subtitle = "datasheet rates; a line is that of its first chip"
    if len(groups) > MOST:
        subtitle += f"; the {MOST} newest lines"
    return charts.roofline_chart(roofs, [], "Roofs of chips, bf16 over HBM", subtitle)


def _span(group: Sequence[ChipReport], field: str, unit: str) -> str:
    """A rate of chips drawn as one: the least and the most of them."""
    low, high = (amount(pick(getattr(chip, field) for chip in group), unit) for pick in (min, max))
    if low == high:
        return low
    return f"{low.removesuffix(high.lstrip('0123456789.,')).rstrip()} to {high}"


def _scales(chip: ChipReport) -> bool:
    """Whether links of its own join a chip to its neighbours."""
    inside = next((fact.value for fact in chip.facts if fact.path.startswith("levels.")), 0.0)
    return chip.kind == "tpu" or (isinstance(inside, float) and inside > LINK)


def _alike(first: ChipReport, other: ChipReport) -> bool:
    ratios = first.bf16_flops_per_s / other.bf16_flops_per_s, first.hbm_bytes_per_s / other.hbm_bytes_per_s
    return all(1 / ALIKE < ratio < ALIKE for ratio in ratios)


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
    unit = "" if report.unit == "matrix" else f", {report.unit} unit"
    subtitle = f"one {report.chip_title}, {report.compute_dtype}{unit}"
    return charts.roofline_chart([roof], [RoofPoint(*point) for point in points], report.expression, subtitle)


# Curves of a collective over sizes. The terms are thin beside their bound, which is drawn last and covers the larger
# of them.
COLLECTIVE_ROLES = {"bandwidth": "fsdp", "latency": "hbm", "bound": "compute"}


def collective_lines(report: CollectiveReport, names: Mapping[str, str]) -> list[LineSeries]:
    """Seconds over bytes: the terms of a collective, dashed, and their bound; none where one chip sends nothing."""
    understood = report.asked
    curves = size_sweep(understood.kind, understood.axes, understood.mesh, understood.options)
    return [
        LineSeries(names.get(name, f"{name} alone"), tuple(curves[name]), role, dashed=name != "bound")
        for name, role in COLLECTIVE_ROLES.items()
        if name in curves
    ]


def draw_collective(report: CollectiveReport, kind: str) -> Chart:  # noqa: ARG001  there is one kind
    """Time against size, with the regimes of latency and of bandwidth."""
    series = collective_lines(report, {"bound": "lower bound"})
    if not series or series[-1].dashed:
        raise nothing_to_draw("one chip sends nothing")
    sizes, times = zip(*series[-1].points, strict=True)
    x = log_axis("bytes of the whole array", "bytes", sizes, margin=0.0)
    y = log_axis("time", "s", [min(times) / 2, *times])
    turn = report.latency_bound_below_bytes
    rules = []
    if x.low < turn < x.high:
        rules = [RuleLine(turn, f"latency-bound below {amount(turn, 'bytes')}", "muted")]
    here = Mark(report.bytes, report.lower_s, f"{amount(report.bytes, 'bytes')}: {amount(report.lower_s, 's')}")
    marks = []
    if x.low <= here.x <= x.high and y.low <= here.y <= y.high:
        marks = [here]
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
    subtitle = f"mesh {mesh}" + (f" on {report.on}" if report.on else "")
    return (_shard_bars if kind == "bars" else _shard_mesh)(report, title, subtitle)


def _shard_bars(report: ShardReport, title: str, subtitle: str) -> Chart:
    """The cheapest way of each einsum: compute, HBM and every collective, side by side since they may overlap."""
    roles, rows = axis_roles(report), list[Bar]()
    for line in report.forward:
        best, prefix = line.strategies[0], f"{line.einsum}: " if len(report.forward) > 1 else ""
        resources = (("compute", best.math_s, "compute"), ("HBM", best.hbm_s, "hbm"))
        rows += [
            Bar(prefix + name, time, role) for name, time, role in resources if isinstance(time, float) and time > 0
        ]
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
    with_sizes = f"{subtitle}, {sizes}" if sizes else subtitle
    if any(moves.values()) or report.sizes:
        sent = "what each chip sends"
    else:
        sent = "what is sent needs --sizes"
    return charts.mesh_chart(axes, title, f"{with_sizes}: {sent}", down=len(axes) == 2)


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
