"""The slices that hold a step of reinforcement learning: the smallest of a chip, or a larger one where nothing fits."""

from dataclasses import dataclass, replace

from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip, Slice
from dragonscale.simulation.rl.frameworks import Framework
from dragonscale.simulation.rl.step import RlStep
from dragonscale.simulation.rl.ways import Choices, search_steps
from dragonscale.simulation.rl.work import RlWork
from dragonscale.training.advice.inverse import least_chips
from dragonscale.training.advice.scaling import slice_sizes
from dragonscale.training.cost.evaluation import make_job

# The largest slice that is looked at where a chip is named without a number, and how many sizes are tried.
MAX_CHIPS = 65_536
MAX_SIZES = 5


@dataclass(frozen=True)
class RlJob:
    """What is to be planned: the work of a step, the slice it runs on, the frameworks that may run it, and what a plan
    may choose from."""

    work: RlWork
    slice: Slice
    frameworks: list[Framework]
    choices: Choices

    def search(self) -> list[RlStep]:
        """Every way to run the step on the slice, the best first."""
        return search_steps(self.work, self.slice, self.frameworks, self.choices)


def slices_from_least(model: Transformer, chip: Chip) -> list[Slice]:
    """A few slices of a chip by size, from the smallest whose memory could hold weights and optimizer."""
    sizes = slice_sizes(chip, MAX_CHIPS)
    # the state of training alone: one sequence, no deadline
    job = make_job(model, sizes[-1], 1, model.context or 1)
    least = least_chips(job, chip, deadline=None, tokens=None)
    large_enough = [candidate for candidate in sizes if candidate.chips >= least]
    return large_enough[:MAX_SIZES] or sizes[-1:]


def smallest_fitting(job: RlJob) -> tuple[RlJob, list[RlStep]]:
    """The job on the smallest slice of its chip that holds the step with headroom, and its ways there.

    Without such a slice it is the smallest that holds the step tightly, and without that the largest that was tried.
    """
    tight: tuple[RlJob, list[RlStep]] | None = None
    steps: list[RlStep] = []
    for candidate in slices_from_least(job.work.model, job.slice.chip):
        job = replace(job, slice=candidate)
        steps = job.search()
        if not steps or not steps[0].fits:
            continue
        if not steps[0].tight:
            return job, steps
        tight = tight or (job, steps)
    return tight or (job, steps)


def larger_slice_that_fits(job: RlJob) -> Slice | None:
    """The smallest of a few larger slices that holds the step; None where none of them does."""
    for candidate in slice_sizes(job.slice.chip, MAX_CHIPS, job.slice.chips + 1)[:MAX_SIZES]:
        steps = replace(job, slice=candidate).search()
        if steps and steps[0].fits:
            return candidate
    return None
