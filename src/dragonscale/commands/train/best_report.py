"""The report of a search on one slice: its best plans, why faster ones were passed over, what other stacks give."""

import math
from dataclasses import replace

from dragonscale.blocks.sheet import several
from dragonscale.commands.questions.flag import written
from dragonscale.commands.train import train_records as records
from dragonscale.commands.train.fit_notes import add_ways_to_fit, margin_notes, missed_by
from dragonscale.commands.train.plans import (
    MEMORY_NAMES,
    Answered,
    answer_plan,
    neighbour_row,
    offload_notes,
    plan_report,
    plan_row,
    stack_rows,
    workload_of,
)
from dragonscale.commands.train.train_question import TrainRequest
from dragonscale.training.advice.assessment import PlanAssessment, assess
from dragonscale.training.advice.best_plans import (
    COMPLEX,
    FULL,
    UNPUBLISHED,
    BestPlans,
    PassedOver,
    best_plans,
    memory_share,
    passed_over,
    roomy_slice,
)
from dragonscale.training.advice.inverse import better_batch
from dragonscale.training.advice.plan_advice import PlanAnswer
from dragonscale.training.advice.training_job import TrainingJob
from dragonscale.training.cost.evaluation import Job, beyond
from dragonscale.training.plan.plan import short_plan
from dragonscale.training.search.allowed_space import (
    advice_against,
    not_offered,
    other_format,
    refusals,
    ruling_out,
    settlements,
)
from dragonscale.training.search.headroom import headroom_text
from dragonscale.training.search.legal import unrunnable
from dragonscale.training.search.search import Candidate, Found, Progress
from dragonscale.training.search.space import Space
from dragonscale.training.search.stack_search import StackSearch


def best_report(request: TrainRequest, job: Job, progress: Progress | None = None, nearby: bool = False) -> Answered:
    """The best plans on one slice, with the best of the stacks that people run there; without any, the notes say why.
    With `nearby`, less usual stacks and sizes near those asked for are tried too."""
    run = request.job
    best = best_plans(run, job, request.question.top, progress, unusual=nearby)
    job, result = best.job, best.result
    first, report = _search_report(run, best, nearby)
    # formats that nobody asked for give way to what the stack has on this chip
    report.notes += settlements(run.space.words, best.settings, job.stack.name)
    report.notes += other_format(job.slice.chip, run.space.words, best.settings)
    if result.best:
        plan = result.best[0].plan
        # the search keeps the best plan that our own program takes beside the best of all
        if result.runs is not None and unrunnable(plan, job.model):
            report.runs = report.verified = plan_report(job, result.runs.plan, run.tokens, brief=True)
        report.notes += [passed_over_text(job, other) for other in passed_over(job, result)]
        if nearby:
            report.notes += _tight_notes(job, result, run.space)
            report.margins = margin_notes(job, plan)
        report.notes += [*advice_against(job, plan), *offload_notes(job, plan)]
    # what was pinned cannot run at all, whatever the sizes: no remedy but another flag
    if best.refusals:
        report.notes += [f"Not possible: {reason}, or add --force." for reason in best.refusals]
    elif not result.best:
        report.notes.append(_nothing_feasible(job, result))
        # no mesh passed the rules of the stack, and nothing was costed
        nearest = result.nearest
        if nearest is not None and math.isfinite(nearest.hbm_bytes):
            report.missing_bytes = max(nearest.hbm_bytes - job.slice.chip.visible, 0.0) or None
        if result.searched and not result.judged:
            report.notes += ruling_out(job, run.space)
        if "zero" not in run.space.named:
            report.notes += not_offered(job)
    if nearby and not best.refusals:
        if first is not None and first.assessed.feasible:
            _add_better_batch(run, first.assessed, report)
        else:
            add_ways_to_fit(request, job, report, result.nearest)
    return Answered(report, first)


def _search_report(run: TrainingJob, best: BestPlans, nearby: bool) -> tuple[PlanAnswer | None, records.TrainReport]:
    """The best plans in full, the first with advice, with `nearby` on other slices too; and what other stacks give."""
    job, result = best.job, best.result
    first = None
    plans: list[records.PlanReport] = []
    if result.best:
        space = run.space if nearby else None
        first = answer_plan(job, result.best[0].plan, run.tokens, space=space)
        plans.append(plan_row(first))
    # the others are listed for comparison, and advice on them would be judged in vain
    for candidate in result.best[1:]:
        plans.append(plan_row(PlanAnswer(assess(job, candidate.plan, run.tokens))))
    front = [
        records.FrontRow(candidate.plan, job.slice.chips, candidate.seconds, candidate.hbm_bytes)
        for candidate in result.front
    ]
    report = records.TrainReport(
        model=job.model.name,
        slice=str(job.slice),
        workload=workload_of(job, best.settings, run.tokens),
        searched=result.searched,
        search_s=result.seconds,
        plans=plans,
        feasible=result.feasible,
        infeasible={reason: count for reason, count in result.misses.items() if count},
        pareto=front,
        notes=[],
        stacks=stack_rows([*best.tried, *best.faster]),
        unfit_stacks=[unfit_stack(search, run.space) for search in best.tried[1:] if search.best is None],
    )
    # they are named as less usual, since few people run them there
    unusual = {search.job.stack.name for search in best.faster}
    for row in report.stacks:
        row.usual = row.stack not in unusual
    return first, report


def passed_over_text(job: Job, other: PassedOver) -> str:
    """Why a faster plan is not the recommended one."""
    plan = other.candidate.plan
    if other.reason == FULL:
        why = f"it fills {_filled(job, other.candidate)} (--headroom)"
    elif other.reason == UNPUBLISHED:
        where = f"at {job.sequence:,} tokens" if other.short_sequence else "at this size"
        why = (
            f"no published run is known that splits a model this way in {plan.dtype} {where}, so it would have to gain "
            f"more than {other.needed_gain:.0%} (--slack 0 takes it)"
        )
    else:
        better = "is simpler" if other.reason == COMPLEX else "has more memory to spare"
        why = f"the recommended one {better} (--slack 0 takes it)"
    return f"{short_plan(plan)} is {other.gain:.1%} faster and not recommended: {why}."


def _tight_notes(job: Job, result: Found, space: Space) -> list[str]:
    """That no plan leaves room in memory, how much the recommended one fills, and a slice that would leave room."""
    best = result.best[0]
    if best.roomy:
        return []
    text = f"The plan fills {_filled(job, best)}: it is the least full that was found. Otherwise {headroom_text(job)}."
    larger = roomy_slice(job, best, space)
    if larger is not None:
        text += f" {larger.job.slice} would leave room ({short_plan(larger.best.plan)})."
    return [text]


def _filled(job: Job, candidate: Candidate) -> str:
    """How full a plan makes the memory that is too full."""
    text = f"{candidate.hbm_bytes / job.slice.chip.visible:.0%} of memory"
    return f"{text} with an even load of experts" if job.experts else text


def _nothing_feasible(job: Job, result: Found) -> str:
    """Why nothing is feasible, and by how much the nearest plan misses."""
    # the sizes of the job and of the mesh do not divide in any way
    if not result.searched:
        return (
            f"No plan is possible: no mesh of {job.slice} divides {several(job.batch, 'sequence')} "
            f"of {job.sequence} tokens, the heads and hidden dims of {job.model.name} and what is fixed. Change "
            "--batch, --seq, --fix or the number of chips."
        )
    counts = ", ".join(f"{count:,} {reason}" for reason, count in result.misses.items() if count)
    text = f"None of {result.searched:,} plans is feasible: {counts}."
    nearest = result.nearest
    if nearest is None:
        return text
    if not math.isfinite(nearest.hbm_bytes):  # it is the host's memory that is too small
        return f"{text} Of the nearest, {short_plan(nearest.plan)}: {missed_by(job, nearest.plan)}."
    missed = beyond(nearest.hbm_bytes, job.slice.chip.visible)
    name, share = memory_share(job, nearest.plan)
    largest = MEMORY_NAMES.get(name, name)
    return f"{text} The nearest, {short_plan(nearest.plan)}, needs {missed}; {share:.0%} of it is {largest}."


def _add_better_batch(run: TrainingJob, best: PlanAssessment, report: records.TrainReport) -> None:
    """Add to a report the batch near the one asked for that divides much better over the chips."""
    job = best.job
    better = better_batch(replace(job, auto=""), run.space, best.mfu)  # with the stack of the answer
    if better is None:
        return
    report.notes.append(
        f"{job.batch:,} sequences do not divide well over {job.slice.chips:,} chips: with {better.job.batch:,} "
        f"({better.job.tokens:,} tokens) a chip does {better.mfu / best.mfu - 1:.0%} more tokens a second."
    )
    report.neighbours = [neighbour_row(better.job, better.best)]


def unfit_stack(tried: StackSearch, space: Space) -> records.UnfitStack:
    """Why a stack has no plan: what it cannot run, or what fills the chip under the plan that misses by least."""
    job, nearest = tried.job, tried.found.nearest
    name = job.stack.name
    refused = refusals(job, space)
    if refused:
        return records.UnfitStack(name, f"cannot run it: {refused[0]}")
    if nearest is None:
        return records.UnfitStack(name, "has no plan that divides the job")
    if not math.isfinite(nearest.hbm_bytes):
        return records.UnfitStack(name, f"does not fit ({missed_by(job, nearest.plan)})")
    part, share = memory_share(job, nearest.plan)
    why = (
        f"does not fit ({nearest.hbm_bytes / 1e9:.1f}GB of {job.slice.chip.visible / 1e9:.1f}GB, "
        f"{share * nearest.hbm_bytes / 1e9:.1f}GB of it {MEMORY_NAMES.get(part, part)})"
    )
    return records.UnfitStack(name, why, nearest.hbm_bytes)


def no_plan_report(request: TrainRequest, job: Job, sentence: str) -> Answered:
    """A report without a plan, on what was asked for."""
    run = request.job
    report = records.TrainReport(
        model=run.model.name,
        slice=written(request.question.on),
        workload=workload_of(job, run.space.words, run.tokens),
        searched=0,
        search_s=0.0,
        plans=[],
        feasible=0,
        infeasible={},
        pareto=[],
        notes=[sentence],
    )
    return Answered(report)
