"""Published steps of a model on a chip, to compare a measured step with (`measured_runs.toml`).

>>> from dragonscale.models import load_model
>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.training.cost.evaluation import make_job
>>> job = make_job(load_model("qwen3-30b-a3b"), parse_slice("h100:16"), 512, 4096, "megatron-core")
>>> [(run.release, round(run.tokens_per_s_per_chip)) for run in runs_of_model(job)]
[('26.04.01 container, pretrain', 8960), ('25.11 container, pretrain', 5275)]
"""

import functools
import re
from dataclasses import dataclass

import msgspec

from dragonscale.plan.settings import shipped_table
from dragonscale.training.cost.evaluation import Job
from dragonscale.training.plan.plan import Plan, short_plan
from dragonscale.training.plan.plan_file import parse_plan


@dataclass(frozen=True)
class ModelShape:
    """What identifies a model, since every source has its own names: `d_ff` is the widest MLP's or expert's, and
    `experts` those of the layers that have most, 0 of a dense model."""

    layers: int
    d_model: int
    d_ff: int
    vocabulary: int
    experts: int


def shape_of(job: Job) -> ModelShape:
    """The shape of a job's model.

    >>> from dragonscale.models import load_model
    >>> from dragonscale.physics.hardware import parse_slice
    >>> from dragonscale.training.cost.evaluation import make_job
    >>> shape_of(make_job(load_model("llama3-8b"), parse_slice("h100:8"), 64, 8192))
    ModelShape(layers=32, d_model=4096, d_ff=14336, vocabulary=128256, experts=0)
    """
    d_ff = max((section.dims.get("f", 0) for section in job.model.program().sections), default=0)
    return ModelShape(job.model.n_layers, job.model.d_model, d_ff, job.model.vocab, job.experts)


class PublishedRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A published step: `batch` sequences of `seq` tokens in `step_s` seconds on `chips` chips; `model` is its source's
    name of it."""

    source: str
    model: str
    layers: int
    d_model: int
    d_ff: int
    vocabulary: int
    experts: int
    chip: str
    chips: int
    stack: str
    plan: str
    batch: int
    seq: int
    step_s: float

    @property
    def shape(self) -> ModelShape:
        """The shape of its model."""
        return ModelShape(self.layers, self.d_model, self.d_ff, self.vocabulary, self.experts)

    @property
    def tokens_per_s_per_chip(self) -> float:
        """Its rate, which runs of other batches and numbers of chips can be compared by."""
        return self.batch * self.seq / self.step_s / self.chips

    @property
    def parsed_plan(self) -> Plan:
        """Its plan."""
        return parse_plan(self.plan)

    @property
    def document(self) -> str:
        """The source without the table or release in it."""
        return self.source.partition(" [")[0]

    @property
    def release(self) -> str:
        """The table or release of the source; empty where it names none."""
        match = re.search(r"\[([^\]]*)\]", self.source)
        return match[1] if match else ""

    @property
    def text(self) -> str:
        """Its rate, which model ran how, and who published it."""
        where = f"{self.document}, {self.release}" if self.release else self.document
        plan = short_plan(self.parsed_plan)
        return f"{self.tokens_per_s_per_chip:,.0f} tokens/s a chip ({self.model}, {plan} on {self.chips:,}; {where})"


@functools.cache
def published_runs() -> tuple[PublishedRun, ...]:
    """All runs of the table."""
    return msgspec.convert(shipped_table("training.search", "measured_runs.toml")["runs"], tuple[PublishedRun, ...])


def runs_of_model(job: Job) -> list[PublishedRun]:
    """The published runs of a job's model on its chip, whatever their batch, plan and number of chips."""
    shape = shape_of(job)
    return [run for run in published_runs() if run.chip == job.slice.chip.kin and run.shape == shape]
