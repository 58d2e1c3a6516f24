"""The change of a plan that makes it fit where it fills a chip beyond its memory, or frees most of it.

>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.models import load_model
>>> from dragonscale.training.cost.evaluation import make_job
>>> from dragonscale.training.plan.plan_file import parse_plan
>>> job = make_job(load_model("llama3-8b"), parse_slice("h100:8"), 64, 8192, "megatron-lm")
>>> relief = memory_relief(job, parse_plan("data8 z0 none mb2"), judge_one(job, parse_plan("data8 z0 none mb2")))
>>> relief.settings if relief else ()
('fsdp', 'zero', 'remat')
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dragonscale.physics.numbers import first_number
from dragonscale.training.advice.speedups import is_possible
from dragonscale.training.cost.evaluation import Job, Verdict, judge_one, problems, with_numerics
from dragonscale.training.plan.plan import HOSTED_STATE, Plan

# A change that frees a smaller fraction of the memory is none to name.
MIN_FREED = 0.02


@dataclass(frozen=True)
class MemoryRelief:
    """A job and plan that need less memory than a plan before; `settings` are those of the plan that changed, none
    where gradients in bf16 are the change."""

    job: Job
    plan: Plan
    settings: tuple[str, ...]
    verdict: Verdict

    @property
    def hbm_bytes(self) -> float:
        """Bytes on the fullest chip."""
        return first_number(self.verdict.hbm_bytes)

    @property
    def host_bytes(self) -> float:
        """Bytes of the host's memory for each chip."""
        return first_number(self.verdict.ledger.host_bytes)

    @property
    def step_s(self) -> float:
        return first_number(self.verdict.seconds)

    @property
    def fits(self) -> bool:
        """Whether the fullest chip holds it."""
        return self.hbm_bytes <= self.job.slice.chip.visible


def memory_relief(job: Job, plan: Plan, verdict: Verdict) -> MemoryRelief | None:
    """The fastest change that makes a plan fit: its software's numerics, or recompute, microbatch and ZeRO of its mesh;
    where none is enough, state in the host's memory. Without any, the change that frees most; None where that is next
    to nothing."""
    tried = [
        MemoryRelief(other, changed, settings, judge_one(other, changed))
        for other, changed, settings in _smaller(job, plan)
        if is_possible(other, plan, changed)
    ]
    fitting = [relief for relief in tried if relief.fits]
    if fitting:
        best = min(fitting, key=lambda relief: relief.step_s)
    elif (hosted := host_offload(job, plan)) is not None:
        return hosted
    elif tried:
        best = min(tried, key=lambda relief: (relief.hbm_bytes, relief.step_s))
    else:
        return None
    least_bytes = min(relief.hbm_bytes for relief in tried)
    return best if least_bytes <= (1 - MIN_FREED) * first_number(verdict.hbm_bytes) else None


def _smaller(job: Job, plan: Plan) -> Iterator[tuple[Job, Plan, tuple[str, ...]]]:
    """The job and plan with one or two changes that need less memory and are not in place yet."""
    benchmark = with_numerics(job, "benchmark")
    if job.numerics != "benchmark" and benchmark.stack != job.stack:
        yield benchmark, plan, ()
    recomputed = replace(plan, remat="block")
    if plan.remat != "block":
        yield job, recomputed, ("remat",)
    if plan.microbatch > 1:
        yield job, replace(plan, microbatch=1), ("microbatch",)
        yield job, replace(recomputed, microbatch=1), ("microbatch", "remat")
    if plan.fsdp > 1 and plan.zero < 3:
        yield job, replace(plan, zero=3), ("zero",)
        yield job, replace(recomputed, zero=3), ("zero", "remat")
    if plan.data > 1:
        # whole replicas sharded instead, with the stage they have and with ZeRO-3
        for zero in sorted({plan.zero or 1, 3}):
            sharded = replace(plan, data=1, fsdp=plan.data * plan.fsdp, zero=zero)
            yield job, sharded, ("fsdp", "zero")
            yield job, replace(sharded, remat="block"), ("fsdp", "zero", "remat")


def host_offload(job: Job, plan: Plan) -> MemoryRelief | None:
    """The first offload of state to the host's memory with which a plan fits, its other settings changed as little as
    that needs; None where there is none, or where it is in place already."""
    if plan.offload in HOSTED_STATE:
        return None
    # activations at their least, if the state alone is not what is too much
    least = replace(plan, microbatch=1, remat="block")
    for changed in (plan, least, replace(least, zero=3)):
        for offload in HOSTED_STATE:
            hosted = replace(changed, offload=offload)
            if not is_possible(job, plan, hosted):
                continue
            verdict = judge_one(job, hosted)
            if not problems(job, hosted, verdict):
                return MemoryRelief(job, hosted, ("offload",), verdict)
    return None
