"""What a better chip would change of a job: its best plan on it, the smallest change that removes the largest loss."""

from dataclasses import dataclass

from dragonscale.training.advice.assessment import PlanAssessment, assess
from dragonscale.training.advice.codesign import Change, loss_shrinks, sensitivity, smallest_change
from dragonscale.training.advice.speedups import terms_on_chip
from dragonscale.training.advice.training_job import TrainingJob
from dragonscale.training.cost.evaluation import Job
from dragonscale.training.plan.plan import Plan
from dragonscale.training.search.search import Progress, search

# A term is removed when the part of it that the step waits for is at most this share of the step.
REMOVED_SHARE = 0.02
# Gains below this are called nothing.
NO_GAIN = 5e-4
DEGREES = ("pipe", "tensor", "context", "expert")
"""The axes that tell kinds of plans apart, beside replicas."""


@dataclass(frozen=True)
class Improvement:
    """A number of the chip raised: the gain in speed with the plan that is best then, and of the plan that is best now
    with twice as much."""

    change: Change
    gain: float
    doubled_gain: float
    same_plan: bool


@dataclass(frozen=True)
class BetterChip:
    """What better hardware would change of a job's plan."""

    assessed: PlanAssessment
    improvements: list[Improvement]
    loss: str
    """The term of the largest loss; empty where nothing but work on the chips takes more than a little."""
    removal: Change | None
    """The smallest change that removes it; None where no single number does, raised as far as is tried."""


def better_chip(run: TrainingJob, job: Job, progress: Progress | None = None) -> BetterChip:
    """Each number of a job's chip a tenth better, and the smallest change that removes what is lost most."""
    plan = run.plan or search(job, run.space, 1, progress, run.slack).best[0].plan
    assessed = assess(job, plan)
    # a better chip's fastest plan is compared with today's fastest: that plan, recommended or not, is no merit of the
    # chip
    fastest = next(iter(search(job, run.space, 1, progress, slack=0.0).best), None)
    base, base_s = plan, assessed.step_s
    if fastest is not None:
        base, base_s = fastest.plan, fastest.seconds
    improvements = [
        Improvement(change, base_s / change.seconds - 1, base_s / change.doubled - 1, same_plan=change.plan == base)
        for change in sensitivity(job, run.space, base, base_s, progress)
    ]
    loss = _largest_loss(assessed)
    removal = smallest_change(job, plan, loss_shrinks(loss, REMOVED_SHARE)) if loss else None
    return BetterChip(assessed, improvements, loss, removal)


def _largest_loss(assessed: PlanAssessment) -> str:
    """The term that the step waits for longest, of those that better wires or memory could remove; empty where that is
    next to nothing."""
    ledger = assessed.verdict.ledger
    # stragglers and uneven stages are not wires or memory that a designer could raise
    not_removable = {*terms_on_chip(ledger), "stragglers", "uneven stages"}
    losses = {
        term: float(seconds) for term, seconds in ledger.by("term", "exposed_s").items() if term not in not_removable
    }
    if not losses:
        return ""
    largest = max(losses, key=lambda term: losses[term])
    return largest if losses[largest] > REMOVED_SHARE * assessed.step_s else ""


def nearest_rival(plan: Plan, rivals: list[Plan]) -> Plan | None:
    """The best of other plans that splits the model in another way."""
    for rival in rivals:
        if any(rival[axis] != plan[axis] for axis in DEGREES):
            return rival
    return None
