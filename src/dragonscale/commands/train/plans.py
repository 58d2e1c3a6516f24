"""Plans of a training job as an answer has them: their times, memory, what bounds them and what the run costs; the
best of a search, what is said of sizes that do not divide, and the same job with other stacks."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from dragonscale.commands.train import train_records as records
from dragonscale.commands.train.advice import (
    advice_text,
    bound_text,
    chips_of_host,
    gradients_text,
    helps,
    memory_advice,
    other_stacks,
)
from dragonscale.commands.train.train_question import TrainAsked
from dragonscale.evidence.xla.gpu_target import compiles_for
from dragonscale.models.lora import PART
from dragonscale.models.transformer import count_parameters, unseen_parameters
from dragonscale.physics.hardware import Slice
from dragonscale.physics.units import render
from dragonscale.plan.ledger import Ledger
from dragonscale.training.advice.budget import planned_run, run_budget
from dragonscale.training.advice.inverse import Fit, better_batch, nearest_possible
from dragonscale.training.advice.remedies import (
    Remedy,
    combined_remedies,
    larger_slices,
    length_step,
    longest_sequence,
    memory_remedies,
    roomy_larger_slice,
)
from dragonscale.training.cost.evaluation import Job, Verdict, beyond, first, judge_one, problems, tuned, unusual_jobs
from dragonscale.training.cost.optimizer_update import HOST_UPDATE
from dragonscale.training.cost.step_bound import step_bound
from dragonscale.training.plan.builds import unbuilt
from dragonscale.training.plan.legality import family, rules
from dragonscale.training.plan.plan import HOSTED_STATE, Plan, short_plan
from dragonscale.training.plan.simplicity import SHORT, points
from dragonscale.training.plan.tuning import DEFAULT_RANK, unplanned_run
from dragonscale.training.search.allowed_space import (
    advice_against,
    not_offered,
    offered,
    other_format,
    refusals,
    ruling_out,
    settlements,
)
from dragonscale.training.search.error_bands import job_band, job_error
from dragonscale.training.search.headroom import headroom_text, leaves_room
from dragonscale.training.search.legal import illegal, unrunnable
from dragonscale.training.search.production_runs import in_production
from dragonscale.training.search.run_kinds import needed_gains
from dragonscale.training.search.search import Candidate, Found, Progress
from dragonscale.training.search.space import Space, misfits
from dragonscale.training.search.stack_search import TIE_TOLERANCE, StackSearch, faster_stacks, search_stacks

HELD = {
    "reducing": "gradients in flight",
    "placeholders": "zero-filled gradient buffers",
    "update": "optimizer workspace",
}
"""Parts of memory whose names in the ledger are short for what engineers call them."""


def workload_of(job: Job, words: Plan, tokens: float | None) -> records.TrainWorkload:
    """What is trained, in numbers."""
    counts = count_parameters(job.model)
    sizes = job.tokens, job.batch, job.sequence, tokens, counts.total
    said = words.dtype, words.optimizer, job.stack.name, job.documents, job.auto, job.numerics, str(job.tuning)
    missing = unbuilt(job.stack.name, job.model)
    return records.TrainWorkload(*sizes, *said, counts.by_part.get(PART, 0), missing, unseen_parameters(job.model))


RUN_KEYS = ("days", "cost_usd", "steps", "chip_hours", "energy_kwh")
"""What is told of a run whose tokens are known."""


def plan_report(
    job: Job,
    plan: Plan,
    tokens: float | None = None,
    force: bool = False,
    brief: bool = False,
    space: Space | None = None,
) -> records.PlanReport:
    """One plan in full; in brief, without what would help, for which more plans have to be judged. What its stack
    cannot run is not feasible, unless it is forced. With the space that it is the best of, other slices are advised
    too."""
    verdict, refused = judge_one(job, plan), illegal(job, plan)
    every = [*problems(job, plan, verdict), *misfits(job, plan), *([] if force else refused)]
    broken = list(dict.fromkeys(every))
    chip, step = job.slice.chip, first(verdict.seconds)
    not_run = unrunnable(plan, job.model) or unplanned_run(job.tuning)
    budget = tokens and run_budget(tokens, job.tokens, step, job.slice.chips, chip.price, chip.power)
    terms = term_rows(verdict)
    memory = [records.MemoryRow(HELD.get(name, name), float(size)) for name, size in verdict.ledger.memory.items()]
    full, band = first(verdict.hbm_bytes) > chip.visible, job_band(job, plan)
    slowest, produced = _slow_end(job, plan, step * (1 + band.high))
    useful = [] if full or brief else helps(job, plan, verdict, tokens, space)
    peak, half = chip.peak("bf16"), "bf16" if chip.format("bf16") == "native" else "fp16"
    mfu = job.model_flops / (step * job.slice.flops)
    advice = bound = ""
    if full and not brief:
        advice = bound = memory_advice(job, plan, memory, verdict)
    elif not brief:
        bound = bound_text(job, plan, terms, verdict.ledger)
        advice = advice_text(bound, useful, bool(other_stacks(job)))
    return records.PlanReport(
        plan=plan,
        feasible=not broken,
        step_s=step,
        lower_s=first(verdict.lower),
        upper_s=first(verdict.upper),
        mfu=mfu,
        tokens_per_s_per_chip=job.tokens / step / job.slice.chips,
        hbm_bytes=first(verdict.hbm_bytes),
        hbm_limit_bytes=chip.visible,
        tight=not full and not leaves_room(job, plan, verdict),
        host_bytes=first(verdict.ledger.host_bytes),
        host_chips=chips_of_host(job.slice),
        host_limit_bytes=chips_of_host(job.slice) * chip.host_memory,
        bound_by=step_bound(verdict.ledger, chip).label,
        terms=terms,
        problems=broken,
        illegal=refused,
        memory=memory,
        chips=plan.chips,
        stack=job.stack.name,
        runnable=not broken and not not_run,
        step_low_s=step * (1 + band.low),
        step_high_s=slowest,
        band_runs=band.runs,
        band=band.text,
        large_runs=produced,
        flops=float(verdict.flops),
        sent_bytes={"+".join(axes): float(sent) for axes, sent in sorted(verdict.ledger.sent_bytes.items())},
        advice=advice,
        helps=useful,
        gradients="" if brief else gradients_text(job, plan, verdict),
        verifiable=not not_run and job.tuning.method == "full" and compiles_for(chip),
        not_run=not_run,
        mfu_peak=f"{half} peak ({peak / 1e12:,.4g} TFLOP/s)",
        peak_flops=peak,
        mfu_of_dtype=of_own_peak(job, plan, mfu),
        **{name: getattr(budget, name, None) for name in RUN_KEYS},
    ).read_off(job, verdict, bound if useful else advice)


def of_own_peak(job: Job, plan: Plan, mfu: float) -> float | None:
    """An MFU of the bf16 peak as one of the peak of the plan's own format; None where that is the same."""
    usual, own = job.slice.chip.peak("bf16"), job.slice.chip.peak(plan.dtype)
    return mfu * usual / own if own != usual else None


def _slow_end(job: Job, plan: Plan, seconds: float) -> tuple[float, str]:
    """The slow end of a step's band; large runs may have been slower still, which the text says."""
    produced = in_production(job, plan)
    if produced is None or produced.seconds <= seconds:
        return seconds, ""
    return seconds + produced.share * (produced.seconds - seconds), produced.text


def term_rows(verdict: Verdict) -> list[records.TermRow]:
    """The terms of a step, longest exposed first: groups of the ledger's lines, whose exposed parts
    add up to the step."""
    ledger = verdict.ledger
    seconds, exposed, lower = (ledger.by("term", name) for name in ("expected_s", "exposed_s", "bound_s"))
    sent, flops = ledger.by("term", "wire_bytes"), ledger.by("term", "flops")
    rows = [
        records.TermRow(name, *(float(one[name]) for one in (lower, seconds, exposed, sent, flops))) for name in seconds
    ]
    return sorted((row for row in rows if row.expected_s or row.lower_s or row.bytes), key=lambda row: -row.exposed_s)


def search_report(
    tried: Sequence[StackSearch], words: Plan, tokens: float | None = None, space: Space | None = None
) -> records.TrainReport:
    """The best plans of a search in full, with the first of the stacks that were tried, and what the others give."""
    job, found = tried[0].job, tried[0].found
    chips = job.slice.chips
    plans = [
        plan_report(job, one.plan, tokens, brief=place > 0, space=None if place else space)
        for place, one in enumerate(found.best)
    ]
    asked_for = job.model.name, str(job.slice), workload_of(job, words, tokens)
    missed = {reason: number for reason, number in found.misses.items() if number}
    front = [records.FrontRow(one.plan, chips, one.seconds, one.hbm_bytes) for one in found.front]
    return records.TrainReport(
        *asked_for, found.searched, found.seconds, plans, found.feasible, missed, front, [], stacks=stack_rows(tried)
    )


def best_report(
    asked: TrainAsked,
    job: Job,
    progress: Progress | None = None,
    near: bool = False,
) -> records.TrainReport:
    """The best plans on one slice, with the best of the stacks that people run there; without any, the notes say why.
    With `near`, sizes near those asked for are tried too."""
    tried = search_stacks(job, asked.space, asked.question.top, progress, asked.slack)
    job, found = tried[0].job, tried[0].found
    words = offered(job, asked.space).words
    faster = faster_stacks(tried, asked.space, asked.slack) if near else []
    report = search_report([*tried, *faster], words, asked.tokens, asked.space if near else None)
    report.unfit_stacks = [unfit_stack(one, asked.space) for one in tried[1:] if one.best is None]
    for row in report.stacks:
        row.usual = row.stack not in {one.job.stack.name for one in faster}
    report.notes += settlements(asked.space.words, words, job.stack.name)
    report.notes += other_format(job.slice.chip, asked.space.words, words)
    if found.best:
        taken = found.best[0].plan
        if found.runs is not None and unrunnable(taken, job.model):
            report.runs = report.verified = plan_report(job, found.runs.plan, asked.tokens, brief=True)
        tight = _tight(job, found, asked.space) if near else []
        report.notes += [*_passed_over(job, found), *tight, *advice_against(job, taken)]
        report.notes += offload_notes(job, taken)
    refused = refusals(job, asked.space)
    if refused:
        report.notes += [f"Not possible: {text}, or add --force." for text in refused]
    elif not found.best:
        report.notes.append(nearest_sentence(job, found.nearest, found))
        report.notes += ruling_out(job, asked.space) if found.searched and not found.judged else []
        report.notes += not_offered(job) if "zero" not in asked.space.named else []
    if near and not refused:
        add_neighbours(asked, job, report, found.nearest)
    return report


def _passed_over(job: Job, found: Found) -> list[str]:
    """Why faster plans are not the recommended one: the fastest, and the fastest listed one that leaves room."""
    listed = sorted((one for one in found.best[1:] if one.roomy), key=lambda one: one.seconds)
    faster = [one for one in (found.fastest, *listed[:1]) if one and one.seconds <= found.best[0].seconds * (1 - 0.002)]
    different = {short_plan(one.plan): one for one in faster}
    return [why_not_recommended(job, found.best[0], one) for one in different.values()]


def why_not_recommended(job: Job, best: Candidate, fastest: Candidate) -> str:
    """Why a faster plan is not the recommended one."""
    if not fastest.roomy:
        why = f"it fills {_filled(job, fastest)} (--headroom)"
    elif (gain := _asked_of(job, fastest.plan)) > _asked_of(job, best.plan):
        context = fastest.plan.context > 1 and job.sequence <= SHORT
        where = f"at {job.sequence:,} tokens" if context else "at this size"
        why = (
            f"no published run is known that splits a model this way in {fastest.plan.dtype} {where}, so it would have "
            f"to gain more than {gain:.0%} (--slack 0 takes it)"
        )
    else:
        ours, theirs = (int(points(plan, vars(plan), job.sequence)) for plan in (best.plan, fastest.plan))
        why = (
            f"the recommended one {'is simpler' if ours < theirs else 'has more memory to spare'} (--slack 0 takes it)"
        )
    gain = best.seconds / fastest.seconds - 1
    return f"{short_plan(fastest.plan)} is {gain:.1%} faster and not recommended: {why}."


def _asked_of(job: Job, plan: Plan) -> float:
    """What a plan must gain to be recommended."""
    return float(needed_gains(job, vars(plan), plan.zero, job_error(job), plan.dtype))


def _tight(job: Job, found: Found, space: Space) -> list[str]:
    """That no plan leaves room in memory, what of it the recommended one fills, and the chips that would leave room."""
    best = found.best[0]
    if best.roomy:
        return []
    filled = f"The plan fills {_filled(job, best)}: it is the least full that was found."
    larger = roomy_larger_slice(job, space, missing=1.0)
    more = f" {larger.job.slice} would leave room ({short_plan(larger.best.plan)})." if larger else ""
    return [f"{filled} Otherwise {headroom_text(job)}.{more}"]


def _filled(job: Job, one: Candidate) -> str:
    """How full a plan makes the memory that is too full."""
    uneven = " with an even load of experts" if job.experts else ""
    return f"{one.hbm_bytes / job.slice.chip.visible:.0%} of memory{uneven}"


def single_report(
    job: Job, plan: Plan, tokens: float | None = None, force: bool = False, brief: bool = False
) -> records.TrainReport:
    """One given plan, feasible or not."""
    report, work = plan_report(job, plan, tokens, force, brief), workload_of(job, plan, tokens)
    front = [records.FrontRow(plan, plan.chips, report.step_s, report.hbm_bytes)] if report.feasible else []
    forced = (f"Forced: {text}." for text in report.illegal if force)
    notes = [*forced, *advice_against(job, plan), *offload_notes(job, plan)]
    devices = job.slice.chip.devices
    if plan.microbatch % devices and job.batch // plan.replicas % devices == 0 and plan.context == 1:
        split = f"A chip's {devices} devices split a sequence of microbatch={plan.microbatch}"
        notes.append(f"{split}; a search takes multiples of {devices}.")
    return records.TrainReport(
        job.model.name, str(job.slice), work, 1, 0.0, [report], int(report.feasible), {}, front, notes
    )


def offload_notes(job: Job, plan: Plan) -> list[str]:
    """How the time of a plan that keeps state in the host's memory is estimated."""
    if plan.offload not in HOSTED_STATE:
        return []
    link = render(job.slice.chip.host_link, "bytes/s")
    return [
        f"The time of offload={plan.offload} is an estimate that no measured step has confirmed: what goes to the host "
        f"and back travels at {link} a chip, the update runs at {render(HOST_UPDATE, 'bytes/s')} of the host's memory "
        "for each chip, and none of it is hidden. DeepSpeed's own estimate of the host's memory adds half for buffers."
    ]


def nearest_sentence(job: Job, nearest: Candidate | None, found: Found) -> str:
    """Why nothing is feasible, and by how much the nearest plan misses."""
    if not found.searched:
        return (
            f"No plan is possible: no mesh of the {job.slice.chips} chips of {job.slice} divides {job.batch} sequences "
            f"of {job.sequence} tokens, the heads and hidden dims of {job.model.name} and what is fixed. Change "
            "--batch, --seq, --fix or the number of chips."
        )
    counts = ", ".join(f"{number:,} {reason}" for reason, number in found.misses.items() if number)
    text = f"None of {found.searched:,} plans is feasible: {counts}."
    if nearest is None:
        return text
    if not math.isfinite(nearest.hbm_bytes):
        return f"{text} Of the nearest, {short_plan(nearest.plan)}: {_missed_by(job, nearest.plan)}."
    missed = beyond(nearest.hbm_bytes, job.slice.chip.visible)
    fullest, share = _fullest(job, nearest.plan)
    return f"{text} The nearest, {short_plan(nearest.plan)}, needs {missed}; {share:.0%} of it is {fullest}."


def _fullest(job: Job, plan: Plan) -> tuple[str, float]:
    """What takes most of a plan's memory, and its part of all of it."""
    memory = judge_one(job, plan).ledger.memory
    name = max(memory, key=lambda tensor: float(memory[tensor]))
    return HELD.get(name, name), float(memory[name]) / sum(float(size) for size in memory.values())


# What is said of sizes that do not divide: the nearest batch or number of chips that works, or works much better.


def add_neighbours(asked: TrainAsked, job: Job, report: records.TrainReport, nearest: Candidate | None) -> None:
    """Add to a report the sizes near those asked for that would do better; `nearest` is the plan that misses the memory
    by least."""
    if not report.plans or not report.plans[0].feasible:
        report.notes += _lighter(asked, job, report)
        _add_remedies(asked, report, memory_remedies(job, asked.space))
        _add_longest_sequence(asked, job, report)
        found = _other_sizes(asked, job, report, nearest)
        report.notes += [_works(job, near) for near in found]
        missing = _missing_memory(job, nearest)
        if not report.lighter and not found and missing > 1:
            _add_remedies(asked, report, combined_remedies(job, asked.space, asked.question.method.strip(), missing))
    else:
        best = report.plans[0]
        near = better_batch(replace(job, auto=""), asked.space, best.mfu)  # with the stack of the answer
        found = [near] if near is not None else []
        report.notes += [
            f"{job.batch:,} sequences do not divide well over {job.slice.chips:,} chips: with {one.job.batch:,} "
            f"({one.job.tokens:,} tokens) a chip does {one.mfu / best.mfu - 1:.0%} more tokens a second."
            for one in found
        ]
    report.neighbours = [
        records.Neighbour(
            str(one.job.slice), one.job.batch, row.plan, row.step_s, row.mfu, mfu_of_dtype=row.mfu_of_dtype
        )
        for one, row in ((one, stack_row(one.job, one.best)) for one in found)
    ]


def _other_sizes(asked: TrainAsked, job: Job, report: records.TrainReport, nearest: Candidate | None) -> list[Fit]:
    """The nearest slice that holds a job that does not fit, or batch and slice that divide; with a note where no larger
    slice helps."""
    missing = _missing_memory(job, nearest)
    if missing <= 1:
        return nearest_possible(job, asked.space)
    larger = larger_slices(job, asked.space, missing)
    if larger.fit is None and larger.tried is not None:
        report.notes.append(_no_larger(job, larger.tried, larger.nearest))
    return [larger.fit] if larger.fit else []


def _add_remedies(asked: TrainAsked, report: records.TrainReport, remedies: Iterable[Remedy], limit: str = "") -> None:
    """Add to a report without a plan the flags with which it has one, a row and a sentence for each; the first is what
    its next command is for, if nothing else is."""
    # what is found is the best of a search, which a given plan would hinder
    start = "" if asked.plan is None else "Without --plan, "
    for remedy in (_beside_fixed(asked, remedy) for remedy in remedies):
        best = remedy.fit.best
        fits = "fits" if "on" in remedy.flags else "fits here"
        report.notes.append(f"{start}{remedy.text} {fits}{_of_remedy(remedy)}{limit}.")
        report.remedies.append(
            records.RemedyRow(remedy.flags, short_plan(best.plan), best.seconds, not remedy.fit.roomy)
        )
        report.lighter = report.lighter or remedy.text


def _add_longest_sequence(asked: TrainAsked, job: Job, report: records.TrainReport) -> None:
    """Add to a report without a plan the longest sequences that fit."""
    longest = longest_sequence(job, asked.space)
    if longest is not None:
        remedy = Remedy({"seq": str(longest.job.sequence)}, longest)
        limit = f"; no longer multiple of {length_step(job):,} tokens does"
        _add_remedies(asked, report, [remedy], limit)


def _beside_fixed(asked: TrainAsked, remedy: Remedy) -> Remedy:
    """A remedy whose `--fix` has what is fixed already, too."""
    fixed = asked.question.fix.strip()
    if not fixed or "fix" not in remedy.flags:
        return remedy
    return replace(remedy, flags=remedy.flags | {"fix": f"{fixed} {remedy.flags['fix']}"})


def _of_remedy(remedy: Remedy) -> str:
    """The plan that a remedy gives, its step, and the memory that it takes of each host."""
    best, job = remedy.fit.best, remedy.fit.job
    tight = "" if best.roomy else ", tight in memory"
    text = f"{tight}: {short_plan(best.plan)}, {render(best.seconds, 's')} a step"
    hosted = first(judge_one(job, best.plan).ledger.host_bytes) * chips_of_host(job.slice)
    if hosted:
        text += f" (an estimate), with {hosted / 1e9:,.0f} GB of memory of each host"
    return text


def _no_larger(job: Job, tried: Slice, nearest: Candidate | None) -> str:
    """Why more chips do not help; `nearest` is the plan that misses the memory of the larger slice by least."""
    row = rules(job.stack.name, family(job.slice.chip), tuned=job.tuning.tunes)
    if nearest is None and not {"context", "tensor", "pipe"} & {*row.axes}:
        return (
            f"More chips do not help: one sequence of {job.sequence:,} tokens has to fit on one chip, since stack "
            f"{job.stack.name} has no context parallelism for this job."
        )
    if nearest is None:
        return (
            f"More chips do not help: stack {job.stack.name} has no way to split {job.batch:,} sequences of "
            f"{job.sequence:,} tokens over {tried}."
        )
    start = f"More chips do not help: the nearest plan on {tried}"
    if math.isfinite(nearest.hbm_bytes):
        return f"{start} still needs {nearest.hbm_bytes / 1e9:.1f} GB of each."
    return f"{start} is {short_plan(nearest.plan)}: {_missed_by(replace(job, slice=tried), nearest.plan)}."


def _missed_by(job: Job, plan: Plan) -> str:
    """What a plan misses, with the limits: how a search compares plans does not tell those that the host's memory
    cannot hold from each other."""
    return "; ".join(problems(job, plan, judge_one(job, plan)))


def _missing_memory(job: Job, nearest: Candidate | None) -> float:
    """How many times the memory there is the nearest plan needs, of the chip or, where that is enough, of its host; 1
    where nothing is missing."""
    if nearest is None:
        return 1.0
    needed = nearest.hbm_bytes / job.slice.chip.visible
    if not math.isfinite(needed):  # how a search marks plans that the host's memory cannot hold
        needed = first(judge_one(job, nearest.plan).ledger.host_bytes) / job.slice.chip.host_memory
    return max(1.0, needed)


def _lighter(asked: TrainAsked, job: Job, report: records.TrainReport) -> list[str]:
    """What fits where the method that was asked for does not: it with a less usual stack, or LoRA, or QLoRA."""
    tuning = job.tuning
    if tuning.frozen != "bf16" or not asked.question.method.strip():
        return []
    lora = tuning if tuning.rank else replace(tuning, method="lora", rank=DEFAULT_RANK, copies=0.0)
    qlora = replace(lora, method="qlora" if lora.method == "lora" else lora.method, frozen="nf4")
    changed = [(f"--stack {other.stack.name}", other) for other in unusual_jobs(job)]
    for one in (lora, qlora):
        flags = f"--method {one.method}" + (" --frozen nf4" if one.method not in ("lora", "qlora") else "")
        changed += [(flags, tuned(job, one))] if one != tuning else []
    told: list[str] = []
    for flags, other in changed:
        found = search_stacks(other, asked.space, 1)[0]
        if found.best:
            step, plan = render(found.best.seconds, "s"), short_plan(found.best.plan)
            tight = "" if found.best.roomy else ", tight in memory"
            told.append(f"{flags} fits here{tight}: {plan}, {step} a step{_whole_run(asked, found.job, found.best)}.")
            report.lighter = report.lighter or flags
            if found.best.roomy:
                break
    return told


def _whole_run(asked: TrainAsked, job: Job, best: Candidate) -> str:
    """The time and the dollars of all tokens with a plan, with failures, where they are known."""
    if not asked.tokens:
        return ""
    clean = run_budget(asked.tokens, job.tokens, best.seconds, job.slice.chips)
    run = planned_run(job, best.plan, clean.seconds)
    usd = run.dollars(job.slice)
    money = "" if usd is None else f" and ${usd:,.{0 if usd >= 100 else 2}f}"
    return f"; {render(asked.tokens, 'count')} tokens in {render(run.seconds, 's')}{money}, with failures"


def _works(job: Job, near: Fit) -> str:
    with_plan = f"{short_plan(near.best.plan)}, MFU {stack_row(near.job, near.best).own_mfu:.1%}"
    if near.job.batch != job.batch:
        tokens = f"--batch {near.job.batch}seq, {near.job.tokens:,} tokens"
        nearest = f"The nearest batch with room in memory is {near.job.batch:,} sequences ({tokens})"
        tight = f"{near.tight.job.batch:,} sequences" if near.tight else ""
    elif near.roomy:
        nearest = f"The nearest slice with room in memory is {near.job.slice}"
        tight = str(near.tight.job.slice) if near.tight else ""
    else:
        return f"The nearest slice with a plan is {near.job.slice}, tight in memory: {with_plan}."
    if near.tight is None:
        return f"{nearest}: {with_plan}."
    return f"{nearest}: {with_plan}; {tight} would be tight ({short_plan(near.tight.best.plan)})."


# What the stacks that people run there give for the same job, where no stack was named.


def stack_row(job: Job, best: Candidate) -> records.StackRow:
    """A stack with its recommended plan."""
    mfu = job.model_flops / (best.seconds * job.slice.flops)
    own = of_own_peak(job, best.plan, mfu)
    return records.StackRow(job.stack.name, short_plan(best.plan), best.seconds, mfu, not best.roomy, mfu_of_dtype=own)


def stack_rows(tried: Sequence[StackSearch], why: bool = True) -> list[records.StackRow]:
    """The stacks that have a plan, that of the answer first; of the second, `why` it differs."""
    known = [(one.job, one.best) for one in tried if one.best is not None]
    rows = [stack_row(*one) for one in known]
    if why and len(rows) > 1:
        rows[1].mostly = largest_gap(*(judge_one(job, best.plan).ledger for job, best in known[:2]))
    return rows


def unfit_stack(tried: StackSearch, space: Space) -> records.UnfitStack:
    """Why a stack has no plan: what it cannot run, or what fills the chip under the plan that misses by least."""
    job, nearest = tried.job, tried.found.nearest
    refused = refusals(job, space)
    if refused:
        return records.UnfitStack(job.stack.name, f"cannot run it: {refused[0]}")
    if nearest is None:
        return records.UnfitStack(job.stack.name, "has no plan that divides the job")
    if not math.isfinite(nearest.hbm_bytes):
        return records.UnfitStack(job.stack.name, f"does not fit ({_missed_by(job, nearest.plan)})")
    name, share = _fullest(job, nearest.plan)
    largest = f"{share * nearest.hbm_bytes / 1e9:.1f}GB of it {name}"
    why = f"does not fit ({nearest.hbm_bytes / 1e9:.1f}GB of {job.slice.chip.visible / 1e9:.1f}GB, {largest})"
    return records.UnfitStack(job.stack.name, why, nearest.hbm_bytes)


def largest_gap(ledger: Ledger, other: Ledger) -> str:
    """The term of a step that makes most of the difference to another step of the same job."""
    ours, theirs = (one.by("term", "exposed_s") for one in (ledger, other))
    gaps = {name: float(theirs.get(name, 0.0) - ours.get(name, 0.0)) for name in (*ours, *theirs)}
    longer = sum(gaps.values()) > 0
    return max(gaps, key=lambda name: gaps[name] if longer else -gaps[name]).partition(" (")[0]


def slices_note(rows: list[records.SliceRow]) -> list[str]:
    """The slices that another stack would make cheaper or dearer by more than a few percent, in a line."""
    found = []
    for row in rows:
        for one in (other for other in row.others if not other.tight):
            change = one.step_s / row.step_s - 1 if row.step_s else 0.0
            if abs(change) > TIE_TOLERANCE:
                found.append(f"{row.slice} with {one.stack} {_worth(row, 1 + change)} ({change:+.0%})")
    return [f"With the other stack that people run there: {'; '.join(found)}."] if found else []


def _worth(row: records.SliceRow, times: float) -> str:
    """What a slice costs, or its step, so many times over."""
    if row.cost_usd is not None:
        return f"${row.cost_usd * times:,.0f}"
    if row.usd_per_mtok is not None:
        return f"${row.usd_per_mtok * times:.4f}/Mtok"
    return render((row.step_s or 0.0) * times, "s")
