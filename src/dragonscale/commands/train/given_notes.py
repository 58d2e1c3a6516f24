"""What is said of a plan that was given: how it was read, how far it is from the best, and which change brings most."""

from dataclasses import replace

from dragonscale.commands.train.best_report import passed_over_text
from dragonscale.commands.train.fit_notes import add_ways_to_fit
from dragonscale.commands.train.plans import Answered, plan_row, stack_row
from dragonscale.commands.train.train_question import TrainRequest
from dragonscale.commands.train.train_records import PlanReport, SettingChange
from dragonscale.physics.numbers import first_number
from dragonscale.physics.units import render
from dragonscale.training.advice.assessment import PlanAssessment
from dragonscale.training.advice.best_plans import why_not_recommended
from dragonscale.training.advice.given_plan import StackRun, compare_with_best
from dragonscale.training.advice.plan_advice import PlanAnswer
from dragonscale.training.cost.evaluation import judge_one
from dragonscale.training.plan.builds import expert_ranks_note
from dragonscale.training.plan.plan import short_plan
from dragonscale.training.search.allowed_space import refusals, settlements
from dragonscale.training.search.search import Progress

# A better plan, or a change, that gains less is called no better.
NO_GAIN = 0.005


def reading_notes(run: StackRun, expert_written: bool) -> list[str]:
    """How a plan was read and completed, a sentence each; `expert_written` says whether its expert ranks were typed."""
    plan, stack = run.named, run.job.stack.name
    notes = []
    if run.replicated:
        notes.append(
            f"The rest of the {run.job.slice.chips:,} chips are replicas: fsdp={plan.fsdp} (data={plan.fsdp},fsdp=1: "
            "whole ones)."
        )
    if run.ranks_note:
        notes.append(run.ranks_note)
    if run.unsharded:
        notes.append(
            f"zero={plan.zero} shards nothing over data={plan.data}: each replica holds all weights, gradients and the "
            f"optimizer; write fsdp={plan.data} to shard them."
        )
    notes += settlements(plan, run.plan, stack)
    if run.plan.remat != plan.remat:
        notes.append(_without_recompute(run))
    if run.refused_by:
        names = " and ".join(run.refused_by)
        notes.append(f"{names} cannot run the plan as it is; it is judged with {stack}, which can.")
    if expert_written and (spread := expert_ranks_note(stack, run.plan)):
        notes.append(spread)
    return notes


def _without_recompute(run: StackRun) -> str:
    """What a plan that names no recompute takes without any, beside the stack's default that it is read with."""
    verdict = judge_one(run.job, replace(run.plan, remat="none"))
    saved = verdict.ledger.memory.get("activations", verdict.ledger.memory.get("saved activations", 0.0))
    return (
        f"The plan names no recompute: {run.plan.remat} is {run.job.stack.name}'s default. With remat=none it would "
        f"take {render(first_number(verdict.seconds), 's')} and {first_number(verdict.hbm_bytes) / 1e9:.1f}GB, "
        f"{float(saved) / 1e9:.1f}GB of it saved activations."
    )


def add_comparison(
    request: TrainRequest, answered: Answered, assessed: PlanAssessment, progress: Progress | None
) -> None:
    """Add to the report of a given plan what is recommended instead, and which single change brings most of it."""
    run, report = request.job, answered.report
    compared = compare_with_best(assessed.job, assessed, run.space, run.slack, run.tokens, progress)
    result = compared.result
    # the given plan counts as one of those that were looked at
    report.searched, report.search_s = result.searched + 1, result.seconds
    # nothing else fits either, so there is no best plan to compare with
    if compared.best is None:
        if not assessed.feasible and not refusals(assessed.job, run.space):
            add_ways_to_fit(request, assessed.job, report, result.nearest)
        return
    report.better = plan_row(PlanAnswer(compared.best))
    report.stacks = [stack_row(assessed.job, result.best[0])]
    for change in compared.changes:
        gain = assessed.step_s / change.seconds - 1
        report.changes.append(
            SettingChange(
                change.setting, change.old, change.new, step_s=change.seconds, gain=gain, plan=short_plan(change.plan)
            )
        )
    report.comparison = comparison(report.plans[0], report.better, report.changes, result.searched)
    if compared.faster is not None:
        reason = why_not_recommended(assessed.job, result.best[0], compared.faster)
        report.notes.append(passed_over_text(assessed.job, reason))


def comparison(plan: PlanReport, best: PlanReport, changes: list[SettingChange], searched: int) -> str:
    """How far a plan is from the recommended one of so many that were searched, and what brings most of it."""
    best_plan = short_plan(best.plan)
    if not plan.feasible:
        text = f"{best_plan}: {best.mfu_text}; the given plan cannot run."
        # changes of an infeasible plan are those with which it runs; its own step means nothing
        fitting = next((change for change in changes if change.gain > -1), None)
        if fitting is not None:
            text += f" It runs with {fitting.setting}={fitting.new} ({render(fitting.step_s, 's')})."
        return text
    if plan.plan == best.plan:
        return f"the given one, {plan.mfu_text}: the best of {searched:,} plans."
    gain = plan.step_s / best.step_s - 1
    if gain <= NO_GAIN:
        return (
            f"the given one: {plan.mfu_text}, and nothing better among {searched:,} plans ({best_plan} has "
            f"{best.own_mfu:.1%})."
        )
    text = f"{best_plan}: {best.own_mfu:.1%} MFU ({gain:+.1%} tokens/s), not {plan.mfu_text}"
    # changes are sorted by their step, so the first is the largest
    largest = next((change for change in changes if change.gain > NO_GAIN), None)
    if largest is None:
        return f"{text}; no single change brings any of it."
    share = "most of it" if largest.gain > gain / 2 else "the largest part"
    return f"{text}; {share} by {largest.setting}={largest.new} alone ({largest.gain:+.1%})."
