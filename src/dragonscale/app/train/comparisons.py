"""A given plan against the best one, and a measured step against what was expected of it."""

from dataclasses import replace

from dragonscale.app.train.plans import plan_report, stack_row
from dragonscale.app.train.train_question import TrainAsked
from dragonscale.app.train.train_records import Measured, PlanReport, SettingChange, SuspectRow, TrainReport
from dragonscale.physics.units import render
from dragonscale.training.changes import towards
from dragonscale.training.evaluation import Job
from dragonscale.training.explanations import slowest_behind, suspects
from dragonscale.training.offer import offered
from dragonscale.training.plan import Plan, short_plan
from dragonscale.training.search import Found, Progress, search, space_size
from dragonscale.training.space import Space

BOUNDED = 2_500_000
"""Plans that a comparison looks through at most; of larger spaces the usual words alone."""
SUSPECTS = 5
SEEN = 0.002
"""Changes of less are left out."""


def space_around(job: Job, plan: Plan, space: Space) -> Space:
    """The plans to compare a given one with: in its formats, and where there are too many of them, its own words and
    the usual ones."""
    own = ("dtype", "optimizer", "offload", "sequence", "etp", "layout")
    space = replace(space, words=replace(space.words, **{name: plan[name] for name in own}))
    if space_size(job, space) <= BOUNDED:
        return space
    remat = plan.remat, *(one for one in offered(job, space).remat if one != "matmuls")
    words = {
        "remat": remat,
        "schedule": (plan.schedule, "1f1b", "interleaved"),
        "context_by": (plan.context_by, "ring"),
    }
    zero = tuple(one for one in space.zero if one in (plan.zero, 1, 3)) or space.zero
    return replace(space, zero=zero, **{name: tuple(dict.fromkeys(some)) for name, some in words.items()})


def against_best(asked: TrainAsked, job: Job, plan: Plan, report: TrainReport, progress: Progress | None) -> None:
    """Add to the report of a given plan what is recommended instead, and which single change brings most of it."""
    found = search(job, space_around(job, plan, asked.space), 1, progress, asked.slack)
    report.searched, report.search_s = found.searched + 1, found.seconds
    if not found.best:
        return
    given, best = report.plans[0], found.best[0].plan
    report.better = chosen = plan_report(job, best, asked.tokens, brief=True)
    report.stacks = [stack_row(job, found.best[0])]
    # a plan of other chips has no step that a change could be held against
    for one in towards(job, plan, best) if plan.chips == job.slice.chips else []:
        gain = given.step_s / one.seconds - 1
        if given.feasible and abs(gain) < SEEN:
            continue
        report.changes.append(SettingChange(one.setting, one.old, one.new, one.seconds, gain, str(one.plan)))
    report.comparison = comparison(given, chosen, report.changes, found)


def comparison(given: PlanReport, best: PlanReport, changes: list[SettingChange], found: Found) -> str:
    """How far a plan is from the recommended one, and what brings most of it."""
    if not given.feasible:
        start = f"This plan cannot run; {best.mfu:.1%} MFU is there"
        fits = [one for one in changes if one.gain > -1]
        one = f" It runs with {fits[0].setting}={fits[0].new} ({render(fits[0].step_s, 's')})." if fits else ""
        return f"{start}, with {short_plan(best.plan)}.{one}"
    gain = given.step_s / best.step_s - 1
    if given.plan == best.plan:
        return f"{given.mfu:.1%} MFU: it is the best of {found.searched:,} plans."
    if gain <= 0.005:
        return (
            f"{given.mfu:.1%} MFU, and nothing better among {found.searched:,} plans: {short_plan(best.plan)} has "
            f"{best.mfu:.1%}."
        )
    text = f"{given.mfu:.1%} MFU; {best.mfu:.1%} is there ({gain:+.1%} tokens/s), with {short_plan(best.plan)}"
    first = next((one for one in changes if one.gain > 0.005), None)
    if first is None:
        return f"{text}; no single change brings any of it."
    part = "most of it" if first.gain > gain / 2 else "the largest part"
    return f"{text}; {part} by {first.setting}={first.new} alone ({first.gain:+.1%})."


def against_measured(job: Job, plan: Plan, given: PlanReport, seconds: float) -> Measured:
    """Where the rest of a measured step probably went."""
    ratio = seconds / given.step_s
    within = given.step_low_s <= seconds <= given.step_high_s
    rest = seconds - given.step_s
    rows = [
        SuspectRow(one.cause, one.look, one.seconds, (one.seconds - given.step_s) / rest if rest else 0.0)
        for one in suspects(job, plan, seconds)
    ]
    rows = rows[:SUSPECTS] if rest > 0 and not within else []
    band = f"{render(given.step_low_s, 's')} to {render(given.step_high_s, 's')}"
    start = f"Measured {render(seconds, 's')} is {ratio:.2f}x the {render(given.step_s, 's')} expected"
    if seconds < given.lower_s:
        text = (
            f"{start}, and below the {render(given.lower_s, 's')} that the datasheet allows: check what was timed, "
            "and the batch."
        )
    elif within:
        text = f"{start}, within the band of {band}: nothing has to be explained."
    elif rest < 0:
        text = (
            f"{start}, faster than the band of {band}: this software does something better than the stack "
            f"{given.stack} is taken to."
        )
    else:
        text = (
            f"{start}, outside the band of {band}. Where the rest probably went is below, what comes nearest first; a "
            "profile decides."
        )
        if job.slice.hosts > 1:
            text += (
                f" A slowest machine {slowest_behind(job, given.step_s, seconds):.0%} behind the others would do it "
                "as well."
            )
    return Measured(seconds, given.step_s, ratio, within, given.mfu / ratio, rows, text)
