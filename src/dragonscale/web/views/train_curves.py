"""Curves of a training job: a plan over sizes of the batch, the best plan over sizes of the batch, the best plan over
slices.

The last two search once for every point, so they send what they have after each; points are remembered, so that a curve
that was interrupted goes on where it was, and one about a neighbouring batch has most of them. Where the page knows the
best plan already, it gives it along, so that the slice is known without another search.
"""

import functools
import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from dragonscale.blocks.amounts import elsewhere, quantities, share
from dragonscale.commands.charts.roles import time_role
from dragonscale.commands.train.plans import plan_report
from dragonscale.commands.train.scaling import scaling_rows
from dragonscale.commands.train.train_charts import scaling_lines, scheme_crossings
from dragonscale.commands.train.train_records import PlanReport, ScalingRow
from dragonscale.physics.units import render
from dragonscale.training.advice.batch_curve import BatchCrossover, BatchCurve, batch_curve
from dragonscale.training.cost.evaluation import Job
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.plan_file import parse_plan
from dragonscale.training.search.search import search, shared
from dragonscale.web.kept import Remembered, record_key
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.cards import Card, axis, drawn, line, log_axis, mark, rule
from dragonscale.web.views.train_plan import STEP, busiest, first_plan, job_of, region_of, typed_plan, typed_slice

TOKENS = log_axis("tokens per step", "count", binary=True)
POINTS = Remembered[tuple[str, int], list["BatchPoint"]](512)
REACH = (4, 3)
"""Doublings of the batch below and above that are searched."""


def batches_panel(request: PageRequest) -> Card:
    """Seconds of a step against its tokens: expected, and at datasheet rates compute and each kind of move, with the
    crossovers."""
    _, plan_report = first_plan(request)
    if plan_report is None:
        return {"series": [], "rules": [], "marks": [], "words": []}
    _, job, plan = job_of(request)
    curve = batch_curve(job, plan)
    tokens = [float(many) * job.sequence for many in curve.sequences]

    def over_tokens(name: str, role: str, seconds: Any, dashed: bool = True) -> Card:
        points = [(x, float(y)) for x, y in zip(tokens, seconds, strict=True) if math.isfinite(y) and y > 0]
        return line(name, role, points, dashed=dashed)

    wires = [over_tokens(term, time_role(term), seconds) for term, seconds in curve.wires_s.items()]
    crossed = curve.crossovers()
    longest_s = max(
        float(curve.compute_s[-1]), *(float(seconds[-1]) for seconds in curve.wires_s.values()), plan_report.step_s
    )
    sentences = [crossover_text(cross, job.sequence) for cross in crossed]
    places = [(cross.sequences * job.sequence, time_role(cross.term)) for cross in crossed]
    rules = [rule(at, text, role) for (at, role), text in zip(places, sentences, strict=True)]
    return {
        "x": TOKENS,
        "y": log_axis("time of a step", "s", upto=8 * longest_s),  # room above the lines for what the rules say
        "series": [
            over_tokens("compute", "compute", curve.compute_s),
            *wires,
            over_tokens("expected step", "ink", curve.expected_s, dashed=False),
        ],
        "rules": rules,
        "marks": [mark(float(job.tokens), plan_report.step_s, render(plan_report.step_s, "s"))],
        "words": sentences + _ever(curve, crossed),
        "plan": typed_plan(plan),
        "about": _held(job, plan),
    }


def crossover_text(cross: BatchCrossover, sequence: int) -> str:
    """A crossover in words."""
    tokens = f"{render(cross.sequences * sequence, 'count', binary=True)} tokens"
    hides = "hide" if cross.term.endswith("s") else "hides"
    return f"{cross.term} {hides} {f'from {tokens} on' if cross.hides == 'above' else f'up to {tokens}'}"


def _ever(curve: BatchCurve, crossed: list[BatchCrossover]) -> list[str]:
    """What hides whatever the batch, or never does."""
    crossing_terms = {cross.term for cross in crossed}
    others = [(term, seconds) for term, seconds in curve.wires_s.items() if term not in crossing_terms]
    ever = [(term, "always" if (seconds <= curve.compute_s).all() else "never") for term, seconds in others]
    return [f"{term} could {when} hide under compute, whatever the batch" for term, when in ever]


def _held(job: Job, plan: Plan) -> str:
    many = job.batch / (plan.replicas * plan.microbatch)
    rounds = "one microbatch" if many == 1 else f"{many:,.4g} microbatches"
    return (
        f"The same mesh with smaller and larger microbatches, {rounds} a step as now. Dashed: at datasheet rates, "
        "each by itself. The expected step begins where a microbatch is one sequence."
    )


@dataclass(frozen=True)
class BatchPoint:
    """The best plan at one size of the batch."""

    job: Job
    plan_report: PlanReport

    @property
    def ratio(self) -> float:
        """Seconds of the busiest wires over those of compute, at datasheet rates."""
        compute, _, wires = busiest(self.plan_report)
        return wires / compute if compute else 0.0

    def row(self) -> dict[str, Any]:
        plan, region = self.plan_report.plan, region_of(self.plan_report)
        there = {"batch": f"{self.job.batch}seq", "plan": typed_plan(plan)}
        return {
            "sequences": self.job.batch,
            "tokens": float(self.job.tokens),
            **there,
            "mfu": self.plan_report.own_mfu,
            **quantities(self.plan_report, {"part": "own_mfu", "step": "step_s"}, functools.partial(elsewhere, there)),
            "divides": plan.replicas * plan.microbatch,
            "bound": region["bound"],
            "role": bound_role(self.plan_report),
            "why": region["text"],
        }


def bound_role(plan_report: PlanReport) -> str:
    """The colour of what bounds a plan at datasheet rates."""
    compute, name, wires = busiest(plan_report)
    return time_role(name) if wires > compute else "compute"


def best_batches_panel(request: PageRequest) -> Card:
    """MFU of the best plan against tokens of a step, and where the network begins to bound it; a point at a time."""
    understood, job, _ = job_of(request, brief=True)
    sizes = nearby(job.batch)
    best_points: dict[int, BatchPoint] = {}
    missing: list[int] = []
    named = {name: value for name, value in request.fields.items() if name not in ("batch", "plan")}
    question = record_key(job.stack.name, named, request.dropped)
    for done, size in enumerate(sizes):
        points = POINTS.get((question, size))
        if points is None:
            here = replace(job, batch=size)
            progress = shared(request.listener.step, done, len(sizes))
            best = search(here, understood.job.space, 1, progress, understood.job.slack).best
            points = [BatchPoint(here, plan_report(here, candidate.plan, brief=True)) for candidate in best]
            POINTS.put((question, size), points)
        if points:
            best_points[size] = points[0]
        else:
            missing.append(size)
        if done < len(sizes) - 1:
            request.send({"panel": "best_batches", "data": _best_data(best_points, missing, len(sizes))})
    return _best_data(best_points, missing, len(sizes))


def nearby(batch: int) -> list[int]:
    """The batch itself, powers of two around it, and one and a half times those: where the form's slider stops. Powers
    of two come first, and of each kind the nearest.

    >>> nearby(96)[:6]
    [96, 128, 64, 256, 32, 512]
    """
    below, above = REACH
    powers = [2**power for power in range(21) if batch / 2**below <= 2**power <= batch * 2**above]
    between = [size * 3 // 2 for size in powers[:-1] if size > 1]

    def far(size: int) -> tuple[float, int]:
        return abs(math.log(size / batch)), -size

    return list(dict.fromkeys([batch, *sorted(powers, key=far), *sorted(between, key=far)]))


def _best_data(best_points: dict[int, BatchPoint], missing: list[int], whole: int) -> Card:
    points = [best_points[size] for size in sorted(best_points)]
    rows = [point.row() for point in points]
    series = [line("best plan", "ink", [(row["tokens"], row["mfu"]) for row in rows], dots=False)]
    for bound in dict.fromkeys(row["bound"] for row in rows):
        dots = [(row["tokens"], row["mfu"]) for row in rows if row["bound"] == bound]
        roles = [row["role"] for row in rows if row["bound"] == bound]
        series.append(line(f"{bound}-bound", max(roles, key=roles.count), dots, dots=True, line=False))
    crossed = best_crossovers(points)[-1:]
    bound_text = "the best plan is communication-bound"
    return {
        "x": TOKENS,
        "y": axis("MFU", "share", zero=False),
        "series": series,
        "rules": [rule(at, f"{bound_text} {side} {render(at, 'count', binary=True)} tokens") for at, side in crossed],
        "points": rows,
        "missing": [f"{size:,} sequences: no plan is feasible" for size in sorted(missing)],
        "done": len(best_points) + len(missing),
        "whole": whole,
    }


def best_crossovers(points: list[BatchPoint]) -> list[tuple[float, str]]:
    """Tokens at which the busiest wires of the best plan take as long as its compute, interpolated between the points;
    and on which side."""
    crossings = []
    for left, right in itertools.pairwise(points):
        low, high = left.ratio, right.ratio
        if (low > 1) != (high > 1) and low > 0 and high > 0:
            part = math.log(low) / (math.log(low) - math.log(high))
            at = left.job.tokens * (right.job.tokens / left.job.tokens) ** part
            crossings.append((at, "below" if low > 1 else "above"))
    return crossings


def scaling_panel(request: PageRequest) -> Card:
    """Seconds of a step against chips: the best plan of each slice as it is found, the ideal, and the crossovers of
    schemes alone."""
    report, _ = first_plan(request, brief=True)
    understood, job, _ = job_of(request, brief=True)
    rows: list[ScalingRow] = []
    for row in scaling_rows(understood, job.slice, request.listener.step):
        rows.append(structs.replace(row, slice=typed_slice(request, row.slice)))
        request.send({"panel": "scaling", "data": _scaling_data(rows, [], job.slice.chips)})
    return _scaling_data(rows, scheme_crossings(understood, report), job.slice.chips)


def _scaling_data(rows: list[ScalingRow], crossings: list[tuple[float, str]], chips: int) -> Card:
    lines = scaling_lines(rows)
    chips_known = [at for at, _ in lines.best.points]
    longest_s = max((seconds for _, seconds in lines.best.points), default=1.0)
    inside = [crossing for crossing in crossings if chips_known and chips_known[0] < crossing[0] < chips_known[-1]]
    return {
        "x": log_axis("chips", "count"),
        "y": log_axis("time of a step", "s", upto=2.5 * longest_s),
        "series": [drawn(lines.ideal), drawn(lines.best)],
        "rules": [rule(value, text, "muted") for value, text in inside],
        "words": [text for _, text in crossings],
        "marks": [mark(point.x, point.y, point.name) for point in lines.marks],
        "rows": [_scaling_row(row, chips) for row in rows],
    }


def _scaling_row(row: ScalingRow, chips: int) -> Card:
    plan = typed_plan(parse_plan(row.plan)) if row.plan else ""
    there = functools.partial(elsewhere, {"on": row.slice, "plan": plan})
    return {
        "on": row.slice,
        "chips": row.chips,
        "here": row.chips == chips,
        "plan": plan,
        **quantities(row, STEP, there),
        "efficiency": share(row.efficiency, there(f"efficiency:{row.efficiency or 0:.6g}")),
        "bound_by": row.bound_by or "no plan fits",
    }
