"""How a plan ran in large runs, where those were slower than the benchmarks its stack was fitted on, and how far its
error band reaches there.

>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.models import load_model
>>> from dragonscale.training.cost.evaluation import make_job
>>> from dragonscale.training.plan.plan_file import parse_plan
>>> def as_large_run(on, plan):
...     job = make_job(load_model("llama3-70b"), parse_slice(on), 2048, 8192, "megatron-core")
...     run = in_production(job, parse_plan(plan))
...     return run and (run.stack, round(run.share, 2))
>>> as_large_run("h100:64", "fsdp2 tp8 pp4 z1"), as_large_run("h100:4096", "fsdp128 tp8 pp4 z1")
(None, ('megatron-2024', 1.0))
"""

from dataclasses import dataclass, replace

from dragonscale.physics.numbers import first_number
from dragonscale.physics.units import render
from dragonscale.training.cost.evaluation import Job, judge_one
from dragonscale.training.plan.auto import production_runs
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.stack import load_stack


@dataclass(frozen=True)
class InProduction:
    """A plan as large runs have run: the stack that describes them, whose runs they are, the seconds and MFU of a step
    then, and how far (0 to 1) an error band on as many chips reaches there."""

    stack: str
    runs: str
    seconds: float
    mfu: float
    share: float

    @property
    def text(self) -> str:
        """A clause for people."""
        takes = f"with --stack {self.stack} this plan takes {render(self.seconds, 's')}, {self.mfu:.1%} MFU"
        return f"large runs with the software of 2023 and 2024 ({self.runs}) were slower: {takes}"


def in_production(job: Job, plan: Plan) -> InProduction | None:
    """The plan of a dense model as large runs have run; None where no such runs are known."""
    if job.experts:
        return None
    for row in production_runs():
        if job.slice.chip.kin not in row.names or job.stack.name not in row.stacks or plan.dtype not in row.dtypes:
            continue
        share = row.share(job.slice.chips)
        if share:
            seconds = first_number(judge_one(replace(job, stack=load_stack(row.as_run)), plan).seconds)
            mfu = job.model_flops / (seconds * job.slice.flops)
            return InProduction(row.as_run, row.runs, seconds, mfu, share)
    return None
