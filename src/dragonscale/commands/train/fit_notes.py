"""What is said where a job has no plan: the changes with which it fits, a sentence for each."""

import math
from dataclasses import replace

from dragonscale.commands.train import train_records as records
from dragonscale.commands.train.plans import neighbour_row, stack_row
from dragonscale.commands.train.train_question import TrainRequest
from dragonscale.physics.hardware import Slice
from dragonscale.physics.units import render
from dragonscale.training.advice.assessment import host_node_bytes
from dragonscale.training.advice.inverse import Fit
from dragonscale.training.advice.memory_margins import longest_held, memory_margins
from dragonscale.training.advice.remedies import LargerSlices, Remedy, length_step
from dragonscale.training.advice.training_job import TrainingJob
from dragonscale.training.advice.ways_to_fit import LighterMethod, ways_to_fit
from dragonscale.training.cost.evaluation import Job, judge_one, problems
from dragonscale.training.plan.legality import family, rules
from dragonscale.training.plan.plan import Plan, short_plan
from dragonscale.training.search.search import Candidate


def add_ways_to_fit(request: TrainRequest, job: Job, report: records.TrainReport, nearest: Candidate | None) -> None:
    """Add to a report without a plan what would make the job fit; `nearest` is the plan that misses the memory by
    least. The first change is what its next command is for."""
    run = request.job
    ways = ways_to_fit(run, job, nearest)
    # first what keeps the question and changes how weights are trained
    for method in ways.methods:
        report.notes.append(_method_text(run, method))
        report.lighter = report.lighter or _method_flags(method)
    # then software, numerics, optimizer and the host memory
    for remedy in ways.remedies:
        _add_remedy(request, report, remedy)
    if ways.longest is not None:
        remedy = Remedy({"seq": str(ways.longest.job.sequence)}, ways.longest)
        _add_remedy(request, report, remedy, f"; no longer multiple of {length_step(job):,} tokens does")
    if ways.larger is not None and ways.larger.fit is None and ways.larger.tried is not None:
        report.notes.append(_larger_text(job, ways.larger, ways.larger.tried))
    # then other batches and slices, which change the question itself
    for fit in ways.sizes:
        report.notes.append(_size_text(job, fit))
        report.neighbours.append(neighbour_row(fit.job, fit.best))
    for remedy in ways.combined:
        _add_remedy(request, report, remedy)


def margin_notes(job: Job, plan: Plan) -> list[str]:
    """What a fine-tuning plan that fits is close to: the longest sequences, and what would make it run out."""
    if not job.tuning.tunes or job.slice.chip.kind != "gpu":
        return []
    notes: list[str] = []
    longest = longest_held(job, plan)
    if longest > job.sequence:
        notes.append(f"With this plan the chips hold sequences of up to about {longest:,} tokens.")
    if plan.replicas > 1 and plan.zero < 3 and not job.tuning.rank:
        notes.append(
            f"Under ZeRO-{plan.zero} every chip holds all weights, so that more chips hold no larger models; ZeRO-3 "
            "splits them, and can keep them in the host's memory."
        )
    if plan.optimizer == "galore":
        layerwise = replace(plan, optimizer="galore-layerwise")
        size = judge_one(job, layerwise).hbm_bytes / 1e9
        notes.append(
            f"Layer by layer (--optimizer galore_adamw_layerwise, without gradient accumulation) it takes {size:,.0f} "
            "GB."
        )
    margins = memory_margins(job, plan)
    if margins:
        listed = "; ".join(f"{margin.what} ({margin.hbm_bytes / 1e9:,.0f} GB)" for margin in margins)
        notes.append(f"It would run out of memory with {listed}.")
    return notes


def _method_flags(method: LighterMethod) -> str:
    if method.stack:
        return f"--stack {method.stack}"
    flags = f"--method {method.tuning.method}"
    if method.tuning.method in ("lora", "qlora"):
        return flags  # which say the format of frozen weights themselves
    return f"{flags} --frozen nf4"


def _method_text(run: TrainingJob, method: LighterMethod) -> str:
    """A stack or method with which the job fits, its plan and its step, with the time and dollars of the whole run."""
    text = f"{_method_flags(method)} fits here{_plan_text(method.best)}"
    if method.run is not None and run.tokens is not None:
        text += f"; {render(run.tokens, 'count')} tokens in {render(method.run.seconds, 's')}"
        usd = method.run.dollars(method.job.slice)
        if usd is not None:
            cents = 0 if usd >= 100 else 2
            text += f" and ${usd:,.{cents}f}"
        text += ", with failures"
    return f"{text}."


def _add_remedy(request: TrainRequest, report: records.TrainReport, remedy: Remedy, limit: str = "") -> None:
    """Add to a report the flags with which it has a plan, as a row and a sentence."""
    fixed = request.question.fix.strip()
    if fixed and "fix" in remedy.flags:  # what is fixed already stays so
        remedy = replace(remedy, flags=remedy.flags | {"fix": f"{fixed} {remedy.flags['fix']}"})
    best, job = remedy.fit.best, remedy.fit.job
    fits = "fits" if "on" in remedy.flags else "fits here"
    text = f"{remedy.text} {fits}{_plan_text(best)}"
    if request.job.plan is not None:
        text = f"Without --plan, {text}"  # what fits is the best of a search, which a given plan would hinder
    hosted = host_node_bytes(job, best.plan)
    if hosted:
        text += f" (an estimate), with {hosted / 1e9:,.0f} GB of memory of each host"
    report.notes.append(f"{text}{limit}.")
    report.remedies.append(records.RemedyRow(remedy.flags, short_plan(best.plan), best.seconds, not best.roomy))
    report.lighter = report.lighter or remedy.text


def _plan_text(best: Candidate) -> str:
    """A plan that fits and its step, after what makes it fit."""
    plan = f": {short_plan(best.plan)}, {render(best.seconds, 's')} a step"
    return plan if best.roomy else f", tight in memory{plan}"


def _larger_text(job: Job, larger: LargerSlices, tried: Slice) -> str:
    """Why more chips do not help; `tried` is the largest slice that was tried."""
    nearest = larger.nearest
    stack = job.stack.name
    if nearest is None:
        # without any of these axes a longer sequence has to fit on one chip
        axes = rules(stack, family(job.slice.chip), tuned=job.tuning.tunes).axes
        if not {"context", "tensor", "pipe"} & {*axes}:
            return (
                f"More chips do not help: one sequence of {job.sequence:,} tokens has to fit on one chip, since stack "
                f"{stack} has no context parallelism for this job."
            )
        return (
            f"More chips do not help: stack {stack} has no way to split {job.batch:,} sequences of "
            f"{job.sequence:,} tokens over {tried}."
        )
    start = f"More chips do not help: the nearest plan on {tried}"
    if math.isfinite(nearest.hbm_bytes):
        return f"{start} still needs {nearest.hbm_bytes / 1e9:.1f} GB of each."
    return f"{start} is {short_plan(nearest.plan)}: {missed_by(replace(job, slice=tried), nearest.plan)}."


def missed_by(job: Job, plan: Plan) -> str:
    """What a plan misses, with the limits. A search marks all plans that the host's memory cannot hold alike, so the
    plan is judged again."""
    return "; ".join(problems(job, plan, judge_one(job, plan)))


def _size_text(job: Job, fit: Fit) -> str:
    """The nearest batch or slice with a plan, and a nearer one whose plan is tight in memory."""
    plan = f"{short_plan(fit.best.plan)}, MFU {stack_row(fit.job, fit.best).own_mfu:.1%}"
    if fit.job.batch != job.batch:
        flags = f"--batch {fit.job.batch}seq, {fit.job.tokens:,} tokens"
        nearest = f"The nearest batch with room in memory is {fit.job.batch:,} sequences ({flags})"
    elif fit.roomy:
        nearest = f"The nearest slice with room in memory is {fit.job.slice}"
    else:
        return f"The nearest slice with a plan is {fit.job.slice}, tight in memory: {plan}."
    if fit.tight is None:
        return f"{nearest}: {plan}."
    nearer = fit.tight.job
    tight = f"{nearer.batch:,} sequences" if fit.job.batch != job.batch else str(nearer.slice)
    return f"{nearest}: {plan}; {tight} would be tight ({short_plan(fit.tight.best.plan)})."
