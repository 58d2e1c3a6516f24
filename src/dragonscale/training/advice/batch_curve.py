"""A plan over many sizes of the batch at once, and the sizes at which what it moves stops hiding under its compute.

The number of microbatches stays as it is, so a larger batch means larger microbatches: what the book calls the batch of
a chip. `training/cost/formulas.py` solves the same equations over letters; here both sides are lines between sizes that
were judged, which takes as long as judging one plan. Below a microbatch of one sequence a plan cannot run: there the
sides go on as the straight lines that they are, and nothing is expected.

>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.models import load_model
>>> from dragonscale.training.cost.evaluation import make_job
>>> from dragonscale.training.plan.plan_file import parse_plan
>>> job = make_job(load_model("llama3-70b"), parse_slice("v5p:8x16x16"), 2048, 4096)
>>> curve = batch_curve(job, parse_plan("fsdp=2048,remat=none"))
>>> [(one.term, round(one.sequences * 4096 / 2048), one.hides) for one in curve.crossovers()]
[('fsdp collectives', 1103, 'above')]
"""

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy

from dragonscale.physics.sharding.placement import lay_wires
from dragonscale.training.cost.evaluation import Job, degrees_of, judge_setting, make_setting, structures
from dragonscale.training.plan.plan import AXES, Plan
from dragonscale.training.plan.stages import stage_layers

SPAN = 5.0
"""Doublings of the batch to either side."""
POINTS = 81


@dataclass(frozen=True)
class BatchCrossover:
    """A size of the batch at which a kind of move takes as long as compute at datasheet rates; it hides on one side of
    it."""

    term: str
    sequences: float
    hides: str


@dataclass(frozen=True)
class BatchCurve:
    """Seconds of a step by the sequences of its batch: expected (not a number where the plan cannot run), and at
    datasheet rates compute and each kind of move."""

    sequences: Any
    expected_s: Any
    compute_s: Any
    wires_s: dict[str, Any]

    def crossovers(self) -> list[BatchCrossover]:
        """Where each kind of move takes as long as compute, the smallest batch first."""
        found = [one for term, seconds in self.wires_s.items() for one in self._crossed(term, seconds - self.compute_s)]
        return sorted(found, key=lambda one: one.sequences)

    def _crossed(self, term: str, gap: Any) -> list[BatchCrossover]:
        found = []
        for (left, low), (right, high) in itertools.pairwise(zip(self.sequences, gap, strict=True)):
            if (low > 0) != (high > 0):
                where = float(left + (right - left) * low / (low - high))
                found.append(BatchCrossover(term, where, "above" if low > 0 else "below"))
        return found


def batch_curve(job: Job, plan: Plan) -> BatchCurve:
    """A plan with smaller and larger microbatches, as many of them as it has."""
    every = job.batch * 2 ** numpy.linspace(-SPAN, SPAN, POINTS)
    least = job.batch / plan.microbatch
    runs = every >= least * (1 - 1e-9)
    sizes = numpy.array([least, 2 * least, *numpy.where(runs, every, least)])
    ((folded, undivided),), _ = structures(job, degrees_of([plan]), plan.etp)
    numbers = {name: numpy.repeat(value, len(sizes)) for name, value in degrees_of([plan]).items()}
    numbers["microbatch"] = numbers["microbatch"] * sizes / job.batch
    setting = replace(make_setting(job, plan, folded, dict(undivided)), batch=sizes)
    layers = stage_layers(setting.program.order, numbers["pipe"], numbers["virtual"], plan.layout)
    verdict = judge_setting(setting, numbers, lay_wires(numbers, job.slice, AXES), layers)

    def each(value: Any) -> Any:
        """A side at every size: where the plan cannot run, on the line through the two smallest at which it can."""
        first, second, *found = numpy.broadcast_to(numpy.asarray(value, float), (len(sizes),))
        return numpy.where(runs, found, first + (second - first) * (every / least - 1))

    wires = {term: each(seconds) for term, seconds in verdict.wires_s.items()}
    moving = {term: seconds for term, seconds in wires.items() if seconds.max() > 0}
    expected = numpy.where(runs, each(verdict.seconds), numpy.nan)
    return BatchCurve(every, expected, each(verdict.compute_s), moving)
