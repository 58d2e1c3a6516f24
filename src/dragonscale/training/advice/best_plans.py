"""The best plans of a job on one slice: which stack they are of, and which faster ones were passed over."""

from dataclasses import dataclass

from dragonscale.plan.ledger import Ledger
from dragonscale.training.advice.inverse import Fit
from dragonscale.training.advice.remedies import roomy_larger_slice
from dragonscale.training.advice.training_job import TrainingJob
from dragonscale.training.cost.evaluation import Job, judge_one
from dragonscale.training.plan.plan import Plan, short_plan
from dragonscale.training.plan.simplicity import SHORT, points
from dragonscale.training.search.allowed_space import offered, refusals
from dragonscale.training.search.error_bands import job_error
from dragonscale.training.search.run_kinds import needed_gains
from dragonscale.training.search.search import Candidate, Found, Progress
from dragonscale.training.search.space import Space
from dragonscale.training.search.stack_search import StackSearch, faster_stacks, search_stacks

# Plans that are faster by less are not compared with the recommended one.
MIN_FASTER = 0.002

# Why a faster plan is not recommended:
FULL = "full"  # it leaves too little memory
UNPUBLISHED = "unpublished"  # no run of its kind is known
COMPLEX = "complex"  # the recommended one is simpler
FULLER = "fuller"  # the recommended one has more memory to spare


@dataclass(frozen=True)
class BestPlans:
    """What a search found with each stack that people run on a slice."""

    tried: list[StackSearch]
    """The stack to take first."""
    faster: list[StackSearch]
    """Less usual stacks that are faster than the one to take."""
    settings: Plan
    """Formats and other settings that plans of the first stack share."""
    refusals: list[str]
    """Why the first stack runs nothing that was asked for, in sentences."""

    @property
    def job(self) -> Job:
        """The job with the stack to take."""
        return self.tried[0].job

    @property
    def result(self) -> Found:
        """What the search found with it."""
        return self.tried[0].found


def best_plans(
    run: TrainingJob, job: Job, count: int, progress: Progress | None = None, unusual: bool = False
) -> BestPlans:
    """The `count` best plans of a job, with the best of the stacks that people run there; with `unusual`, what less
    usual stacks that are faster give."""
    tried = search_stacks(job, run.space, count, progress, run.slack)
    job = tried[0].job
    faster = faster_stacks(tried, run.space, run.slack) if unusual else []
    return BestPlans(tried, faster, offered(job, run.space).words, refusals(job, run.space))


@dataclass(frozen=True)
class PassedOver:
    """A plan that is faster than the recommended one by a `gain`, and why it is not recommended."""

    candidate: Candidate
    gain: float
    reason: str
    needed_gain: float = 0.0
    """What a plan of an `UNPUBLISHED` kind has to gain to be recommended."""
    short_sequence: bool = False
    """Whether it is the length of the sequences at which no such run is known."""


def passed_over(job: Job, result: Found) -> list[PassedOver]:
    """The fastest plan, and the fastest of those listed that leaves room in memory, where they are faster than the
    recommended one."""
    listed = [candidate for candidate in result.best[1:] if candidate.roomy]
    candidates = [result.fastest, *sorted(listed, key=lambda candidate: candidate.seconds)[:1]]
    limit_s = result.best[0].seconds * (1 - MIN_FASTER)
    faster = {
        short_plan(candidate.plan): candidate for candidate in candidates if candidate and candidate.seconds <= limit_s
    }
    return [why_not_recommended(job, result.best[0], candidate) for candidate in faster.values()]


def why_not_recommended(job: Job, best: Candidate, faster: Candidate) -> PassedOver:
    """Why a faster plan is not the recommended one."""
    gain = best.seconds / faster.seconds - 1
    if not faster.roomy:
        return PassedOver(faster, gain, FULL)
    # kinds of plans that nobody has published must gain more than predictions err
    needed = _needed_gain(job, faster.plan)
    if needed > _needed_gain(job, best.plan):
        short = faster.plan.context > 1 and job.sequence <= SHORT
        return PassedOver(faster, gain, UNPUBLISHED, needed, short)
    best_points, faster_points = (
        int(points(plan, plan.all_settings, job.sequence)) for plan in (best.plan, faster.plan)
    )
    return PassedOver(faster, gain, COMPLEX if best_points < faster_points else FULLER)


def _needed_gain(job: Job, plan: Plan) -> float:
    """What a plan must gain over others to be recommended."""
    return float(needed_gains(job, plan.all_settings, plan.zero, job_error(job), plan.dtype))


def roomy_slice(job: Job, best: Candidate, space: Space) -> Fit | None:
    """The nearest larger slice whose plan leaves room in memory, where the best plan does not."""
    return None if best.roomy else roomy_larger_slice(job, space, missing=1.0)


def largest_gap(ledger: Ledger, other: Ledger) -> str:
    """The term of a step that makes most of the difference to another step of the same job."""
    exposed, other_exposed = ledger.by("term", "exposed_s"), other.by("term", "exposed_s")
    gaps: dict[str, float] = {}
    for term in (*exposed, *other_exposed):
        gaps[term] = float(other_exposed.get(term, 0.0) - exposed.get(term, 0.0))
    # of a step that is longer in all, the term that grew most; of a shorter one, that shrank most
    sign = 1 if sum(gaps.values()) > 0 else -1
    return max(gaps, key=lambda term: sign * gaps[term]).partition(" (")[0]


def memory_share(job: Job, plan: Plan) -> tuple[str, float]:
    """What takes most of a plan's memory, by its name in the ledger, and its fraction of all of it."""
    memory = judge_one(job, plan).ledger.memory
    name = max(memory, key=lambda tensor: float(memory[tensor]))
    return name, float(memory[name]) / float(sum(memory.values()))
