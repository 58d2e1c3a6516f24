"""What takes most of a training step beside its bound, and what would make the step faster: each change is judged, and
named only where it helps.

>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.models import load_model
>>> from dragonscale.training.cost.evaluation import make_job
>>> from dragonscale.training.plan.plan_file import parse_plan
>>> job = make_job(load_model("llama3-8b"), parse_slice("h100:64"), 64, 8192)
>>> best = speedups(job, parse_plan("fsdp=64,remat=block"))[0]
>>> best.kind, best.plan.remat, best.roomy
('no recompute', 'none', True)
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dragonscale.models.scaling_laws import critical_batch
from dragonscale.models.transformer import count_parameters
from dragonscale.physics.numbers import first_number
from dragonscale.plan.ledger import Ledger
from dragonscale.training.advice.assessment import PlanAssessment
from dragonscale.training.advice.codesign import Knob, knobs, on_chip, raised
from dragonscale.training.advice.remedies import fewer_chips
from dragonscale.training.cost.evaluation import Job, Verdict, judge_one, usual_jobs
from dragonscale.training.cost.step_bound import WAITING
from dragonscale.training.cost.step_ledger import WIRES
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.stack import change
from dragonscale.training.search.allowed_space import advice_against
from dragonscale.training.search.headroom import leaves_room
from dragonscale.training.search.legal import illegal, newly_illegal
from dragonscale.training.search.run_kinds import UNNAMED, family
from dragonscale.training.search.space import Space, misfits

WIRE_PATHS = ("ici.", "dcn.", "levels.")
"""How the facts of a chip's wires begin."""
# Changes that gain less are not advised: a prediction is not that sure of itself.
MIN_GAIN = 0.02
MAX_SPEEDUPS = 3
# Of the step: terms that take less are no overhead worth a name.
MIN_OVERHEAD = 0.01

# The kinds of changes that are tried:
BATCH = "batch"  # twice the sequences, in more microbatches
ONE_PASS = "batch in one pass"  # twice the sequences, in microbatches twice as large
MICROBATCH = "microbatch"  # half as many of them, twice as large
NO_RECOMPUTE = "no recompute"
STACK = "stack"  # other software
WIRE = "wire"  # a network of twice the bandwidth
FEWER_CHIPS = "fewer chips"  # as many as divide the batch, the others idle


@dataclass(frozen=True)
class Overhead:
    """The term that takes most of a step beside what bounds it, with its fraction of the step. Of `contention`, most of
    it is not waiting: overlapped transfers slow the kernels beside them."""

    term: str
    share: float
    contention: bool

    @property
    def communication(self) -> bool:
        return self.term in WIRES


@dataclass(frozen=True)
class SpeedUp:
    """A change that raises the tokens a second: the job and plan that it makes, and by how much."""

    kind: str
    job: Job
    plan: Plan
    gain: float
    hbm_bytes: float = 0.0
    roomy: bool = True
    knob: Knob | None = None
    """The number of the chip that is doubled, of a `WIRE`."""


@dataclass(frozen=True)
class _Attempt:
    """A change that is not in place yet, whatever it brings."""

    kind: str
    job: Job
    plan: Plan
    knob: Knob | None = None


def terms_on_chip(ledger: Ledger) -> set[str]:
    """The terms that are work on the chip itself, not communication or waiting."""
    return {line.term for line in ledger.lines if line.kind not in WAITING}


def largest_overhead(assessed: PlanAssessment) -> Overhead | None:
    """What takes most of the step beside its bound: exposed, or by contention with what it overlaps."""
    ledger = assessed.verdict.ledger
    exposed = ledger.by("term", "exposed_s")
    step_s = float(sum(exposed.values())) or 1.0
    # recompute is work, but work that a larger memory would save
    work = terms_on_chip(ledger)
    overheads = {
        term: float(seconds)
        for term, seconds in exposed.items()
        if term != assessed.bound.part and (term not in work or term == "recompute")
    }
    if not overheads:
        return None
    term = max(overheads, key=overheads.__getitem__)
    if overheads[term] < MIN_OVERHEAD * step_s:
        return None
    contention = False
    if term in WIRES:
        # Most of it goes away when overlapped transfers slow nothing.
        job = assessed.job
        quiet = judge_one(replace(job, stack=change(job.stack, "overlap", contention=0.0)), assessed.plan)
        contention = quiet.ledger.by("term", "exposed_s").get(term, 0.0) < 0.5 * overheads[term]
    return Overhead(term, overheads[term] / step_s, contention)


def speedups(
    job: Job,
    plan: Plan,
    verdict: Verdict | None = None,
    tokens: float | None = None,
    space: Space | None = None,
) -> list[SpeedUp]:
    """The changes that raise the tokens a second by more than `MIN_GAIN`, best first, each judged by itself.

    `tokens` are those of the run, whose critical batch no advice exceeds. With the space that the plan is the best of,
    leaving chips idle is tried too.
    """
    step_s = first_number((verdict or judge_one(job, plan)).seconds)
    rate = job.tokens / step_s
    helpful: list[SpeedUp] = []
    for attempt in _attempts(job, plan, tokens):
        # the same stack was checked with the plan before; another may not run it at all
        runs = attempt.job.stack == job.stack or not illegal(attempt.job, attempt.plan)
        if not runs or not is_possible(attempt.job, plan, attempt.plan):
            continue
        after = judge_one(attempt.job, attempt.plan)
        gain = attempt.job.tokens / first_number(after.seconds) / rate - 1
        if gain > MIN_GAIN:
            roomy = leaves_room(attempt.job, attempt.plan, after)
            hbm_bytes = first_number(after.hbm_bytes)
            helpful.append(SpeedUp(attempt.kind, attempt.job, attempt.plan, gain, hbm_bytes, roomy, attempt.knob))
    fewer = fewer_chips(job, space, step_s / (1 + MIN_GAIN)) if space is not None else None
    if fewer is not None:
        gain = step_s / fewer.seconds - 1
        helpful.append(SpeedUp(FEWER_CHIPS, fewer.job, fewer.best.plan, gain, fewer.best.hbm_bytes))
    # what leaves no room in memory can hardly be acted on: it is named only where nothing else helps
    roomy_ones = [speedup for speedup in helpful if speedup.roomy]
    return sorted(roomy_ones or helpful, key=lambda speedup: -speedup.gain)[:MAX_SPEEDUPS]


def is_possible(job: Job, plan: Plan, changed: Plan) -> bool:
    """Whether a changed plan divides what it splits, and its stack runs it as well as the plan before."""
    divides = job.batch % (changed.replicas * changed.microbatch) == 0
    advised = advice_against(job, plan) or not advice_against(job, changed)
    return bool(divides and advised and not misfits(job, changed) and not newly_illegal(job, plan, changed))


def _attempts(job: Job, plan: Plan, tokens: float | None = None) -> Iterator[_Attempt]:
    microbatches = job.batch // (plan.replicas * plan.microbatch) or 1
    wider = replace(plan, microbatch=2 * plan.microbatch)
    larger = replace(job, batch=2 * job.batch)
    if not _exceeds_critical_batch(larger, tokens):
        yield _Attempt(BATCH, larger, plan)
        if microbatches == 1:
            yield _Attempt(ONE_PASS, larger, wider)
    if microbatches > 1:
        yield _Attempt(MICROBATCH, job, wider)
    if plan.remat != "none":
        yield _Attempt(NO_RECOMPUTE, job, replace(plan, remat="none"))
    for other in other_stacks(job):
        yield _Attempt(STACK, other, plan)
    for knob in knobs(job.slice):
        if all(path.startswith(WIRE_PATHS) for path in knob.paths):
            yield _Attempt(WIRE, on_chip(job, raised(job.slice.chip, knob, 2.0)), plan, knob)


def _exceeds_critical_batch(job: Job, tokens: float | None) -> bool:
    """Whether a batch is more than a run of so many tokens makes use of; known of models that start from nothing."""
    if tokens is None or job.tuning.tunes:
        return False
    return job.tokens > critical_batch(count_parameters(job.model).total, tokens)


def other_stacks(job: Job) -> list[Job]:
    """The job with other software that people run there: not with another mode or release of its own."""
    if job.stack.name in UNNAMED:
        return []
    # a release or a mode of the same software is no other software
    same = (family(job.stack.name), *UNNAMED)
    return [other for other in usual_jobs(replace(job, auto="named")) if family(other.stack.name) not in same]
