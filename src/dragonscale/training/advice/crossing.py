"""Where one choice overtakes another: the bandwidth, rate, memory capacity or batch at which two plans are equally
fast.

Both plans are judged by the same formula while one number changes, and the number is found at which the ratio of their
times passes one, by bisection up to `REACH` times more or less. On one kind of chip the number changes for both; on two
kinds, for the second alone. What does not fit into memory overtakes where it fits.

>>> from dragonscale.models import load_model
>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.training.cost.evaluation import make_job
>>> from dragonscale.training.plan.plan_file import parse_plan
>>> job = make_job(load_model("llama3-8b"), parse_slice("h100:16"), 64, 8192)
>>> plans = parse_plan("tensor=8,fsdp=2,zero=1"), parse_plan("fsdp=16")
>>> [(row.title, row.factor < 1) for row in crossings((job, plans[0]), (job, plans[1]))]
[('network bandwidth', True)]
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from dragonscale.physics.numbers import first_number
from dragonscale.training.advice.codesign import Knob, knobs, on_chip, raised
from dragonscale.training.cost.evaluation import Job, Verdict, judge_one
from dragonscale.training.plan.plan import Plan

# The factor by which a number may be changed, up or down.
REACH = 8.0
# The ratio between the ends of a bisection at which it stops.
CLOSE = 1.01
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


def crossings(first_choice: Choice, second_choice: Choice) -> list[Overtaking]:
    """Every number at which the order of two choices turns, the nearest first; and the memory that the second needs, if
    it does not fit."""
    job, plan = second_choice
    chip = job.slice.chip
    same_chip = first_choice[0].slice.chip.name == chip.name
    verdict = judge_one(job, plan)
    first_pace = _pace(judge_one(*first_choice), first_choice[0])
    is_ahead = _pace(verdict, job) < first_pace
    rows: list[Overtaking] = []
    for knob in knobs(job.slice):

        def leads(factor: float, knob: Knob = knob) -> bool:
            """Whether the second choice is ahead with the number multiplied by a factor."""
            other_pace = first_pace
            if same_chip:  # the number changes for both
                other_pace = _raised_pace(first_choice, knob, factor)
            return _raised_pace(second_choice, knob, factor) < other_pace

        fact = chip.facts[knob.paths[0]]
        if knob.title == CAPACITY:
            needed = first_number(verdict.hbm_bytes)
            if needed > chip.visible:
                rows.append(Overtaking(CAPACITY, chip.visible, needed, "bytes"))
        elif (factor := _turning_factor(leads, is_ahead)) is not None:
            now = chip.peak(plan.dtype) if fact.dimension == "FLOP/s" else float(fact.value)
            rows.append(Overtaking(knob.title, now, now * factor, fact.dimension))
    batch = _turning_batch(first_choice, second_choice)
    if batch is not None:
        rows.append(batch)
    return sorted(rows, key=lambda row: max(row.factor, 1 / row.factor))


def _pace(verdict: Verdict, job: Job) -> float:
    """Seconds for a token."""
    return first_number(verdict.seconds) / job.tokens


def _raised_pace(choice: Choice, knob: Knob, factor: float) -> float:
    """Seconds for a token on the choice's chip with one number raised by a factor."""
    job = on_chip(choice[0], raised(choice[0].slice.chip, knob, factor))
    return _pace(judge_one(job, choice[1]), job)


def _turning_factor(leads: Callable[[float], bool], is_ahead: bool) -> float | None:
    """The factor at which the order turns; None where it does not within reach."""
    for end in (REACH, 1 / REACH):
        if leads(end) == is_ahead:
            continue
        # The order is as it is now at `same` and turned at `turned`.
        same, turned = 1.0, end
        while max(same, turned) > CLOSE * min(same, turned):
            middle = (same * turned) ** 0.5
            if leads(middle) == is_ahead:
                same = middle
            else:
                turned = middle
        return (same * turned) ** 0.5
    return None


def _turning_batch(first_choice: Choice, second_choice: Choice) -> Overtaking | None:
    """The nearest batch, doubled or halved, at which the order is the other way round."""
    batch = first_choice[0].batch
    if batch != second_choice[0].batch:
        return None

    def is_behind(size: int) -> bool | None:
        """Whether the second is slower with a batch; None if one of the plans cannot split it."""
        seconds = []
        for job, plan in (first_choice, second_choice):
            if size % (plan.replicas * plan.microbatch):
                return None
            seconds.append(first_number(judge_one(replace(job, batch=size), plan).seconds))
        return seconds[1] > seconds[0]

    now = is_behind(batch)
    if now is None:
        return None
    for step in (2, 4, 8, 16):
        for size in (batch * step, batch // step):
            if size and is_behind(size) == (not now):
                tokens = first_choice[0].tokens / batch  # of a sequence
                return Overtaking(BATCH, batch * tokens, size * tokens, "tokens")
    return None
