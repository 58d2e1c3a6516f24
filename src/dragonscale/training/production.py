"""How a plan runs in production, where runs of that many chips were slower than the benchmarks its stack is settled on.

>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.models import load_model
>>> from dragonscale.training.evaluation import make_job
>>> from dragonscale.training.plan_file import parse_plan
>>> def found(on, plan):
...     job = make_job(load_model("llama3-70b"), parse_slice(on), 2048, 8192, "megatron-core")
...     run = in_production(job, parse_plan(plan))
...     return run and run.stack
>>> found("h100:512", "fsdp16 tp8 pp4 z1"), found("h100:4096", "fsdp128 tp8 pp4 z1")
(None, 'megatron-2024')
"""

from dataclasses import dataclass, replace

from dragonscale.physics.units import render
from dragonscale.training.auto import production_runs
from dragonscale.training.bands import is_moe
from dragonscale.training.evaluation import Job, first, judge_one
from dragonscale.training.plan import Plan
from dragonscale.training.stack import load_stack


@dataclass(frozen=True)
class InProduction:
    """A plan as large runs have run: the stack that has them, whose runs they are, and what it then takes."""

    stack: str
    runs: str
    seconds: float
    mfu: float

    @property
    def text(self) -> str:
        """In a clause."""
        takes = f"with --stack {self.stack} this plan takes {render(self.seconds, 's')}, {self.mfu:.1%} MFU"
        return f"production runs on thousands of these chips ({self.runs}) have been slower: {takes}"


def in_production(job: Job, plan: Plan) -> InProduction | None:
    """The plan of a dense model as large runs have run; None where nothing is known of such runs."""
    for one in production_runs():
        chips = job.slice.chip.kin in one.names and job.slice.chips >= one.least_chips
        if chips and job.stack.name in one.stacks and plan.dtype in one.dtypes and not is_moe(job):
            seconds = first(judge_one(replace(job, stack=load_stack(one.as_run)), plan).seconds)
            return InProduction(one.as_run, one.runs, seconds, job.model_flops / (seconds * job.slice.flops))
    return None
