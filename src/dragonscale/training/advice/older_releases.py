"""A plan under earlier releases of its stack's software (`older` of `stacks.toml`): what was normal then may be slow
today, and what fits today may not have fitted.

>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.models import load_model
>>> from dragonscale.training.advice.assessment import assess
>>> from dragonscale.training.cost.evaluation import make_job
>>> from dragonscale.training.plan.plan_file import parse_plan
>>> job = make_job(load_model("llama3-8b"), parse_slice("a100:8"), 8, 8192, "torchtitan")
>>> [run.when for run in earlier_releases(assess(job, parse_plan("fsdp8 selective")))]
['April 2025 to April 2026', 'until March 2025']
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dragonscale.physics.numbers import first_number
from dragonscale.training.advice.assessment import PlanAssessment
from dragonscale.training.cost.evaluation import Job, as_asked, judge_one
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.stack import load_stack
from dragonscale.training.search.error_bands import Band, job_band, widened
from dragonscale.training.search.legal import illegal
from dragonscale.training.search.published_runs import published_runs


@dataclass(frozen=True)
class ReleaseRun:
    """A plan as an earlier release runs it."""

    stack: str
    when: str
    step_s: float
    hbm_bytes: float
    band: Band

    def takes(self, seconds: float) -> bool:
        """Whether a measured step is within its band."""
        return self.step_s * (1 + self.band.low) <= seconds <= self.step_s * (1 + self.band.high)


def earlier_releases(assessed: PlanAssessment) -> Iterator[ReleaseRun]:
    """An assessed plan under each earlier release of its software that runs it, the newest first."""
    current = assessed.job.stack
    for name in current.older:
        if current.when:  # the stack is an earlier release itself
            return
        job = replace(assessed.job, stack=as_asked(assessed.job, name))
        if illegal(job, assessed.plan):
            continue
        verdict = judge_one(job, assessed.plan)
        yield ReleaseRun(
            name,
            load_stack(name).when,
            first_number(verdict.seconds),
            first_number(verdict.hbm_bytes),
            _band(job, assessed.plan),
        )


def _band(job: Job, plan: Plan) -> Band:
    """The band of a plan under an earlier release; wider where no run of that release is published."""
    band = job_band(job, plan)
    if any(run.stack == job.stack.name and bool(run.experts) == bool(job.experts) for run in published_runs()):
        return band
    return widened(band)
