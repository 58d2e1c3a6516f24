"""The planner asked backwards: the fewest chips, the largest batch, the largest model.

Feasibility does not grow evenly with the chips (heads and batches must divide), so slices are tried one by one in
order, from the smallest that could possibly do: no slice computes faster than its peak or holds more than its memory.

Batches and numbers of chips near those asked for, where what was asked for does not divide:

>>> batches_near(72, 512, 0.125)[:3]
[504, 576, 540]
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from dragonscale.errors import Infeasible, InputError
from dragonscale.models.lora import PART
from dragonscale.models.transformer import Transformer, count_parameters
from dragonscale.physics.hardware import Chip, Slice
from dragonscale.physics.hardware.slices import check_slice
from dragonscale.training.advice.budget import planned_run, run_budget
from dragonscale.training.advice.scaling import slice_sizes
from dragonscale.training.cost.evaluation import Job
from dragonscale.training.plan.optimizers import OPTIMIZER_BYTES
from dragonscale.training.plan.plan import HOSTED_STATE, HOSTED_WEIGHTS, Plan
from dragonscale.training.search.search import Candidate, Progress, shared
from dragonscale.training.search.space import Space, divisors, meshes
from dragonscale.training.search.stack_search import search_stacks

# The largest slice that is tried.
MOST_CHIPS = 65536

DEFAULT_PLAN = Plan()

# A smaller space for batches and slices near the one asked for.
QUICK = Space(schedule=("1f1b", "interleaved"))


def quick(space: Space) -> Space:
    """The space with no more ZeRO stages and schedules than `QUICK`, unless they were fixed."""
    default = Space()
    if space.zero == default.zero:
        space = replace(space, zero=tuple(stage for stage in space.zero if stage in QUICK.zero) or space.zero)
    if space.schedule == default.schedule:
        schedules = tuple(schedule for schedule in space.schedule if schedule in QUICK.schedule)
        space = replace(space, schedule=schedules or space.schedule)
    return space


@dataclass(frozen=True)
class Fit:
    """A slice with its best plan, and what the run costs there (None without a price or a length of the run)."""

    job: Job
    best: Candidate
    seconds: float
    cost: float | None
    tight: "Fit | None" = None
    """A nearer size that has a plan too, with less headroom in memory than is recommended."""

    @property
    def mfu(self) -> float:
        return self.job.model_flops / (self.best.seconds * self.job.slice.flops)

    @property
    def roomy(self) -> bool:
        """Whether the plan leaves headroom in memory."""
        return self.best.roomy


def run_seconds(job: Job, step_s: float, tokens: float | None) -> float:
    """Seconds of all steps of a run, or of one step where the run's tokens are not known."""
    if tokens is None:
        return step_s
    return run_budget(tokens, job.tokens, step_s, job.slice.chips).seconds


def finished_s(job: Job, best: Candidate, tokens: float | None) -> float:
    """Seconds until the run of a plan is expected to end, with failures and restarts."""
    seconds = run_seconds(job, best.seconds, tokens)
    if tokens is None:
        return seconds
    try:
        return planned_run(job, best.plan, seconds).seconds
    except Infeasible:  # it fails faster than it makes progress
        return math.inf


def least_chips(job: Job, chip: Chip, deadline: float | None, tokens: float | None, plan: Plan = DEFAULT_PLAN) -> int:
    """A lower bound on the chips that a job needs: fewer are too slow at their peak FLOP/s, or all their memory is less
    than weights and optimizer state (of adapters alone where they are what is trained)."""
    by_time = 1.0
    if deadline:
        steps = run_seconds(job, 1.0, tokens)
        by_time = steps * job.model_flops / (deadline * chip.peak(plan.dtype))
    # Bytes per parameter on the chip.
    state = 0.0 if plan.offload in HOSTED_STATE else OPTIMIZER_BYTES[plan.optimizer]
    weights = 0.0 if plan.offload in HOSTED_WEIGHTS else 2.0
    counts = count_parameters(job.model)
    trained = counts.by_part[PART] if job.tuning.rank else counts.total
    frozen = (counts.total - trained) * min(job.tuning.frozen_bytes, weights)
    by_memory = (trained * (weights + state) + frozen) / chip.visible
    return max(1, math.ceil(max(by_time, by_memory)))


def fits(
    job: Job, slices: Iterable[Slice], space: Space, tokens: float | None = None, progress: Progress | None = None
) -> Iterator[Fit]:
    """The best plan on each slice that has one."""
    slices = list(slices)
    for done, slice_ in enumerate(slices):
        search = search_stacks(replace(job, slice=slice_), space, 1, shared(progress, done, len(slices)))[0]
        if (best := search.best) is not None:
            budget = run_budget(tokens or job.tokens, job.tokens, best.seconds, slice_.chips, slice_.chip.price)
            yield Fit(search.job, best, finished_s(search.job, best, tokens), budget.cost_usd)


def fewest_chips(
    job: Job,
    chip: Chip,
    space: Space = QUICK,
    deadline: float | None = None,
    tokens: float | None = None,
    progress: Progress | None = None,
) -> Fit | None:
    """The smallest slice of a chip that holds the job with headroom and, if there is a deadline, meets it."""
    slices = slice_sizes(chip, MOST_CHIPS, least_chips(job, chip, deadline, tokens, space.words), fine=True)
    for fit in fits(job, slices, space, tokens, progress):
        if fit.roomy and (deadline is None or fit.seconds <= deadline):
            return fit
    return None


def last_fitting(sizes: list[int], holds: Callable[[int], bool]) -> int | None:
    """The largest of ascending sizes that fits, by bisection: what fits, fits when smaller. None if none does."""
    fitting, too_large = -1, len(sizes)  # indices between which the answer is
    while too_large - fitting > 1:
        middle = (fitting + too_large) // 2
        if holds(sizes[middle]):
            fitting = middle
        else:
            too_large = middle
    if fitting < 0:
        return None
    return sizes[fitting]


def _roomy(job: Job, space: Space, progress: Progress | None = None) -> Fit | None:
    """The recommended plan, if it leaves headroom in memory."""
    fit = _best(job, space, progress)
    if fit is None or not fit.roomy:
        return None
    return fit


def _best(job: Job, space: Space, progress: Progress | None = None) -> Fit | None:
    """The recommended plan, if there is one."""
    search = search_stacks(job, space, 1, progress)[0]
    return Fit(search.job, search.best, search.best.seconds, None) if search.best else None


def largest_batch(job: Job, space: Space = QUICK, progress: Progress | None = None) -> Fit | None:
    """The largest batch that goes through the chips in one pass, without gradient accumulation or a pipeline's rounds.

    (With accumulation every batch fits; this is how many sequences the memory holds at once.)
    """
    # Powers of two first, then finer steps up to the next one.
    single = replace(space, single=True, fixed=space.fixed | {"pipe": 1, "virtual": 1})
    fit = _largest({2**power: replace(job, batch=2**power) for power in range(24)}, single, progress)
    if fit is None:
        return None
    largest, step = fit.job.batch, min(fit.job.batch, job.slice.chips)
    between = {size: replace(job, batch=size) for size in range(largest + step, 2 * largest, step)}
    return _largest(between, single, progress) or fit


def _largest(jobs: dict[int, Job], space: Space, progress: Progress | None) -> Fit | None:
    """The plan of the largest of ascending jobs that leaves headroom in memory."""
    tried: dict[int, Fit | None] = {}

    def holds(size: int) -> bool:
        tried[size] = _roomy(jobs[size], space, progress)
        return tried[size] is not None

    size = last_fitting([*jobs], holds)
    return None if size is None else tried[size]


def deeper(model: Transformer, layers: int) -> Transformer:
    """The same model with another number of layers, its kinds of layers repeated in order.

    >>> from dragonscale.models import load_model
    >>> deeper(load_model("llama3-8b"), 64).n_layers
    64
    """
    old = model.layers
    # Layers before the first of the last kind come once (dense layers of an MoE), the rest is repeated.
    start = next((index for index, layer in enumerate(old) if layer == old[-1]), 0)
    once, cycle = old[:start], old[start:] or old
    repeated = (cycle[index % len(cycle)] for index in range(max(0, layers - len(once))))
    return replace(model, name=f"{model.name} with {layers} layers", layers=(*once, *repeated)[:layers])


def largest_model(job: Job, space: Space = QUICK, progress: Progress | None = None) -> Fit | None:
    """The deepest model of this width that trains on the slice."""
    unit = max(1, job.model.n_layers // 8)
    depths = range(unit, 512 * unit + 1, unit)
    return _largest({depth: replace(job, model=deeper(job.model, depth)) for depth in depths}, space, progress)


# How far a batch may be from the one asked for and still train the same way.
SPAN = 0.125
# The gain in MFU from which a neighbouring batch is named.
BETTER = 0.05
TRIES = 2
# Chips that replicas need not divide: a node of them holds the model instead.
INNER = 8


def batches_near(chips: int, batch: int, span: float) -> list[int]:
    """Batches near one that more of the chips divide, those first that most do."""
    neighbours: set[int] = set()
    for size in divisors(chips):
        below = batch // size * size
        neighbours |= {below, below + size}
    near = (size for size in neighbours if size > 0 and size != batch and abs(size / batch - 1) <= span)
    better = [size for size in near if math.gcd(size, chips) > math.gcd(batch, chips)]
    return sorted(better, key=lambda size: (-math.gcd(size, chips), abs(size - batch)))


def better_batch(job: Job, space: Space, mfu: float) -> Fit | None:
    """The batch near this one with the highest MFU, if that is better by `BETTER`; None where the batch divides well
    already."""
    chips = job.slice.chips
    undivided = chips // math.gcd(job.batch, chips)
    is_power_of_two = undivided & (undivided - 1) == 0
    if chips % job.batch == 0 or (undivided <= INNER and is_power_of_two):
        return None
    better: list[Fit] = []
    for batch in batches_near(chips, job.batch, SPAN)[:TRIES]:
        fit = _roomy(replace(job, batch=batch), quick(space))
        if fit is not None and fit.mfu > (1 + BETTER) * mfu:
            better.append(fit)
    return max(better, key=lambda fit: fit.mfu, default=None)


def nearest_possible(job: Job, space: Space, missing: float = 1.0) -> list[Fit]:
    """Where nothing runs: the nearest batch that has a plan, and the nearest number of chips. Where the memory is too
    small by a factor, no batch helps, and the chips start from where all of it would hold as much."""
    on_other_slices = (replace(job, slice=slice_) for slice_ in _slices_near(job.slice, missing))
    fits = [_first(on_other_slices, space)]
    if missing <= 1:
        batches = sorted(batches_near(job.slice.chips, job.batch, 1.0), key=lambda batch: abs(batch - job.batch))
        fits.insert(0, _first((replace(job, batch=batch) for batch in batches), space))
    return [fit for fit in fits if fit is not None]


def _first(jobs: Iterator[Job], space: Space) -> Fit | None:
    """The first job with a plan that leaves headroom in memory, with the first before it whose plan is tight."""
    possible = (job for job in jobs if len(meshes(job, space)["pipe"]))
    tight = None
    for job, _ in zip(possible, range(2 * TRIES), strict=False):
        fit = _best(job, quick(space))
        if fit is not None and fit.roomy:
            return replace(fit, tight=tight)
        tight = tight or fit
    return None


def _slices_near(slice_: Slice, missing: float = 1.0) -> list[Slice]:
    """Slices that can be had, nearest in size first. Where memory is too small by a factor `missing`, larger slices,
    the smallest first, from half of the size that would hold as much."""
    chips = slice_.chips
    if missing > 1:
        larger = slice_sizes(slice_.chip, int(8 * missing * chips), chips + 1)
        near = [other for other in larger if other.chips >= chips * missing / 2]
        near.sort(key=lambda other: other.chips)
    else:
        sizes = slice_sizes(slice_.chip, 4 * chips, max(1, chips // 2), fine=True)
        near = [other for other in sizes if other.chips != chips]
        near.sort(key=lambda other: abs(other.chips - chips))
    return [other for other in near if rentable(other)]


def rentable(slice_: Slice) -> bool:
    """Whether a slice of this size and shape exists."""
    try:
        check_slice(slice_)
    except InputError:
        return False
    return True
