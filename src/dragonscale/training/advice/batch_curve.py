"""A plan over many sizes of the batch at once, and the sizes at which what it moves stops hiding under its compute.

The number of microbatches stays as it is, so a larger batch means larger microbatches: what the book calls the batch of
a chip. `training/cost/wire_crossings.py` solves the same equations over letters; here both sides are lines between
sizes that were judged, which takes as long as judging one plan. Below a microbatch of one sequence a plan cannot run:
there the sides go on as the straight lines that they are, and nothing is expected.

>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.models import load_model
>>> from dragonscale.training.cost.evaluation import make_job
>>> from dragonscale.training.plan.plan_file import parse_plan
>>> job = make_job(load_model("llama3-70b"), parse_slice("v5p:8x16x16"), 2048, 4096)
>>> curve = batch_curve(job, parse_plan("fsdp=2048,remat=none"))
>>> [(row.term, round(row.sequences * 4096 / 2048), row.hides) for row in curve.crossovers()]
[('fsdp collectives', 1103, 'above')]
"""

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy
from numpy.typing import NDArray

from dragonscale.physics.sharding.placement import lay_wires
from dragonscale.training.cost.evaluation import Job, degrees_of, judge_setting, make_setting, only_structure
from dragonscale.training.plan.plan import AXES, Plan
from dragonscale.training.plan.stages import stage_layers

# Doublings of the batch to either side.
SPAN = 5.0
POINTS = 81

Curve = NDArray[numpy.float64]
"""A quantity at every batch size of a curve: (points,)."""


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

    sequences: Curve
    expected_s: Curve
    compute_s: Curve
    wires_s: dict[str, Curve]

    def crossovers(self) -> list[BatchCrossover]:
        """Where each kind of move takes as long as compute, the smallest batch first."""
        result: list[BatchCrossover] = []
        for term, seconds in self.wires_s.items():
            gaps = seconds - self.compute_s
            for (left, low), (right, high) in itertools.pairwise(zip(self.sequences, gaps, strict=True)):
                if (low > 0) != (high > 0):
                    crossing = float(left + (right - left) * low / (low - high))
                    result.append(BatchCrossover(term, crossing, "above" if low > 0 else "below"))
        return sorted(result, key=lambda crossover: crossover.sequences)


def batch_curve(job: Job, plan: Plan) -> BatchCurve:
    """A plan with smaller and larger microbatches, as many of them as it has."""
    batches = job.batch * 2 ** numpy.linspace(-SPAN, SPAN, POINTS)  # (points,)
    smallest = job.batch / plan.microbatch  # that with microbatches of one sequence
    runs = batches >= smallest * (1 - 1e-9)
    # The first two sizes span the line on which a curve goes on below the smallest batch.
    sizes = numpy.array([smallest, 2 * smallest, *numpy.where(runs, batches, smallest)])  # (2 + points,)
    degrees: dict[str, Any] = degrees_of([plan])
    folded, undivided = only_structure(job, degrees, plan.etp)
    degrees = {name: numpy.repeat(value, len(sizes)) for name, value in degrees.items()}
    degrees["microbatch"] = degrees["microbatch"] * sizes / job.batch
    setting = replace(make_setting(job, plan, folded, dict(undivided)), batch=sizes)
    layers = stage_layers(setting.program.order, degrees["pipe"], degrees["virtual"], plan.layout)
    verdict = judge_setting(setting, degrees, lay_wires(degrees, job.slice, AXES), layers)

    def curve(value: Any) -> Curve:
        """A quantity at every size: where the plan cannot run, on the line through the two smallest sizes."""
        first, second, *judged = numpy.broadcast_to(numpy.asarray(value, float), (len(sizes),))
        return numpy.where(runs, judged, first + (second - first) * (batches / smallest - 1))

    wires = {term: curve(seconds) for term, seconds in verdict.wires_s.items()}
    moving = {term: seconds for term, seconds in wires.items() if seconds.max() > 0}
    expected = numpy.where(runs, curve(verdict.seconds), numpy.nan)
    return BatchCurve(batches, expected, curve(verdict.compute_s), moving)
