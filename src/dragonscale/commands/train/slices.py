"""The same job on other hardware: several slices (`--on h100:64,v5p:4x4x8`, `--on any`), the fewest chips or the
cheapest part of a slice, the largest batch or model, slices around its own, and a chip with better numbers."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from dragonscale.blocks.sheet import signed_percent
from dragonscale.commands.given import slice_of
from dragonscale.commands.questions.flag import written
from dragonscale.commands.train import train_records as records
from dragonscale.commands.train.advice import worked_terms
from dragonscale.commands.train.plans import best_report, plan_report, slices_note, stack_row, stack_rows, workload_of
from dragonscale.commands.train.train_question import TrainAsked
from dragonscale.errors import Infeasible, InputError, shorten
from dragonscale.models.transformer import count_parameters
from dragonscale.physics.hardware import Slice
from dragonscale.physics.hardware.catalogue import chip_path, load_chip
from dragonscale.physics.hardware.changes import PROFILE, split_changes
from dragonscale.physics.units import DAY, render
from dragonscale.training.advice.budget import planned_run
from dragonscale.training.advice.codesign import knobs, loss_shrinks, sensitivity, smallest_change
from dragonscale.training.advice.inverse import Fit, fewest_chips, fits, largest_batch, largest_model, run_seconds
from dragonscale.training.advice.overtaking import SHOWN, overtaking, price_where
from dragonscale.training.advice.scaling import (
    SCHEMES,
    Point,
    around,
    between,
    crossover,
    parts_of,
    scheme_curve,
    slice_sizes,
)
from dragonscale.training.advice.targets import LONGEST_RUN_S, Tried, compare
from dragonscale.training.cost.evaluation import Job, Verdict, judge_one
from dragonscale.training.plan.plan import Plan, short_plan
from dragonscale.training.search.run_kinds import UNNAMED
from dragonscale.training.search.search import Progress, search, shared
from dragonscale.training.search.stack_search import search_stacks


def several_report(asked: TrainAsked, progress: Progress | None) -> records.TrainReport:
    """The recommended plan on every slice, best first by `--rank` (the cheapest, where every chip was meant)."""
    rank = "cost" if asked.everywhere else asked.question.rank
    limits = {"deadline": asked.deadline, "tokens": asked.tokens}
    tried = compare(asked.job, asked.targets.values(), asked.space, rank, asked.slack, **limits, progress=progress)
    rows = [slice_row(one, asked.tokens) for one in tried]
    best = tried[0]
    if best.best is None:
        goal = "can do this run" if asked.deadline is None else f"meets the deadline of {asked.question.deadline}"
        report = _nothing(asked, best.job, f"No slice of those tried {goal}.")
        report.slices = rows
        return report
    report = best_report(asked, best.job)
    report.slices, report.answer = rows, _ahead(rows, rank)
    notes = [f"{report.slice}: {text}" for text in report.notes]
    long = _too_long(rows) if rank == "cost" and asked.deadline is None else []
    report.notes = [*notes, *long, *slices_note(rows), *_not_modelled(tried), *_cheaper(tried)]
    return report


def _too_long(rows: list[records.SliceRow]) -> list[str]:
    """That the best of several slices takes more than a year, or which cheaper one was passed over as it does; else
    that longer runs would have been."""
    best = rows[0]
    limit = LONGEST_RUN_S / DAY
    if best.days is not None and best.days > limit:
        return [f"No run ends within a year: on {best.slice} it takes {_run_length(best.days * DAY)}."]
    for row in rows[1:]:
        cheaper = row.cost_usd is not None and best.cost_usd is not None and row.cost_usd < best.cost_usd
        if cheaper and row.days is not None and row.days > limit:
            less = 1 - (row.cost_usd or 0.0) / (best.cost_usd or 1.0)
            return [
                f"{row.slice} would cost {less:.1%} less and take {_run_length(row.days * DAY)}: runs of more than a "
                "year come after shorter ones."
            ]
    if best.days is None:
        return []
    return [
        "Runs of more than a year come after shorter ones, and of bare chips the slices that end within a year are "
        "compared; --deadline asks for another limit."
    ]


def _run_length(seconds: float) -> str:
    """How long a run takes, in years too where there are several.

    >>> _run_length(30 * DAY), _run_length(2343 * DAY)
    ('30 days', '2,343 days (6.4 years)')
    """
    days = seconds / DAY
    text = f"{days:,.0f} days" if days >= 2 else f"{days * 24:,.1f} hours"
    return f"{text} ({days / 365:.1f} years)" if days > 365 else text


NEXT_BEST = 3
"""Slices that are held against the best in the answer's first lines."""


def _ahead(rows: list[records.SliceRow], rank: str) -> str:
    """The best of several slices, and how far the next ones are behind it."""
    planned = [(row, row.step_s) for row in rows if row.step_s]
    best, least = planned[0]
    behind = []
    for row, step in planned[1 : NEXT_BEST + 1]:
        much = (signed_percent(step / least - 1) or "as fast") if step < 2 * least else f"{step / least:.2g}x"
        dollars = ""
        if row.usd_per_mtok and best.usd_per_mtok:
            dearer = signed_percent(row.usd_per_mtok / best.usd_per_mtok - 1)
            dollars = f", dollars {dearer}" if dearer else ", at the same dollars"
        behind.append(f"; {row.slice} takes {render(step, 's')} a step ({much}){dollars}")
    named = f"the {'cheapest' if rank == 'cost' else 'fastest'} of {len(rows)}" if behind else f"alone of {len(rows)}"
    return f"{best.slice}, {named}{''.join(behind)}"


def _not_modelled(tried: list[Tried]) -> list[str]:
    """The slices whose steps are those of no trainer, with the reason."""
    return [
        f"{one.job.slice}: {one.job.auto}, so its step is that of a careful program that nobody has."
        for one in tried
        if one.job.auto and one.job.stack.name in UNNAMED and one.best is not None
    ]


def _cheaper(tried: list[Tried]) -> list[str]:
    """The prices at which the other slices would cost less than the cheapest."""
    priced = [one for one in tried if one.usd_per_mtok is not None and one.roomy]
    best = min(priced, key=lambda one: one.usd_per_mtok or 0.0, default=None)
    if best is None or best.usd_per_mtok is None:
        return []
    chip = best.job.slice.chip.name
    others = [one for one in tried if one.roomy and one.job.slice.chip.name != chip][:SHOWN]
    return [
        price_where(str(one.job.slice), str(best.job.slice), best.usd_per_mtok, each, one.job.slice.chip.price)
        for one in others
        if (each := (one.tokens_per_s or 0.0) / one.job.slice.chips)
    ]


def slice_row(one: Tried, tokens: float | None) -> records.SliceRow:
    """A slice in numbers."""
    job, best, name = one.job, one.best, str(one.job.slice)
    if best is None:
        where = name if one.searched else job.slice.chip.name
        return records.SliceRow(where, job.slice.chips, *[None] * 7, note=one.note)
    price = job.slice.chip.price
    own, *others = stack_rows(one.stacks, why=False)
    days = cost = None
    with suppress(Infeasible):  # of a run that failures leave no time, nothing is said
        if tokens:
            run = planned_run(job, best.plan, run_seconds(job, best.seconds, tokens))
            days, cost = run.seconds / DAY, run.dollars(job.slice)
    numbers = own.step_s, one.tokens_per_s, own.mfu, one.usd_per_mtok, days, cost
    priced = "no price known" if price is None else ""
    row = name, job.slice.chips, own.plan, *numbers, priced, own.stack, others, own.tight
    return records.SliceRow(*row, mfu_of_dtype=own.mfu_of_dtype)


def chosen_slice(asked: TrainAsked, report: records.TrainReport) -> Slice:
    """The slice that a report is about, whatever file its chip came from."""
    if asked.piece is not None and str(asked.piece) == report.slice:
        return asked.piece
    return slice_of(report.slice, (chip for chip, _ in asked.targets.values()))


def first_verdict(asked: TrainAsked, report: records.TrainReport) -> Verdict:
    """What the first plan of a report was read off; judged again where the report comes from elsewhere."""
    best = report.plans[0]
    return best.verdict or judge_one(asked.job(chosen_slice(asked, report)), best.plan)


def written_slice(asked: TrainAsked, report: records.TrainReport | records.Neighbour) -> str:
    """The slice as a command reads it: with the path of its chip's file, where it has one."""
    name, _, topology = report.slice.rpartition(":")
    paths = [text for text, (chip, _) in asked.targets.items() if chip.name == name and chip_path(text)]
    return f"{chip_path(paths[0])}:{topology}" if paths else report.slice


# The planner asked backwards: the fewest chips, the cheapest part of a slice, the largest batch or model.


def _of_fit(asked: TrainAsked, fit: Fit, sentence: str, progress: Progress | None) -> records.TrainReport:
    """A full report on the slice that was found."""
    report = best_report(asked, fit.job, progress)
    report.answer = sentence
    return report


def _nothing(asked: TrainAsked, job: Job, sentence: str) -> records.TrainReport:
    work = workload_of(job, asked.space.words, asked.tokens)
    return records.TrainReport(asked.model.name, written(asked.question.on), work, 0, 0.0, [], 0, {}, [], [sentence])


def fewest_report(asked: TrainAsked, progress: Progress | None) -> records.TrainReport:
    """`--on h100`: the smallest slice that holds the job, or meets the deadline."""
    chip = asked.chip
    assert chip is not None
    job = asked.job(slice_sizes(chip, 10**6)[0])
    fit = fewest_chips(job, chip, asked.space, asked.deadline, asked.tokens, progress)
    goal = "hold the job" if asked.deadline is None else f"meet the deadline of {asked.question.deadline}"
    if fit is None:
        return _nothing(asked, job, f"No slice of {chip.title} that was tried can {goal}.")
    return _of_fit(asked, fit, f"{fit.job.slice} is the smallest slice of {chip.title} that can {goal}.", progress)


def cheapest_part(asked: TrainAsked, progress: Progress | None) -> records.TrainReport:
    """`--rank cost`: the slice or a part of it, whichever costs least for each token; of a run whose tokens are known,
    among those that end within a year, where some do."""
    job = asked.job()
    pieces = [*parts_of(job.slice), job.slice]
    every = [fit for fit in fits(job, pieces, asked.space, asked.tokens, progress) if fit.roomy]
    if not every:
        return best_report(asked, job, progress)
    cheapest = min(every, key=_chip_seconds)
    in_time = [fit for fit in every if asked.tokens is None or fit.seconds <= LONGEST_RUN_S]
    best = min(in_time, key=_chip_seconds) if in_time else cheapest
    least = "costs least" if best is cheapest else "costs least within a year"
    sentence = f"Of {job.slice} and its parts, {best.job.slice} {least}: {_worth_of(best)} for a million tokens"
    if asked.tokens is not None:
        sentence += f", {_run_length(best.seconds)} in all"
        if not in_time:
            shortest = min(every, key=lambda fit: fit.seconds)
            sentence += f"; no part ends within a year, the shortest run takes {_run_length(shortest.seconds)}"
            sentence += f" ({shortest.job.slice}); --on {job.slice.chip.name} --deadline 365d finds enough chips"
        elif best is not cheapest:
            less = 1 - _chip_seconds(cheapest) / _chip_seconds(best)
            sentence += f"; {cheapest.job.slice} would cost {less:.1%} less and take {_run_length(cheapest.seconds)}"
    report = _of_fit(asked, best, f"{sentence}.", progress)
    report.idle_chips = job.slice.chips - best.job.slice.chips
    if report.idle_chips:
        report.notes.append(f"{report.idle_chips:,} of the {job.slice.chips:,} chips of {job.slice} are left idle.")
    return report


def _chip_seconds(fit: Fit) -> float:
    """What a step costs in seconds of a chip."""
    return fit.best.seconds * fit.job.slice.chips


def _worth_of(fit: Fit) -> str:
    """What a million tokens cost, in dollars where the chip has a price."""
    spent = _chip_seconds(fit) / 3600 / (fit.job.tokens / 1e6)
    price = fit.job.slice.chip.price
    return f"${spent * price:.4f}" if price is not None else f"{spent:.5f} chip-hours"


def largest_report(asked: TrainAsked, progress: Progress | None) -> records.TrainReport:
    """`--largest batch` or `--largest model`."""
    if asked.piece is None:
        raise InputError(f"--largest needs a slice to fit; --on is {shorten(asked.question.on)}, write e.g. h100:64.")
    job, batches = asked.job(), asked.question.largest == "batch"
    fit = (largest_batch if batches else largest_model)(job, asked.space, progress)
    if fit is None:
        return best_report(asked, job, progress)
    if batches:
        held = f"{fit.job.batch:,} sequences ({fit.job.tokens:,} tokens)"
        sentence = (
            f"At most {held} go through {job.slice} in one pass with room in memory; larger batches take several."
        )
    else:
        held = f"{fit.job.model.n_layers} layers and {count_parameters(fit.job.model).total / 1e9:,.0f}B parameters"
        sentence = f"The deepest {asked.model.name} that trains on {job.slice} has {held}."
    report = plan_report(fit.job, fit.best.plan, asked.tokens)
    work = workload_of(fit.job, asked.space.words, asked.tokens)
    return records.TrainReport(
        fit.job.model.name, str(job.slice), work, 0, 0.0, [report], 1, {}, [], [], answer=sentence
    )


# The same job on other hardware: the slices around its own, the chip without its changes, and one with better numbers.


REMOVED = 0.02
"""A term is out of the way when it shows with at most this share of the step."""


def scaling_rows(asked: TrainAsked, piece: Slice, progress: Progress | None) -> list[records.ScalingRow]:
    """The best plan on a slice and on those around it, with the same batch."""
    return list(each_scaling_row(asked, piece, progress))


def each_scaling_row(asked: TrainAsked, piece: Slice, progress: Progress | None) -> Iterator[records.ScalingRow]:
    """The same, one after the other: on slices around one, or from the smallest to the largest of those that were
    named of one chip. `efficiency` is over the named one, of several the smallest."""
    named = [one for chip, one in asked.targets.values() if one is not None and chip.name == piece.chip.name]
    ends = sorted(named, key=lambda one: one.chips)
    parts, base = (between(ends[0], ends[-1]), ends[0]) if len(ends) > 1 else (around(piece), piece)
    whole = search_stacks(asked.job(base), asked.space, 1, None, asked.slack)[0]
    each = whole.job.tokens / whole.best.seconds / base.chips if whole.best is not None else None
    for done, part in enumerate(parts):
        share = shared(progress, done, len(parts))
        found = whole if part == base else search_stacks(asked.job(part), asked.space, 1, share, asked.slack)[0]
        if found.best is None:
            yield records.ScalingRow(str(part), part.chips, *[None] * 6, stack="")
            continue
        job, plan = found.job, found.best.plan
        report = plan_report(job, plan, brief=True)
        speed = job.tokens / report.step_s
        each = each or speed / part.chips
        times = report.step_s, speed, speed / part.chips / each, report.mfu
        own = report.mfu_of_dtype
        words = report.bound_by, job.stack.name
        yield records.ScalingRow(str(part), part.chips, str(plan), *times, *words, mfu_of_dtype=own)


def unchanged(asked: TrainAsked, piece: Slice, progress: Progress | None) -> records.Neighbour | None:
    """The same job on the chip as it is, where numbers of it were changed (`h100+nvlink=2x`): the given plan, or the
    best there."""
    text = next((text for text, (chip, _) in asked.targets.items() if chip.name == piece.chip.name), piece.chip.name)
    name, changes = split_changes(text.rpartition(":")[0] or text)
    own = [one for one in changes if one.startswith(f"{PROFILE}=")]
    if len(own) == len(changes):
        return None
    job = asked.job(replace(piece, chip=load_chip("+".join((name, *own)))))
    if asked.plan is None:
        found = search_stacks(job, asked.space, 1, progress, asked.slack)[0]
        if found.best is None:
            return None
        row = stack_row(found.job, found.best)
    else:
        seconds = float(judge_one(job, asked.plan).seconds)
        row = records.StackRow("", short_plan(asked.plan), seconds, job.model_flops / (seconds * job.slice.flops))
    return records.Neighbour(str(job.slice), job.batch, row.plan, row.step_s, row.mfu, mfu_of_dtype=row.mfu_of_dtype)


def crossovers(asked: TrainAsked, piece: Slice) -> Iterator[tuple[str, list[Point], float | None]]:
    """Each scheme alone over the chips of a slice, and from how many on its wires take longer than its compute at
    datasheet rates; None where they do nowhere."""
    job, pieces = asked.job(piece), slice_sizes(piece.chip, max(piece.chips * 4, 64))
    for scheme in SCHEMES:
        if points := scheme_curve(job, scheme, pieces):
            yield scheme, points, crossover(points)


def crossover_notes(asked: TrainAsked, piece: Slice) -> list[str]:
    """Where each scheme alone stops scaling."""
    found = []
    for scheme, points, chips in crossovers(asked, piece):
        if chips is None:
            found.append(f"{scheme} alone stays bound by compute up to {points[-1].chips:,} chips.")
            continue
        at = max((one for one in points if one.chips <= chips * 2), key=lambda one: one.chips)
        tokens = f"{asked.job(piece).tokens / chips:,.0f} tokens a chip"
        found.append(f"{scheme} alone is bound by {at.busiest} from about {chips:,.0f} chips ({tokens}).")
    return found


DEGREES = ("pipe", "tensor", "context", "expert")


def _rival_text(job: Job, plan: Plan, rivals: list[Plan]) -> list[str]:
    """Where the next plan of another kind overtakes, or the plan is overtaken by it."""
    other = next((one for one in rivals if any(getattr(one, name) != getattr(plan, name) for name in DEGREES)), None)
    return overtaking((job, plan), (job, other), (short_plan(plan), short_plan(other))) if other is not None else []


def codesign_report(asked: TrainAsked, piece: Slice, rivals: list[Plan], progress: Progress | None) -> records.Codesign:
    """Each hardware number a tenth better, the smallest change that removes what is lost most, and where another plan
    overtakes."""
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
        twice = before / change.doubled - 1
        rows.append(records.ChangeRow(what, paths, change.factor, change.seconds, faster, why, twice))
    return records.Codesign(rows, _removal(job, plan, report), _rival_text(job, plan, rivals))


def _removal(job: Job, plan: Plan, report: records.PlanReport) -> str:
    """The cheapest change that takes the largest loss out of the way."""
    assert report.verdict is not None
    aside = {*worked_terms(report.verdict.ledger), "stragglers", "uneven stages"}
    lost = next((row for row in report.terms if row.name not in aside), None)
    if lost is None or lost.exposed_s <= REMOVED * report.step_s:
        return (
            "Nothing but work on the chips themselves takes more than 2% of the step; only more FLOP/s and more HBM "
            "bandwidth help."
        )
    gone = f"{lost.name} under 2% of the step"
    change = smallest_change(job, plan, loss_shrinks(lost.name, REMOVED))
    if change is None:
        names = ", ".join(knob.title for knob in knobs(job.slice))
        return f"No single number of the chip ({names}), raised up to eight times, brings {gone}."
    before, after = render(report.step_s, "s"), render(change.seconds, "s")
    return f"{change.factor:g} times the {change.knob.title} brings {gone}: {before} becomes {after}."
