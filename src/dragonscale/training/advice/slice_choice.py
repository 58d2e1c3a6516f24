"""Which slice to take, or part of one, and the same job on slices around its own."""

from collections.abc import Iterator
from dataclasses import dataclass

from dragonscale.physics.hardware import Slice
from dragonscale.training.advice.assessment import PlanAssessment, assess
from dragonscale.training.advice.inverse import Fit, fits
from dragonscale.training.advice.scaling import SCHEMES, Point, around, between, crossover, parts_of, scheme_curve
from dragonscale.training.advice.scaling import slice_sizes as sizes_of
from dragonscale.training.advice.targets import LONGEST_RUN_S
from dragonscale.training.advice.training_job import TrainingJob
from dragonscale.training.cost.evaluation import Job
from dragonscale.training.search.search import Progress, shared
from dragonscale.training.search.stack_search import search_stacks


@dataclass(frozen=True)
class CheapestPart:
    """The slice or part of it that costs least for each token; of runs whose tokens are known, among the parts that end
    within a year, where some do."""

    best: Fit
    cheapest: Fit
    """The cheapest of all, however long its run takes."""
    shortest: Fit
    """The part with the shortest run."""
    in_time: bool
    """Whether a part ends within a year."""


def cheapest_part(run: TrainingJob, job: Job, progress: Progress | None = None) -> CheapestPart | None:
    """The part of a job's slice to take by cost; None where no part has a plan that leaves room in memory."""
    parts = [*parts_of(job.slice), job.slice]
    roomy = [fit for fit in fits(job, parts, run.space, run.tokens, progress) if fit.roomy]
    if not roomy:
        return None
    # on one kind of chip dollars are chip-seconds, so no price is needed to compare parts
    cheapest = min(roomy, key=chip_seconds)
    in_time = [fit for fit in roomy if run.tokens is None or fit.seconds <= LONGEST_RUN_S]
    best = min(in_time, key=chip_seconds) if in_time else cheapest
    return CheapestPart(best, cheapest, min(roomy, key=lambda fit: fit.seconds), bool(in_time))


def chip_seconds(fit: Fit) -> float:
    """What a step costs in seconds of a chip."""
    return fit.best.seconds * fit.job.slice.chips


@dataclass(frozen=True)
class ScalingPoint:
    """The best plan of a slice (None: nothing fits), and its tokens a second and chip over those of the first slice."""

    slice: Slice
    assessed: PlanAssessment | None
    efficiency: float | None = None

    @property
    def tokens_per_s(self) -> float | None:
        return None if self.assessed is None else self.assessed.job.tokens / self.assessed.step_s


def scaling_points(run: TrainingJob, target: Slice, progress: Progress | None = None) -> Iterator[ScalingPoint]:
    """The best plan on slices around one, or from the smallest to the largest of those that were named of its chip.

    Efficiency is over the slice itself, of several named ones over the smallest.
    """
    # --on h100:64,h100:512 asks for everything between the two
    named = [slice_ for chip, slice_ in run.targets if slice_ is not None and chip.name == target.chip.name]
    named.sort(key=lambda slice_: slice_.chips)
    if len(named) > 1:
        slices, base = between(named[0], named[-1]), named[0]
    else:
        slices, base = around(target), target
    of_base = search_stacks(run.on_slice(base), run.space, 1, None, run.slack)[0]
    base_rate = None  # tokens a second and chip
    if of_base.best is not None:
        base_rate = of_base.job.tokens / of_base.best.seconds / base.chips
    for done, part in enumerate(slices):
        share = shared(progress, done, len(slices))
        result = of_base if part == base else search_stacks(run.on_slice(part), run.space, 1, share, run.slack)[0]
        if result.best is None:
            yield ScalingPoint(part, None)
            continue
        assessed = assess(result.job, result.best.plan)
        rate = result.job.tokens / assessed.step_s / part.chips
        base_rate = base_rate or rate  # where nothing fits on the base, over the smallest slice that has a plan
        yield ScalingPoint(part, assessed, rate / base_rate)


@dataclass(frozen=True)
class SchemeCurve:
    """A single scheme (`fsdp`, `tensor` …) over the chips of a slice, and from how many on its wires take longer than
    its compute at datasheet rates; None where they never do."""

    scheme: str
    points: list[Point]
    crossover: float | None

    @property
    def at_crossover(self) -> Point:
        """The largest slice that was tried near the crossover; without one the largest of all."""
        limit = self.points[-1].chips if self.crossover is None else self.crossover * 2
        return max((point for point in self.points if point.chips <= limit), key=lambda point: point.chips)


def scheme_curves(job: Job) -> Iterator[SchemeCurve]:
    """Each scheme that can be spread over the chips of a job's slice, alone."""
    slices = sizes_of(job.slice.chip, max(job.slice.chips * 4, 64))
    for scheme in SCHEMES:
        if points := scheme_curve(job, scheme, slices):
            yield SchemeCurve(scheme, points, crossover(points))
