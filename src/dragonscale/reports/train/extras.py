"""Answers around a plan: other slices, better hardware, and the planner asked backwards."""

from dataclasses import replace

from dragonscale.errors import InputError
from dragonscale.hardware import Slice
from dragonscale.models.transformer import count_parameters
from dragonscale.reports.train.advice import is_compute
from dragonscale.reports.train.best import best_report
from dragonscale.reports.train.question import TrainAsked
from dragonscale.reports.train.records import BatchRow, ChangeRow, Codesign, ScalingRow, TrainReport
from dragonscale.reports.train.report import plan_report, search_report, workload_of
from dragonscale.training.codesign import knobs, loss_shrinks, sensitivity, smallest_change
from dragonscale.training.evaluation import Job
from dragonscale.training.inverse import Fit, cheapest_slice, fewest_chips, fits, largest_batch, largest_model
from dragonscale.training.plan import Plan
from dragonscale.training.scaling import SCHEMES, around, crossover, scheme_curve, slice_sizes
from dragonscale.training.search import Progress, search
from dragonscale.units import render

REMOVED = 0.02
"""A term is out of the way when it shows with at most this share of the step."""


def scaling_rows(asked: TrainAsked, piece: Slice, progress: Progress | None) -> list[ScalingRow]:
    """The best plan on a slice and on those around it, with the same batch."""
    rows: list[ScalingRow] = []
    base: float | None = None
    for part in around(piece):
        job = asked.job(part)
        found = search(job, asked.space, 1, progress)
        if not found.best:
            rows.append(ScalingRow(str(part), part.chips, None, None, None, None, None, None))
            continue
        report = plan_report(job, found.best[0].plan)
        speed = job.tokens / report.step_s
        base = base or speed / part.chips
        rows.append(
            ScalingRow(
                str(part),
                part.chips,
                str(found.best[0].plan),
                report.step_s,
                speed,
                speed / part.chips / base,
                report.mfu,
                report.bound_by,
            )
        )
    return rows


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
        if not points:
            continue
        chips = crossover(points)
        if chips is None:
            found.append(f"{scheme} alone stays bound by compute up to {points[-1].chips:,} chips.")
        else:
            at = max((one for one in points if one.chips <= chips * 2), key=lambda one: one.chips)
            found.append(
                f"{scheme} alone is bound by {at.busiest} from about {chips:,.0f} chips "
                f"({job.tokens / chips:,.0f} tokens a chip)."
            )
    return found


def codesign_report(asked: TrainAsked, piece: Slice, progress: Progress | None) -> Codesign:
    """Each hardware number a tenth better, and the smallest change that removes what is lost most."""
    job = asked.job(piece)
    plan = asked.plan
    if plan is None:
        plan = search(job, asked.space, 1, progress).best[0].plan
    report = plan_report(job, plan)
    rows = []
    for change in sensitivity(job, asked.space, plan, report.step_s, progress):
        faster = report.step_s / change.seconds - 1
        why = "nothing" if faster < 5e-4 else "same plan" if change.plan == plan else str(change.plan)
        rows.append(
            ChangeRow(
                f"10% more {change.knob.title}", ",".join(change.knob.paths), change.factor, change.seconds, faster, why
            )
        )
    return Codesign(rows, _removal(job, report))


def _removal(job: Job, report) -> str:
    """The cheapest change that takes the largest loss out of the way."""
    aside = ("stragglers", "uneven stages")
    lost = next((row for row in report.terms if not is_compute(row.name) and row.name not in aside), None)
    if lost is None or lost.exposed_s <= REMOVED * report.step_s:
        return "Nothing but compute takes more than 2% of the step; only more FLOP/s help."
    plan = Plan(**report.plan)
    change = smallest_change(job, plan, loss_shrinks(lost.name, REMOVED))
    if change is None:
        names = ", ".join(knob.title for knob in knobs(job.slice))
        return f"No single number of the chip ({names}), raised up to eight times, brings {lost.name} under 2% of the step."
    return (
        f"{change.factor:g} times the {change.knob.title} brings {lost.name} under 2% of the step: "
        f"{render(report.step_s, 's')} becomes {render(change.seconds, 's')}."
    )


def _of_fit(asked: TrainAsked, fit: Fit, sentence: str, progress: Progress | None) -> TrainReport:
    """A full report on the slice that was found."""
    found = search(fit.job, asked.space, asked.question.top, progress)
    report = search_report(fit.job, found, asked.space.words, asked.tokens)
    report.notes.append(sentence)
    return report


def _nothing(asked: TrainAsked, job: Job, sentence: str) -> TrainReport:
    work = workload_of(job, asked.space.words, asked.tokens)
    return TrainReport(asked.model.name, asked.question.on, work, 0, 0.0, [], 0, {}, [], [sentence])


def fewest_report(asked: TrainAsked, progress: Progress | None) -> TrainReport:
    """`--on h100`: the smallest slice that holds the job, or meets the deadline."""
    chip = asked.chip
    assert chip is not None
    job = asked.job(slice_sizes(chip, 10**6)[0])
    fit = fewest_chips(job, chip, asked.space, asked.deadline, asked.tokens, progress)
    goal = "hold the job" if asked.deadline is None else f"meet the deadline of {asked.question.deadline}"
    if fit is None:
        return _nothing(asked, job, f"No slice of {chip.title} that was tried can {goal}.")
    return _of_fit(asked, fit, f"{fit.job.slice} is the smallest slice of {chip.title} that can {goal}.", progress)


def cheapest_report(asked: TrainAsked, progress: Progress | None) -> TrainReport:
    """`--on any`: the cheapest slice of the catalogue."""
    from dragonscale.hardware import parse_slice

    if asked.tokens is None and asked.deadline is None:
        raise InputError("--on any looks for the cheapest slice; say for which run with --tokens 15T.")
    job = asked.job(parse_slice("v5e:4x4"))
    ranked = cheapest_slice(job, deadline=asked.deadline, tokens=asked.tokens, progress=progress)
    if not ranked:
        return _nothing(asked, job, "No slice of any chip with a known price can do this run.")
    listed = "; ".join(
        f"{fit.job.slice} ${(fit.cost or 0) / 1e6:,.2f}M in {render(fit.seconds, 's')}" for fit in ranked[:6]
    )
    return _of_fit(asked, ranked[0], f"Cheapest by chip, at list prices: {listed}.", progress)


def cheapest_of(asked: TrainAsked, pieces: list[Slice], progress: Progress | None) -> TrainReport:
    """`--rank cost`: the slice or a part of it, whichever costs least for each token."""
    job = asked.job(pieces[-1])
    every = list(fits(job, pieces, asked.space, None, progress))
    if not every:
        return best_report(asked, job, progress)
    price = pieces[-1].chip.price
    best = min(every, key=lambda fit: fit.best.seconds * fit.job.slice.chips)
    spent = best.best.seconds * best.job.slice.chips / 3600 / (best.job.tokens / 1e6)
    worth = f"${spent * price:.4f}" if price is not None else f"{spent:.5f} chip-hours"
    sentence = f"Of {pieces[-1]} and its parts, {best.job.slice} costs least: {worth} for a million tokens."
    return _of_fit(asked, best, sentence, progress)


def largest_report(asked: TrainAsked, progress: Progress | None) -> TrainReport:
    """`--largest batch` or `--largest model`."""
    job = asked.job()
    if asked.question.largest == "batch":
        fit = largest_batch(job, asked.space, progress)
        if fit is None:
            return best_report(asked, job, progress)
        sentence = (
            f"At most {fit.job.batch:,} sequences ({fit.job.tokens:,} tokens) fit {job.slice} in one pass; "
            f"larger batches take several."
        )
    else:
        fit = largest_model(job, asked.space, progress)
        if fit is None:
            return best_report(asked, job, progress)
        total = count_parameters(fit.job.model).total
        sentence = f"The deepest {asked.model.name} that trains on {job.slice} has {fit.job.model.n_layers} layers and {total / 1e9:,.0f}B parameters."
    report = plan_report(fit.job, fit.best.plan, asked.tokens)
    work = workload_of(fit.job, asked.space.words, asked.tokens)
    return TrainReport(fit.job.model.name, str(job.slice), work, 0, 0.0, [report], 1, {}, [], [sentence])
