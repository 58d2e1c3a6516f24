"""Where one choice overtakes another: the bandwidth, rate, size of memory or batch at which two plans are equally fast.

Both plans are judged by the same formula while one number changes, and the number is found at which the ratio of their
times passes one, by bisection up to `REACH` times more or less. On one kind of chip the number changes for both; on two
kinds, for the second alone. What does not fit into memory overtakes where it fits.

>>> from dragonscale.models import load_model
>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.training.cost.evaluation import make_job
>>> from dragonscale.training.plan.plan_file import parse_plan
>>> job = make_job(load_model("llama3-8b"), parse_slice("h100:16"), 64, 8192)
>>> plans = parse_plan("tensor=8,fsdp=2,zero=1"), parse_plan("fsdp=16")
>>> [(one.title, one.factor < 1) for one in crossings((job, plans[0]), (job, plans[1]))]
[('network bandwidth', True)]
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from dragonscale.training.advice.codesign import knobs, on_chip, raised
from dragonscale.training.cost.evaluation import Job, Verdict, first, judge_one
from dragonscale.training.plan.plan import Plan

REACH = 8.0
"""By how much a number may be changed, up or down."""
CLOSE = 1.01
"""How near to each other the ends of a bisection come."""
CAPACITY = "HBM capacity"
BATCH = "batch"

Choice = tuple[Job, Plan]


@dataclass(frozen=True)
class Overtaking:
    """What is changed, its value now and where both are equal, with the unit; `factor` is the one over the other."""

    title: str
    now: float
    value: float
    unit: str

    @property
    def factor(self) -> float:
        return self.value / self.now


def crossings(one: Choice, other: Choice) -> list[Overtaking]:
    """Every number at which the order of two choices turns, the nearest first; what a chip must hold before a choice
    that does not fit is one."""
    same = one[0].slice.chip.name == other[0].slice.chip.name
    chip, found, (mine, theirs) = other[0].slice.chip, list[Overtaking](), (judge_one(*one), judge_one(*other))
    ahead = _pace(theirs, other[0]) < _pace(mine, one[0])
    for knob in knobs(other[0].slice):

        def leads(factor: float, knob=knob) -> bool:
            """Whether the second is ahead with the number so many times what it is."""
            pair = [one, other] if same else [other]
            jobs = [on_chip(job, raised(job.slice.chip, knob, factor)) for job, _ in pair]
            paces = [_pace(judge_one(job, plan), job) for job, (_, plan) in zip(jobs, pair, strict=True)]
            return paces[-1] < (paces[0] if same else _pace(mine, one[0]))

        fact = chip.facts[knob.paths[0]]
        if knob.title == CAPACITY:
            held = first(theirs.hbm_bytes)
            found += [Overtaking(CAPACITY, chip.visible, held, "bytes")] if held > chip.visible else []
        elif (factor := _solved(leads, ahead)) is not None:
            now = chip.peak(other[1].dtype) if fact.dimension == "FLOP/s" else float(fact.value)
            found.append(Overtaking(knob.title, now, now * factor, fact.dimension))
    found += _batch(one, other)
    return sorted(found, key=lambda row: max(row.factor, 1 / row.factor))


def _pace(verdict: Verdict, job: Job) -> float:
    """Seconds for a token."""
    return first(verdict.seconds) / job.tokens


def _solved(leads: Callable[[float], bool], ahead: bool) -> float | None:
    """The factor at which the order turns; None where it does not within reach."""
    for far in (REACH, 1 / REACH):
        if leads(far) != ahead:
            near = 1.0
            while max(near, far) > CLOSE * min(near, far):
                middle = (near * far) ** 0.5
                near, far = (middle, far) if leads(middle) == ahead else (near, middle)
            return (near * far) ** 0.5
    return None


def _batch(one: Choice, other: Choice) -> list[Overtaking]:
    """The nearest batch, doubled or halved, at which the order is the other way round."""
    batch, unit = one[0].batch, one[0].tokens / one[0].batch
    if batch != other[0].batch:
        return []

    def behind(size: int) -> bool | None:
        if any(size % (plan.replicas * plan.microbatch) for _, plan in (one, other)):
            return None
        times = [first(judge_one(replace(job, batch=size), plan).seconds) for job, plan in (one, other)]
        return times[1] > times[0]

    now = behind(batch)
    sizes = (size for step in (2, 4, 8, 16) for size in (batch * step, batch // step) if size and now is not None)
    found = next((size for size in sizes if behind(size) == (not now)), None)
    return [] if found is None else [Overtaking(BATCH, batch * unit, found * unit, "tokens")]
