"""The same job on other hardware: the slices around its own, larger batches, and a chip with better numbers."""

from collections.abc import Iterator
from dataclasses import replace

from dragonscale.app.train.advice import is_compute
from dragonscale.app.train.question import TrainAsked
from dragonscale.app.train.records import BatchRow, ChangeRow, Codesign, PlanReport, ScalingRow
from dragonscale.app.train.report import plan_report
from dragonscale.physics.hardware import Slice
from dragonscale.physics.units import render
from dragonscale.training.codesign import knobs, loss_shrinks, sensitivity, smallest_change
from dragonscale.training.evaluation import Job
from dragonscale.training.plan import Plan
from dragonscale.training.scaling import SCHEMES, around, crossover, scheme_curve, slice_sizes
from dragonscale.training.search import Progress, search, shared

REMOVED = 0.02
"""A term is out of the way when it shows with at most this share of the step."""


def scaling_rows(asked: TrainAsked, piece: Slice, progress: Progress | None) -> list[ScalingRow]:
    """The best plan on a slice and on those around it, with the same batch."""
    return list(each_scaling_row(asked, piece, progress))


def each_scaling_row(asked: TrainAsked, piece: Slice, progress: Progress | None) -> Iterator[ScalingRow]:
    """The same, one after the other."""
    base: float | None = None
    parts = around(piece)
    for done, part in enumerate(parts):
        job = asked.job(part)
        found = search(job, asked.space, 1, shared(progress, done, len(parts)), asked.slack).best
        if not found:
            yield ScalingRow(str(part), part.chips, *[None] * 6)
            continue
        plan, report = found[0].plan, plan_report(job, found[0].plan, brief=True)
        speed = job.tokens / report.step_s
        base = base or speed / part.chips
        times = report.step_s, speed, speed / part.chips / base, report.mfu
        yield ScalingRow(str(part), part.chips, str(plan), *times, report.bound_by)


def batch_rows(asked: TrainAsked, piece: Slice, plan: Plan, factors: tuple[int, ...] = (1, 2, 4, 8)) -> list[BatchRow]:
    """The same plan with the batch and its multiples."""
    rows = []
    for factor in factors:
        job = replace(asked.job(piece), batch=asked.sequences * factor)
        report = plan_report(job, plan)
        rows.append(BatchRow(job.tokens, report.step_s, report.tokens_per_s_per_chip, report.mfu, report.bound_by))
    return rows


def crossover_notes(asked: TrainAsked, piece: Slice) -> list[str]:
    """Where each scheme alone stops scaling: its wires then take longer than its compute at datasheet rates."""
    job, found = asked.job(piece), []
    pieces = slice_sizes(piece.chip, max(piece.chips * 4, 64))
    for scheme in SCHEMES:
        points = scheme_curve(job, scheme, pieces)
        chips = crossover(points) if points else None
        if chips is not None:
            at = max((one for one in points if one.chips <= chips * 2), key=lambda one: one.chips)
            tokens = f"{job.tokens / chips:,.0f} tokens a chip"
            found.append(f"{scheme} alone is bound by {at.busiest} from about {chips:,.0f} chips ({tokens}).")
        elif points:
            found.append(f"{scheme} alone stays bound by compute up to {points[-1].chips:,} chips.")
    return found


def codesign_report(asked: TrainAsked, piece: Slice, progress: Progress | None) -> Codesign:
    """Each hardware number a tenth better, and the smallest change that removes what is lost most."""
    job = asked.job(piece)
    plan = asked.plan or search(job, asked.space, 1, progress, asked.slack).best[0].plan
    report = plan_report(job, plan)
    # a better chip's fastest plan against today's fastest: that plan, recommended or not, is no merit of the chip
    fastest = next(iter(search(job, asked.space, 1, progress, slack=0.0).best), None)
    base, before = (plan, report.step_s) if fastest is None else (fastest.plan, fastest.seconds)
    rows = []
    for change in sensitivity(job, asked.space, base, before, progress):
        faster = before / change.seconds - 1
        why = "nothing" if faster < 5e-4 else "same plan" if change.plan == base else str(change.plan)
        what, paths = f"10% more {change.knob.title}", ",".join(change.knob.paths)
        rows.append(ChangeRow(what, paths, change.factor, change.seconds, faster, why))
    return Codesign(rows, _removal(job, plan, report))


def _removal(job: Job, plan: Plan, report: PlanReport) -> str:
    """The cheapest change that takes the largest loss out of the way."""
    aside = ("stragglers", "uneven stages")
    lost = next((row for row in report.terms if not is_compute(row.name) and row.name not in aside), None)
    if lost is None or lost.exposed_s <= REMOVED * report.step_s:
        return "Nothing but compute takes more than 2% of the step; only more FLOP/s help."
    gone = f"{lost.name} under 2% of the step"
    change = smallest_change(job, plan, loss_shrinks(lost.name, REMOVED))
    if change is None:
        names = ", ".join(knob.title for knob in knobs(job.slice))
        return f"No single number of the chip ({names}), raised up to eight times, brings {gone}."
    before, after = render(report.step_s, "s"), render(change.seconds, "s")
    return f"{change.factor:g} times the {change.knob.title} brings {gone}: {before} becomes {after}."
