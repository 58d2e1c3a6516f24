"""Which slice to take: several compared (`--on h100:64,v5p:4x4x8`, `--on any`), the fewest chips, the cheapest part of
one; and the largest batch or model that a slice holds."""

from dataclasses import replace

from dragonscale.blocks.sheet import signed_percent
from dragonscale.commands.train import train_records as records
from dragonscale.commands.train.best_report import best_report, no_plan_report
from dragonscale.commands.train.plans import Answered, answer_plan, plan_row, stack_rows, workload_of
from dragonscale.commands.train.train_question import TrainRequest
from dragonscale.errors import InputError, shorten
from dragonscale.models.transformer import count_parameters
from dragonscale.physics.units import DAY, render
from dragonscale.training.advice.inverse import Fit, fewest_chips, largest_batch, largest_model
from dragonscale.training.advice.overtaking import SHOWN, price_where
from dragonscale.training.advice.scaling import slice_sizes
from dragonscale.training.advice.slice_choice import CheapestPart, cheapest_part, chip_seconds
from dragonscale.training.advice.targets import LONGEST_RUN_S, Tried, compare
from dragonscale.training.advice.ways_to_fit import whole_run
from dragonscale.training.search.run_kinds import UNNAMED
from dragonscale.training.search.search import Progress
from dragonscale.training.search.stack_search import TIE_TOLERANCE

# Slices that are compared with the best in the answer's first lines.
NEXT_BEST = 3


def several_report(request: TrainRequest, progress: Progress | None) -> Answered:
    """The recommended plan on every slice, best first by `--rank` (the cheapest, where every chip was meant)."""
    run = request.job
    rank = "cost" if request.everywhere else request.question.rank
    tried = compare(
        run.on_slice,
        run.targets,
        run.space,
        rank,
        run.slack,
        deadline=run.deadline,
        tokens=run.tokens,
        progress=progress,
    )
    rows = [slice_row(target, run.tokens) for target in tried]
    if tried[0].best is None:
        goal = "can do this run" if run.deadline is None else f"meets the deadline of {request.question.deadline}"
        answered = no_plan_report(request, tried[0].job, f"No slice of those tried {goal}.")
        answered.report.slices = rows
        return answered
    # the winner is searched again in full, for its other plans, notes and memory
    answered = best_report(request, tried[0].job)
    report = answered.report
    report.slices = rows
    report.answer = _ahead_text(rows, rank)
    # of several slices, notes are of the winner alone
    report.notes = [f"{report.slice}: {note}" for note in report.notes]
    if rank == "cost" and run.deadline is None:
        report.notes += _year_notes(rows)
    report.notes += [*slices_note(rows), *_unmodelled_notes(tried), *_price_notes(tried)]
    return answered


def _year_notes(rows: list[records.SliceRow]) -> list[str]:
    """That the best of several slices takes more than a year, or which cheaper one was passed over as it does; else
    that longer runs would have been."""
    best = rows[0]
    max_days = LONGEST_RUN_S / DAY
    if best.days is not None and best.days > max_days:
        return [f"No run ends within a year: on {best.slice} it takes {_run_length(best.days * DAY)}."]
    for row in rows[1:]:
        cheaper = row.cost_usd is not None and best.cost_usd is not None and row.cost_usd < best.cost_usd
        if cheaper and row.days is not None and row.days > max_days:
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
    if days < 2:
        return f"{days * 24:,.1f} hours"
    if days <= 365:
        return f"{days:,.0f} days"
    return f"{days:,.0f} days ({days / 365:.1f} years)"


def _ahead_text(rows: list[records.SliceRow], rank: str) -> str:
    """The best of several slices, and how far the next ones are behind it."""
    # slices without a plan are at the end of the rows
    planned = [(row, row.step_s) for row in rows if row.step_s]
    best, best_s = planned[0]
    behind = []
    for row, step_s in planned[1 : NEXT_BEST + 1]:
        pace = f"{step_s / best_s:.2g}x"
        if step_s < 2 * best_s:
            pace = signed_percent(step_s / best_s - 1) or "as fast"
        dollars = ""
        if row.usd_per_mtok and best.usd_per_mtok:
            dearer = signed_percent(row.usd_per_mtok / best.usd_per_mtok - 1)
            dollars = ", at the same dollars"
            if dearer:
                dollars = f", dollars {dearer}"
        behind.append(f"; {row.slice} takes {render(step_s, 's')} a step ({pace}){dollars}")
    if not behind:
        return f"{best.slice}, alone of {len(rows)}"
    superlative = {"cost": "cheapest", "time": "fastest"}[rank]
    return f"{best.slice}, the {superlative} of {len(rows)}{''.join(behind)}"


def slices_note(rows: list[records.SliceRow]) -> list[str]:
    """The slices that another stack would make cheaper or dearer by more than predictions tell apart, in a line."""
    different = []
    for row in rows:
        for other in row.others:
            change = other.step_s / (row.step_s or other.step_s) - 1
            if not other.tight and abs(change) > TIE_TOLERANCE:
                different.append(f"{row.slice} with {other.stack} {_cost_text(row, 1 + change)} ({change:+.0%})")
    if not different:
        return []
    return [f"With the other stack that people run there: {'; '.join(different)}."]


def _cost_text(row: records.SliceRow, factor: float) -> str:
    """What a slice costs, or how long its step takes, times a factor."""
    if row.cost_usd is not None:
        return f"${row.cost_usd * factor:,.0f}"
    if row.usd_per_mtok is not None:
        return f"${row.usd_per_mtok * factor:.4f}/Mtok"
    return render((row.step_s or 0.0) * factor, "s")


def _unmodelled_notes(tried: list[Tried]) -> list[str]:
    """The slices whose steps are those of no trainer, with the reason."""
    notes = []
    for target in tried:
        if target.job.auto and target.job.stack.name in UNNAMED and target.best is not None:
            reason = f"{target.job.auto}, so its step is that of a careful program that nobody has"
            notes.append(f"{target.job.slice}: {reason}.")
    return notes


def _price_notes(tried: list[Tried]) -> list[str]:
    """The prices at which the other chips would cost less than the cheapest."""
    priced = [target for target in tried if target.usd_per_mtok is not None and target.roomy]
    best = min(priced, key=lambda target: target.usd_per_mtok or 0.0, default=None)
    if best is None or best.usd_per_mtok is None:
        return []
    best_chip = best.job.slice.chip.name
    others = [target for target in tried if target.roomy and target.job.slice.chip.name != best_chip]
    notes = []
    for other in others[:SHOWN]:
        where = other.job.slice
        rate = (other.tokens_per_s or 0.0) / where.chips
        if rate:
            notes.append(price_where(str(where), str(best.job.slice), best.usd_per_mtok, rate, where.chip.price))
    return notes


def slice_row(tried: Tried, tokens: float | None) -> records.SliceRow:
    """A slice in numbers."""
    job, best = tried.job, tried.best
    if best is None:
        return records.SliceRow(
            str(job.slice) if tried.searched else job.slice.chip.name,
            job.slice.chips,
            plan=None,
            step_s=None,
            tokens_per_s=None,
            mfu=None,
            usd_per_mtok=None,
            days=None,
            cost_usd=None,
            note=tried.note,
        )
    row, *others = stack_rows(tried.stacks, explain=False)
    days = cost_usd = None
    if (run := whole_run(job, best, tokens)) is not None:
        days, cost_usd = run.seconds / DAY, run.dollars(job.slice)
    return records.SliceRow(
        str(job.slice),
        job.slice.chips,
        plan=row.plan,
        step_s=row.step_s,
        tokens_per_s=tried.tokens_per_s,
        mfu=row.mfu,
        usd_per_mtok=tried.usd_per_mtok,
        days=days,
        cost_usd=cost_usd,
        note="no price known" if job.slice.chip.price is None else "",
        stack=row.stack,
        others=others,
        tight=row.tight,
        mfu_of_dtype=row.mfu_of_dtype,
    )


def fewest_report(request: TrainRequest, progress: Progress | None) -> Answered:
    """`--on h100`: the smallest slice that holds the job, or meets the deadline."""
    run, chip = request.job, request.job.chip
    assert chip is not None
    # any slice will do to know the stack and formats: the search goes on from it
    job = run.on_slice(slice_sizes(chip, 10**6)[0])
    fit = fewest_chips(job, chip, run.space, run.deadline, run.tokens, progress)
    goal = "hold the job" if run.deadline is None else f"meet the deadline of {request.question.deadline}"
    if fit is None:
        return no_plan_report(request, job, f"No slice of {chip.title} that was tried can {goal}.")
    answered = best_report(request, fit.job, progress)
    answered.report.answer = f"{fit.job.slice} is the smallest slice of {chip.title} that can {goal}."
    return answered


def cheapest_report(request: TrainRequest, progress: Progress | None) -> Answered:
    """`--rank cost`: the slice or a part of it, whichever costs least for each token; of a run whose tokens are known,
    among those that end within a year, where some do."""
    job = request.job.on_slice()
    part = cheapest_part(request.job, job, progress)
    if part is None:
        return best_report(request, job, progress)
    answered = best_report(request, part.best.job, progress)
    report = answered.report
    report.answer = f"{_cheapest_text(request, part)}."
    report.idle_chips = job.slice.chips - part.best.job.slice.chips
    if report.idle_chips:
        report.notes.append(f"{report.idle_chips:,} of the {job.slice.chips:,} chips of {job.slice} are left idle.")
    return answered


def _cheapest_text(request: TrainRequest, part: CheapestPart) -> str:
    """Which part of a slice costs least, how long its run takes, and what was passed over."""
    best, cheapest = part.best, part.cheapest
    whole = request.job.slice
    assert whole is not None
    least = "costs least" if best is cheapest else "costs least within a year"
    text = f"Of {whole} and its parts, {best.job.slice} {least}: {_usd_per_mtok(best)} for a million tokens"
    if request.job.tokens is None:
        return text
    text += f", {_run_length(best.seconds)} in all"
    if not part.in_time:
        shortest = part.shortest
        text += f"; no part ends within a year, the shortest run takes {_run_length(shortest.seconds)}"
        text += f" ({shortest.job.slice}); --on {whole.chip.name} --deadline 365d finds enough chips"
    elif best is not cheapest:
        less = 1 - chip_seconds(cheapest) / chip_seconds(best)
        text += f"; {cheapest.job.slice} would cost {less:.1%} less and take {_run_length(cheapest.seconds)}"
    return text


def _usd_per_mtok(fit: Fit) -> str:
    """What a million tokens cost, in chip-hours where the chip has no price."""
    # chip-seconds of a step over its million tokens
    chip_hours = chip_seconds(fit) / 3600 / (fit.job.tokens / 1e6)
    price = fit.job.slice.chip.price
    if price is None:
        return f"{chip_hours:.5f} chip-hours"
    return f"${chip_hours * price:.4f}"


def largest_report(request: TrainRequest, progress: Progress | None) -> Answered:
    """`--largest batch` or `--largest model`."""
    run = request.job
    if run.slice is None:
        raise InputError(f"--largest needs a slice to fit; --on is {shorten(request.question.on)}, write e.g. h100:64.")
    job = run.on_slice()
    find_largest = largest_batch if request.question.largest == "batch" else largest_model
    fit = find_largest(job, run.space, progress)
    if fit is None:
        return best_report(request, job, progress)
    # the job that was found, of another batch or depth than the one asked about
    first = answer_plan(fit.job, fit.best.plan, run.tokens)
    report = records.TrainReport(
        model=fit.job.model.name,
        slice=str(job.slice),
        workload=workload_of(fit.job, run.space.words, run.tokens),
        searched=0,
        search_s=0.0,
        plans=[plan_row(first)],
        feasible=1,
        infeasible={},
        pareto=[],
        notes=[],
        answer=_largest_text(request, fit),
    )
    return Answered(report, first)


def _largest_text(request: TrainRequest, fit: Fit) -> str:
    job = fit.job
    if request.question.largest == "batch":
        return (
            f"At most {job.batch:,} sequences ({job.tokens:,} tokens) go through {job.slice} in one pass with room in "
            "memory; larger batches take several."
        )
    parameters = count_parameters(job.model).total / 1e9
    width = request.job.model.name.partition(" with ")[0]
    text = (
        f"The deepest {width} that trains on {job.slice} has {job.model.n_layers} layers and {parameters:,.1f}B "
        "parameters."
    )
    space = request.job.space
    if space.zero in ((1,), (2,)) and "zero" in space.named:
        # each chip holds all weights, which is what ends it
        sharded = largest_model(request.job.on_slice(), replace(space, zero=(3,), words=replace(space.words, zero=3)))
        text += f" Under ZeRO-{space.zero[0]} every chip holds all weights, so more chips do not raise that"
        if sharded is not None:
            text += f"; ZeRO-3 holds {count_parameters(sharded.job.model).total / 1e9:,.1f}B here"
        text += "."
    return text
