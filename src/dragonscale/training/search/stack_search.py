"""`--stack auto`: a job searched, or a plan judged, with each stack that people run there, and which of them to take.

A stack whose plan leaves headroom in memory comes before one whose plan does not, and a faster one before a slower
one. Stacks whose steps differ by less than `TIE_TOLERANCE` count as equally fast, and the one that the table of usual
stacks names first is taken, so that a job that grows a little keeps its software.

>>> preferred([(0, 1.02), (0, 1.0), (0, 1.3)], slack=0.01), preferred([(0, 1.25), (0, 1.0)], slack=0.01)
([0, 1, 2], [1, 0])
>>> preferred([(0, 1.02), (0, 1.0)], slack=0.0), preferred([(1, 1.0), (0, 2.0)], slack=0.01)
([1, 0], [1, 0])
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dragonscale.physics.numbers import first_number
from dragonscale.training.cost.evaluation import Job, judge_one, problems, unusual_jobs, usual_jobs
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.simplicity import SLACK
from dragonscale.training.search.allowed_space import refusals
from dragonscale.training.search.headroom import leaves_room
from dragonscale.training.search.legal import illegal
from dragonscale.training.search.search import Found, Progress, search, shared
from dragonscale.training.search.search_memory import Candidate
from dragonscale.training.search.space import Space

# Steps of two stacks within this fraction cannot be told apart: half of the measured steps were off by more.
TIE_TOLERANCE = 0.03

# How a stack takes a plan, best first: it leaves headroom in memory, it fits, it does not fit, it cannot run.
ROOMY, TIGHT, FULL, REFUSED = range(4)

Outcome = tuple[int, float]
"""How a stack takes a plan, and the seconds of a step."""


@dataclass(frozen=True)
class StackSearch:
    """A job with one of its stacks, and what a search found."""

    job: Job
    found: Found

    @property
    def best(self) -> Candidate | None:
        """The recommended plan, if there is one."""
        return next(iter(self.found.best), None)


def preferred(outcomes: Sequence[Outcome], slack: float) -> list[int]:
    """The indices of stacks, the one to take first and then the others, the best first; without slack the fastest is
    taken."""
    best_kind, fastest = min(outcomes)
    limit = fastest * (1 + (TIE_TOLERANCE if slack else 0.0))
    tied = [index for index, (kind, seconds) in enumerate(outcomes) if kind == best_kind and seconds <= limit]
    others = [index for index in range(len(outcomes)) if index != tied[0]]
    return [tied[0], *sorted(others, key=outcomes.__getitem__)]


def search_stacks(
    job: Job, space: Space, count: int = 5, progress: Progress | None = None, slack: float = SLACK
) -> list[StackSearch]:
    """The search with each stack that people run there, the one to take first; of a job with a named stack, one. If
    none of these can run what was asked for, less usual stacks that can are searched."""
    jobs = usual_jobs(job)
    # A stack that cannot run what was asked for still gives an answer: why.
    if all(refusals(usual, space) for usual in jobs):
        jobs = _able_jobs(unusual_jobs(job), jobs, space) or jobs
    searches: list[StackSearch] = []
    for index, stack_job in enumerate(jobs):
        result = search(stack_job, space, count, shared(progress, index, len(jobs)), slack)
        searches.append(StackSearch(stack_job, result))
    return [searches[index] for index in preferred([_outcome(result, space) for result in searches], slack)]


def _able_jobs(unusual: Sequence[Job], usual: Sequence[Job], space: Space) -> list[Job]:
    """The jobs with less usual stacks that can run what was asked for, and why they are taken."""
    names = " and ".join(job.stack.name for job in usual)
    why = f"{names} cannot run what was asked for"
    return [replace(job, auto=why) for job in unusual if not refusals(job, space)]


def faster_stacks(tried: Sequence[StackSearch], space: Space, slack: float = SLACK) -> list[StackSearch]:
    """Less usual stacks that are faster than the best of those that were tried, by more than the error of predictions,
    and leave as much headroom in memory."""
    best, searched = tried[0].best, {result.job.stack.name for result in tried}
    if best is None:  # remedies name other stacks where nothing fits
        return []
    faster: list[StackSearch] = []
    for job in unusual_jobs(tried[0].job):
        if job.stack.name in searched or refusals(job, space):
            continue
        result = StackSearch(job, search(job, space, 1, None, slack))
        other = result.best
        if other is not None and other.roomy >= best.roomy and other.seconds < best.seconds / (1 + TIE_TOLERANCE):
            faster.append(result)
    return faster


def _outcome(result: StackSearch, space: Space) -> Outcome:
    if result.best is None:
        return REFUSED if refusals(result.job, space) else FULL, 0.0
    return ROOMY if result.best.roomy else TIGHT, result.best.seconds


def stack_of(options: Sequence[tuple[Job, Plan]], slack: float = SLACK) -> int:
    """The index of the stack to take for a plan, from the job and the plan as each stack would run it."""
    if len(options) == 1:
        return 0
    return preferred([_judged(job, plan) for job, plan in options], slack)[0]


def _judged(job: Job, plan: Plan) -> Outcome:
    if illegal(job, plan):
        return REFUSED, 0.0
    verdict = judge_one(job, plan)
    if problems(job, plan, verdict):
        return FULL, first_number(verdict.seconds)
    return ROOMY if leaves_room(job, plan, verdict) else TIGHT, first_number(verdict.seconds)


def job_for(job: Job, plan: Plan, slack: float = SLACK) -> Job:
    """The job with the stack to take for a plan, where none was named."""
    jobs = usual_jobs(job)
    return jobs[stack_of([(usual, plan) for usual in jobs], slack)]
