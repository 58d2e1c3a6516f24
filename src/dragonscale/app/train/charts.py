"""Charts of a training plan: where time and memory go, its mesh, strong scaling, the roofline of a layer's matmuls."""

from dataclasses import replace

from dragonscale.app.charts.kinds import chosen_kind, nothing_to_draw
from dragonscale.app.charts.moves import mesh_axes
from dragonscale.app.charts.roles import memory_parts, time_parts
from dragonscale.app.train.question import TrainAsked
from dragonscale.app.train.records import PlanReport, TrainReport
from dragonscale.app.train.slices import chosen_slice, crossovers, first_verdict, scaling_rows
from dragonscale.physics.units import render
from dragonscale.sheets import charts
from dragonscale.sheets.charts.amounts import amount
from dragonscale.sheets.charts.axes import log_axis
from dragonscale.sheets.charts.chart import together
from dragonscale.training.layer_rooflines import layer_points
from dragonscale.training.plan import short_plan

LOW = 130.0
"""Pixels of the mesh's height in a figure with other things."""


def draw(kind: str, asked: TrainAsked, report: TrainReport) -> charts.Chart:
    """The chart that was asked for."""
    wanted = chosen_kind(kind, tuple(MAKERS))
    if not report.plans:
        raise nothing_to_draw("no plan is feasible")
    return MAKERS[wanted](asked, report)


def _subtitle(report: TrainReport) -> str:
    work = report.workload
    tokens = f"{render(work.batch_tokens, 'count', binary=True)} tokens a step"
    return f"{tokens} ({work.sequences:,} sequences of {work.seq:,}), {work.dtype}, stack {work.stack}"


def _stack(one: PlanReport) -> charts.PartStack:
    rows = [(term.name, term.exposed_s, max(term.expected_s - term.exposed_s, 0.0)) for term in one.terms]
    return charts.PartStack(short_plan(one.plan), time_parts(rows), f"{amount(one.step_s, 's')}, {one.mfu:.1%} MFU")


def _memory(one: PlanReport) -> charts.PartStack:
    rows = [(part.name, part.bytes) for part in one.memory]
    limit = amount(one.hbm_limit_bytes, "bytes")
    return charts.PartStack(short_plan(one.plan), memory_parts(rows), f"{amount(one.hbm_bytes, 'bytes')} of {limit}")


def time_chart(asked: TrainAsked, report: TrainReport) -> charts.Chart:
    """Exposed seconds of each plan by term, with what is hidden below."""
    title = f"{asked.model.name} on {report.slice}: a training step"
    return charts.time_bars([_stack(one) for one in report.plans], title, _subtitle(report))


def memory_chart(asked: TrainAsked, report: TrainReport) -> charts.Chart:
    """Bytes of the fullest chip of each plan by part, against what it has."""
    title = f"{asked.model.name} on {report.slice}: memory of the fullest chip"
    limit = report.plans[0].hbm_limit_bytes
    return charts.memory_bars([_memory(one) for one in report.plans], limit, title, _subtitle(report))


def mesh_picture(asked: TrainAsked, report: TrainReport) -> charts.Chart:
    """The mesh of the best plan with the collectives of each axis."""
    title = f"{short_plan(report.plans[0].plan)} on {report.slice}"
    subtitle = f"{asked.model.name}: what each chip sends in a step"
    return charts.mesh_chart(_axes(asked, report), title, subtitle, chosen_slice(asked, report).chip.title)


def _axes(asked: TrainAsked, report: TrainReport) -> list[charts.MeshAxis]:
    return mesh_axes(vars(report.plans[0].plan), first_verdict(asked, report).ledger.lines)


def scaling_chart(asked: TrainAsked, report: TrainReport) -> charts.Chart:
    """Seconds of a step against chips: the best plan of each slice, and as many chip-seconds as the most efficient of
    them.

    Rules stand where a scheme alone would be bound by its wires.
    """
    piece = chosen_slice(asked, report)
    rows = report.scaling or scaling_rows(asked, piece, None)
    known = [(row.chips, row.step_s, row.mfu or 0.0) for row in rows if row.step_s is not None]
    if not known:
        raise nothing_to_draw("nothing fits on any of the slices")
    # Small slices may have to recompute more, so the first point is not always the most efficient one.
    work, at = min((chips * seconds, chips) for chips, seconds, _ in known)
    ideal = [(chips, work / chips) for chips, _, _ in known]
    line = charts.LineSeries("best plan", tuple((chips, seconds) for chips, seconds, _ in known), "compute", dots=True)
    even = charts.LineSeries(f"ideal, from {at:,} chips", tuple(ideal), "overhead", dashed=True)
    chips = [float(one[0]) for one in known]
    x = log_axis("chips", "degree", chips)
    y = log_axis("time of a step", "s", [*(one[1] for one in known), *(seconds for _, seconds in ideal)])
    marks = [charts.Mark(number, seconds, f"{mfu:.0%} MFU", dot=False) for number, seconds, mfu in known]
    rules = [
        charts.RuleLine(value, name, "muted")
        for value, name in scheme_crossings(asked, report)
        if x.low < value < x.high
    ]
    title = f"{asked.model.name} on {piece.chip.title}: strong scaling"
    return charts.line_chart([even, line], x, y, title, _subtitle(report), rules, marks)


def scheme_crossings(asked: TrainAsked, report: TrainReport) -> list[tuple[float, str]]:
    """Chips from which each scheme alone is bound by its wires at datasheet rates."""
    every = ((scheme, chips) for scheme, _, chips in crossovers(asked, chosen_slice(asked, report)))
    return [(chips, f"{scheme} alone: network-bound from {chips:,.0f}") for scheme, chips in every if chips is not None]


def layer_chart(asked: TrainAsked, report: TrainReport) -> charts.Chart:
    """The matmuls of one layer under the best plan, as points under the chip's roof."""
    job, plan = asked.job(chosen_slice(asked, report)), report.plans[0].plan
    chip = job.slice.chip
    ops = [charts.RoofPoint(*point) for point in layer_points(job, first_verdict(asked, report).ledger)]
    title = f"{asked.model.name}: forward matmuls of a layer on {chip.title}, {plan.dtype}"
    return charts.roofline_chart(
        [charts.Roof("HBM", chip.peak(plan.dtype), chip.bandwidth("hbm"))], ops, title, short_plan(plan)
    )


def answer_chart(asked: TrainAsked, report: TrainReport) -> charts.Chart:
    """Time, memory and mesh of the recommended plan."""
    best = report.plans[0]
    time, memory = (
        replace(_stack(best), name="Time of a step"),
        replace(_memory(best), name="Memory of the fullest chip"),
    )
    parts = [
        charts.time_bars([time], "", axis=""),
        charts.memory_bars([memory], best.hbm_limit_bytes, "", axis=""),
        charts.mesh_chart(_axes(asked, report), "", chip=chosen_slice(asked, report).chip.title, height=LOW),
    ]
    heading = f"{asked.model.name} on {report.slice}: {short_plan(best.plan)}"
    return together(parts, heading, _subtitle(report), spacing=18)


MAKERS = {
    "time": time_chart,
    "memory": memory_chart,
    "mesh": mesh_picture,
    "roofline": layer_chart,
    "scaling": scaling_chart,
    "answer": answer_chart,
}
