"""Charts of a training plan: where time and memory go, its mesh, strong scaling, the roofline of a layer's matmuls."""

from collections.abc import Sequence
from dataclasses import dataclass

from dragonscale.blocks import charts
from dragonscale.blocks.charts import Chart, LineSeries, Mark, MeshAxis, PartStack, Roof, RoofPoint, RuleLine
from dragonscale.blocks.charts.amounts import amount
from dragonscale.blocks.charts.axes import log_axis
from dragonscale.blocks.sheet import several
from dragonscale.commands.charts.moves import ORDER, mesh_axes
from dragonscale.commands.charts.roles import memory_stack, nothing_to_draw, term_parts
from dragonscale.commands.train.answered_slice import chosen_slice, first_verdict
from dragonscale.commands.train.scaling import crossovers, scaling_rows
from dragonscale.commands.train.train_question import TrainRequest
from dragonscale.commands.train.train_records import PlanReport, ScalingRow, TrainReport
from dragonscale.physics.units import render
from dragonscale.training.cost.evaluation import layer_matmuls
from dragonscale.training.plan.plan import short_plan

# Pixels of the mesh's height in a figure with other things.
MESH_HEIGHT = 130.0


def draw(report: TrainReport, kind: str) -> Chart:
    """The chart that was asked for."""
    if not report.plans:
        raise nothing_to_draw("no plan is feasible")
    return KINDS[kind](report.asked, report)


def _subtitle(report: TrainReport) -> str:
    work = report.workload
    tokens = render(work.batch_tokens, "count", binary=True)
    sequences = f"{several(work.sequences, 'sequence')} of {work.seq:,}"
    return f"{tokens} tokens a step ({sequences}), {work.dtype}, stack {work.stack}"


def _stack(plan: PlanReport, name: str = "") -> PartStack:
    note = f"{amount(plan.step_s, 's')}, {plan.mfu_text}"
    return PartStack(name or short_plan(plan.plan), term_parts(plan.terms), note)


def _memory(plan: PlanReport, name: str = "") -> PartStack:
    parts = [(part.name, part.bytes) for part in plan.memory]
    return memory_stack(name or short_plan(plan.plan), parts, plan.hbm_bytes, plan.hbm_limit_bytes)


def time_chart(request: TrainRequest, report: TrainReport) -> Chart:
    """Exposed seconds of each plan by term, with what is hidden below."""
    title = f"{request.job.model.name} on {report.slice}: a training step"
    return charts.time_bars(list(map(_stack, report.plans)), title, _subtitle(report))


def memory_chart(request: TrainRequest, report: TrainReport) -> Chart:
    """Bytes of the fullest chip of each plan by part, against what it has."""
    title = f"{request.job.model.name} on {report.slice}: memory of the fullest chip"
    limit = report.plans[0].hbm_limit_bytes
    return charts.memory_bars(list(map(_memory, report.plans)), limit, title, _subtitle(report))


def mesh_picture(request: TrainRequest, report: TrainReport) -> Chart:
    """The mesh of the best plan with the collectives of each axis."""
    title = f"{short_plan(report.plans[0].plan)} on {report.slice}"
    subtitle = f"{request.job.model.name}: what each chip sends in a step"
    return charts.mesh_chart(_axes(request, report), title, subtitle, chosen_slice(request, report).chip.title)


def _axes(request: TrainRequest, report: TrainReport) -> list[MeshAxis]:
    plan = report.plans[0].plan
    degrees = {name: getattr(plan, name) for name in ORDER if hasattr(plan, name)}
    return mesh_axes(degrees, first_verdict(request, report).ledger.lines)


def scaling_chart(request: TrainRequest, report: TrainReport) -> Chart:
    """Seconds of a step against chips: the best plan of each slice, and as many chip-seconds as the most efficient of
    them.

    Rules stand where a scheme alone would be bound by its wires.
    """
    target = chosen_slice(request, report)
    lines = scaling_lines(report.scaling or list(scaling_rows(request, target, None)))
    if not lines.best.points:
        raise nothing_to_draw("nothing fits on any of the slices")
    x = log_axis("chips", "degree", [float(chips) for chips, _ in lines.best.points])
    steps = [seconds for _, seconds in (*lines.best.points, *lines.ideal.points)]
    y = log_axis("time of a step", "s", steps)
    # rules outside the drawn range of chips would widen it
    crossings = scheme_crossings(request, report)
    rules = [RuleLine(chips, name, "muted") for chips, name in crossings if x.low < chips < x.high]
    title = f"{request.job.model.name} on {target.chip.title}: strong scaling"
    return charts.line_chart([lines.ideal, lines.best], x, y, title, _subtitle(report), rules, lines.marks)


@dataclass(frozen=True)
class ScalingLines:
    """Seconds of a step over chips: the ideal, the best plan of each slice, and its MFU at each point."""

    ideal: LineSeries
    best: LineSeries
    marks: list[Mark]


def scaling_lines(rows: Sequence[ScalingRow]) -> ScalingLines:
    """The lines of strong scaling, in files and on the page."""
    planned = [(row.chips, row.step_s, row.own_mfu) for row in rows if row.step_s is not None]
    # small slices may have to recompute more, so the first point is not always the most efficient one
    chip_seconds, base = min(((chips * seconds, chips) for chips, seconds, _ in planned), default=(0.0, 0))
    ideal = tuple((chips, chip_seconds / chips) for chips, _, _ in planned)
    best = tuple((chips, seconds) for chips, seconds, _ in planned)
    return ScalingLines(
        ideal=LineSeries(f"ideal, from {base:,} chips", ideal, "overhead", dashed=True),
        best=LineSeries("best plan", best, "compute", dots=True),
        marks=[Mark(chips, seconds, f"{mfu:.0%} MFU", dot=False) for chips, seconds, mfu in planned if mfu is not None],
    )


def scheme_crossings(request: TrainRequest, report: TrainReport) -> list[tuple[float, str]]:
    """Chips from which each scheme alone is bound by its wires at datasheet rates."""
    crossings = []
    for curve in crossovers(request, chosen_slice(request, report)):
        if curve.crossover is not None:
            crossings.append((curve.crossover, f"{curve.scheme} alone: network-bound from {curve.crossover:,.0f}"))
    return crossings


def layer_chart(request: TrainRequest, report: TrainReport) -> Chart:
    """The matmuls of one layer under the best plan, as points under the chip's roof."""
    job, plan = request.job.on_slice(chosen_slice(request, report)), report.plans[0].plan
    chip = job.slice.chip
    matmuls = layer_matmuls(job, first_verdict(request, report).ledger)
    points = [RoofPoint(matmul.name, matmul.intensity, matmul.flops_per_s) for matmul in matmuls]
    title = f"{request.job.model.name}: forward matmuls of a layer on {chip.title}, {plan.dtype}"
    roof = Roof("HBM", chip.peak(plan.dtype), chip.bandwidth("hbm"))
    return charts.roofline_chart([roof], points, title, short_plan(plan))


def answer_chart(request: TrainRequest, report: TrainReport) -> Chart:
    """Time, memory and mesh of the recommended plan."""
    best, chip = report.plans[0], chosen_slice(request, report).chip.title
    parts = [
        charts.time_bars([_stack(best, "Time of a step")], "", axis=""),
        charts.memory_bars([_memory(best, "Memory of the fullest chip")], best.hbm_limit_bytes, "", axis=""),
        charts.mesh_chart(_axes(request, report), "", chip=chip, height=MESH_HEIGHT),
    ]
    heading = f"{request.job.model.name} on {report.slice}: {short_plan(best.plan)}"
    return charts.together(parts, heading, _subtitle(report), spacing=18)


KINDS = {
    "time": time_chart,
    "memory": memory_chart,
    "mesh": mesh_picture,
    "roofline": layer_chart,
    "scaling": scaling_chart,
    "answer": answer_chart,
}
"""What can be drawn; `answer` is time, memory and mesh of the recommended plan in one figure."""
