"""MFU and TFLOP/s as software logs them: many trainers count all of attention where causal attention computes half, and
some divide by an A100's peak on GPUs that they do not know.

>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.models import load_model
>>> from dragonscale.training.cost.evaluation import make_job
>>> job = make_job(load_model("gpt2"), parse_slice("rtx4090:1"), 12, 1024, "torch-compile")
>>> count = flop_count(job)
>>> count.title, f"{count.flops / job.model_flops:.2f}", f"{count.peak / 1e12:.0f}"
('nanoGPT', '1.07', '312')
"""

from dataclasses import dataclass
from typing import Any

from dragonscale.models.flops import Workload, training_flops
from dragonscale.plan.settings import shipped_table
from dragonscale.training.cost.evaluation import Job
from dragonscale.training.plan.stack import load_stack, stacks


@dataclass(frozen=True)
class FlopCount:
    """How the software of a job counts: FLOPs of a step, and the FLOP/s of a chip that it calls the peak."""

    title: str
    flops: float
    peak: float
    foreign_peak: bool
    """Whether that peak is not the chip's own."""

    def mfu(self, step_s: float, chips: int) -> float:
        """The MFU that it logs for a step."""
        return self.flops / (step_s * chips * self.peak)


def flop_count(job: Job) -> FlopCount | None:
    """How the software of a job counts FLOPs; None where it counts as this tool does, or nothing is known."""
    row = _row(job.stack.name)
    if row is None:
        return None
    work = Workload(job.batch, job.sequence, job.sequence, causal=False)
    flops = float(sum(training_flops(job.model.program().sections, work).values()))
    peak, chip = job.slice.chip.peak("bf16"), job.slice.chip
    foreign = bool(row.get("peak")) and chip.kin not in row.get("known", ())
    return FlopCount(row["title"], flops, row["peak"] if foreign else peak, foreign and row["peak"] != peak)


def _row(stack: str) -> dict[str, Any] | None:
    """The row of a stack, or of the nearest one that it starts from."""
    table = shipped_table("training.advice", "flop_counts.toml")
    while stack in stacks():
        if stack in table:
            return table[stack]
        stack = load_stack(stack).base
    return None
