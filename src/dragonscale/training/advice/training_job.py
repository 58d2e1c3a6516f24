"""A training run to be planned: what is trained, on which chips, in which steps, and what an answer has to keep to.

The slice, the software stack and the plan may still be open. `on_slice` gives the steps of the run on one slice, as a
`Job` that plans are judged for.

>>> from dragonscale.models import load_model
>>> from dragonscale.physics.hardware import parse_slice
>>> run = TrainingJob(load_model("llama3-8b"), parse_slice("h100:64"), batch=512, sequence=8192)
>>> run.on_slice().stack.name, run.on_slice(parse_slice("gb200:64")).slice.chips
('torchtitan', 64)
"""

from dataclasses import dataclass, replace

from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip, Slice
from dragonscale.training.advice.targets import Target
from dragonscale.training.cost.evaluation import (
    Job,
    make_job,
    nearest_jobs,
    offload_jobs,
    unusual_jobs,
    usual_jobs,
    with_numerics,
)
from dragonscale.training.cost.goodput import Conditions
from dragonscale.training.plan.auto import AUTO
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.simplicity import SLACK
from dragonscale.training.plan.stack import change, numerics_for
from dragonscale.training.plan.tuning import FULL, Tuning
from dragonscale.training.search.allowed_space import offered
from dragonscale.training.search.space import Space


@dataclass(frozen=True)
class TrainingJob:
    """A run of `batch` sequences of `sequence` tokens a step, and the limits that its plan has to keep."""

    model: Transformer
    slice: Slice | None
    """Where it runs; None where the question is which of the `targets` to take."""
    batch: int
    sequence: int
    tokens: float | None = None
    """Tokens of the whole run, where they are known."""
    documents: int | None = None
    """Mean tokens of the documents that a sequence is packed with; None where it is one document."""
    tuning: Tuning = FULL
    plan: Plan | None = None
    """The plan to judge; None where the best one is searched for."""
    space: Space = Space()
    """The plans that a search looks through."""
    targets: tuple[Target, ...] = ()
    """Chips, and slices of chips, to choose from."""
    stack: str = AUTO
    chosen_stack: str = ""
    """Of the stacks that `auto` weighs, the one that was taken."""
    numerics: str = ""
    """How gradients are added and reduced (`stack.NUMERICS`); empty: as the stack's software has it."""
    skew: float = 1.0
    """Tokens of the busiest expert over the mean, times that of the stack."""
    capacity: float = 0.0
    """The experts' capacity factor; 0: as the stack has it."""
    conditions: Conditions = Conditions()
    """Failures, checkpoints and spares of the run."""
    slack: float = SLACK
    """How much slower than the fastest plan a simpler one may be."""
    headroom: float | None = None
    """The fraction of memory that a recommended plan leaves free; None: as predicted peaks have been off."""
    deadline: float | None = None
    """Seconds that the run, or without `tokens` a step, may take."""

    @property
    def chip(self) -> Chip | None:
        """The chip, where all that is open is how many of them."""
        return self.targets[0][0] if len(self.targets) == 1 else None

    def on_slice(self, target: Slice | None = None) -> Job:
        """The steps of the run on a slice, with the stack that was named or taken there, else the most usual one."""
        where = target or self.slice
        assert where is not None, "the slice is still open"
        job = make_job(self.model, where, self.batch, self.sequence, self.stack, self.tuning)
        # numerics go by the format of the matmuls, which a search may have to change on this chip
        settings = self.plan or offered(job, self.space).words
        job = with_numerics(job, numerics_for(self.numerics, settings.dtype))
        candidates = (*usual_jobs(job), *unusual_jobs(job), *offload_jobs(job), *nearest_jobs(job))
        job = next((other for other in candidates if other.stack.name == self.chosen_stack), job)
        limit = {"capacity": self.capacity} if self.capacity else {}
        stack = change(job.stack, "experts", skew=job.stack.experts.skew * self.skew, **limit)
        return replace(job, stack=stack, documents=self.documents, headroom=self.headroom, run=self.conditions)
