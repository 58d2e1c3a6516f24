"""What the other way to add and reduce gradients would change, where a stack has two."""

from dataclasses import dataclass

from dragonscale.physics.numbers import first_number
from dragonscale.training.cost.evaluation import Job, Verdict, judge_one, with_numerics
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.stack import NUMERICS


@dataclass(frozen=True)
class OtherNumerics:
    """The job with the other numerics, and the same plan judged with them. `gain` is in steps a second."""

    job: Job
    gain: float
    hbm_bytes: float

    @property
    def fits(self) -> bool:
        """Whether the fullest chip holds it."""
        return self.hbm_bytes <= self.job.slice.chip.visible


def other_numerics(job: Job, plan: Plan, verdict: Verdict) -> OtherNumerics | None:
    """The plan with gradients added and reduced the other way; None where its stack or format has one way."""
    name = next(numerics for numerics in NUMERICS if numerics != job.numerics)
    other = with_numerics(job, name)
    if other.stack == job.stack or plan.dtype == "fp16":
        return None
    after = judge_one(other, plan)
    return OtherNumerics(
        other, first_number(verdict.seconds) / first_number(after.seconds) - 1, first_number(after.hbm_bytes)
    )
