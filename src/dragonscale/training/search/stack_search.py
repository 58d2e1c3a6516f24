"""`--stack auto`: a job searched, or a plan judged, with each stack that people run there, and which of them to take.

A stack whose plan leaves room in memory goes before one whose plan does not, and the faster before the slower. Stacks
less than `APART` from each other are as fast as each other, and the one that the table of usual stacks names first
stands, so that a job that grows a little keeps its software.

>>> preferred([(0, 1.02), (0, 1.0), (0, 1.3)], slack=0.01), preferred([(0, 1.25), (0, 1.0)], slack=0.01)
([0, 1, 2], [1, 0])
>>> preferred([(0, 1.02), (0, 1.0)], slack=0.0), preferred([(1, 1.0), (0, 2.0)], slack=0.01)
([1, 0], [1, 0])
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dragonscale.training.cost.evaluation import Job, first, judge_one, problems, unusual_jobs, usual_jobs
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.simplicity import SLACK
from dragonscale.training.search.allowed_space import refusals
from dragonscale.training.search.headroom import leaves_room
from dragonscale.training.search.legal import illegal
from dragonscale.training.search.search import Found, Progress, search, shared
from dragonscale.training.search.search_memory import Candidate
from dragonscale.training.search.space import Space

APART = 0.03
"""Steps of two stacks this near are told apart by no prediction: half of those measured were off by more."""
ROOMY, TIGHT, FULL, REFUSED = range(4)
"""How a stack takes a plan, best first: it leaves room in memory, it fits, it does not, the stack cannot run it."""


@dataclass(frozen=True)
class StackSearch:
    """A job with one of its stacks, and what a search found."""

    job: Job
    found: Found

    @property
    def best(self) -> Candidate | None:
        """The recommended plan, if there is one."""
        return next(iter(self.found.best), None)


def preferred(steps: Sequence[tuple[int, float]], slack: float) -> list[int]:
    """Places of stacks, the one to take first and then the others from the best on, by how each takes its plan and the
    seconds of a step; without slack the fastest is taken."""
    best, least = min(steps)
    near = least * (1 + (APART if slack else 0.0))
    taken = next(place for place, (kind, seconds) in enumerate(steps) if kind == best and seconds <= near)
    return [taken, *sorted((place for place in range(len(steps)) if place != taken), key=lambda place: steps[place])]


def search_stacks(
    job: Job, space: Space, count: int = 5, progress: Progress | None = None, slack: float = SLACK
) -> list[StackSearch]:
    """The search with each stack that people run there, the one to take first; of a job with a named stack, one. What
    none of these can run at all is searched with less usual stacks, where one can."""
    jobs = usual_jobs(job)
    if all(refusals(one, space) for one in jobs):
        jobs = _that_take(unusual_jobs(job), jobs, space) or jobs
    tried = [
        StackSearch(one, search(one, space, count, shared(progress, place, len(jobs)), slack))
        for place, one in enumerate(jobs)
    ]
    return [tried[place] for place in preferred([_step(one, space) for one in tried], slack)]


def _that_take(unusual: Sequence[Job], usual: Sequence[Job], space: Space) -> list[Job]:
    """Less usual stacks that can run what was asked for, with why they are taken."""
    names = " and ".join(one.stack.name for one in usual)
    why = f"{names} cannot run what was asked for"
    return [replace(one, auto=why) for one in unusual if not refusals(one, space)]


def faster_stacks(tried: Sequence[StackSearch], space: Space, slack: float = SLACK) -> list[StackSearch]:
    """Less usual stacks that are faster than the one to take of those that were tried by more than predictions tell
    apart, and leave as much room in memory."""
    best, searched = tried[0].best, {one.job.stack.name for one in tried}
    if best is None:
        return []
    faster = []
    for job in unusual_jobs(tried[0].job):
        if job.stack.name in searched or refusals(job, space):
            continue
        found = StackSearch(job, search(job, space, 1, None, slack))
        other = found.best
        if other is not None and other.roomy >= best.roomy and other.seconds < best.seconds / (1 + APART):
            faster.append(found)
    return faster


def _step(one: StackSearch, space: Space) -> tuple[int, float]:
    if one.best is None:
        return REFUSED if refusals(one.job, space) else FULL, 0.0
    return ROOMY if one.best.roomy else TIGHT, one.best.seconds


def stack_of(options: Sequence[tuple[Job, Plan]], slack: float = SLACK) -> int:
    """Which of several stacks to take for a plan, given as each of them would run it."""
    return preferred([_judged(job, plan) for job, plan in options], slack)[0] if len(options) > 1 else 0


def _judged(job: Job, plan: Plan) -> tuple[int, float]:
    if illegal(job, plan):
        return REFUSED, 0.0
    verdict = judge_one(job, plan)
    if problems(job, plan, verdict):
        return FULL, first(verdict.seconds)
    return ROOMY if leaves_room(job, plan, verdict) else TIGHT, first(verdict.seconds)


def job_for(job: Job, plan: Plan, slack: float = SLACK) -> Job:
    """The job with the stack to take for a plan, where none was named."""
    jobs = usual_jobs(job)
    return jobs[stack_of([(one, plan) for one in jobs], slack)]
