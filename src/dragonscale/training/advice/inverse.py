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
from dragonscale.training.plan.plan import HOSTED_STATE, Plan
from dragonscale.training.search.search import Candidate, Progress, shared
from dragonscale.training.search.space import Space, divisors, meshes
from dragonscale.training.search.stack_search import search_stacks

MOST_CHIPS = 65536
USUAL = Plan()
QUICK = Space(schedule=("1f1b", "interleaved"))
"""A smaller space for batches and slices near the one asked for."""


def quick(space: Space) -> Space:
    """A space with no more words than `QUICK` where it leaves them open; what was pinned stays."""
    every, found = Space(), {}
    for name in ("zero", "schedule"):
        given = getattr(space, name)
        fewer = tuple(one for one in given if one in getattr(QUICK, name))
        found[name] = fewer if given == getattr(every, name) and fewer else given
    return replace(space, **found)


@dataclass(frozen=True)
class Fit:
    """A slice with its best plan, and what the run costs there (None without a price or a length of the run)."""

    job: Job
    best: Candidate
    seconds: float
    cost: float | None
    tight: "Fit | None" = None
    """A nearer size that has a plan too, with less room in memory than is recommended."""

    @property
    def mfu(self) -> float:
        return self.job.model_flops / (self.best.seconds * self.job.slice.flops)

    @property
    def roomy(self) -> bool:
        """Whether the plan leaves room in memory."""
        return self.best.roomy


def run_seconds(job: Job, step_s: float, tokens: float | None) -> float:
    """How long the run's steps take, or a step if nothing is said about the run."""
    return step_s if tokens is None else run_budget(tokens, job.tokens, step_s, job.slice.chips).seconds


def finished_s(job: Job, best: Candidate, tokens: float | None) -> float:
    """When the run of a plan is expected to end, failures and restarts with it."""
    seconds = run_seconds(job, best.seconds, tokens)
    try:
        return seconds if tokens is None else planned_run(job, best.plan, seconds).seconds
    except Infeasible:
        return math.inf


def least_chips(job: Job, chip: Chip, deadline: float | None, tokens: float | None, words: Plan = USUAL) -> int:
    """Fewer chips than this cannot do: their peak FLOP/s are too slow, or all their memory is less than weights and
    optimizer state, of adapters alone where they are what is trained."""
    steps = run_seconds(job, 1.0, tokens)
    by_time = steps * job.model_flops / (deadline * chip.peak(words.dtype)) if deadline else 1.0
    state = OPTIMIZER_BYTES[words.optimizer] if words.offload not in HOSTED_STATE else 0.0
    weights = 2.0 if words.offload != "parameters" else 0.0
    counts = count_parameters(job.model)
    trained = counts.by_part[PART] if job.tuning.rank else counts.total
    frozen = (counts.total - trained) * min(job.tuning.frozen_bytes, weights)
    by_memory = (trained * (weights + state) + frozen) / chip.visible
    return max(1, math.ceil(max(by_time, by_memory)))


def fits(
    job: Job, pieces: Iterable[Slice], space: Space, tokens: float | None = None, progress: Progress | None = None
) -> Iterator[Fit]:
    """The best plan on each slice that has one."""
    every = list(pieces)
    for done, piece in enumerate(every):
        found = search_stacks(replace(job, slice=piece), space, 1, shared(progress, done, len(every)))[0]
        if (best := found.best) is not None:
            budget = run_budget(tokens or job.tokens, job.tokens, best.seconds, piece.chips, piece.chip.price)
            yield Fit(found.job, best, finished_s(found.job, best, tokens), budget.cost_usd)


def fewest_chips(
    job: Job,
    chip: Chip,
    space: Space = QUICK,
    deadline: float | None = None,
    tokens: float | None = None,
    progress: Progress | None = None,
) -> Fit | None:
    """The smallest slice of a chip that holds the job with room to spare and, if there is a deadline, meets it."""
    pieces = slice_sizes(chip, MOST_CHIPS, least_chips(job, chip, deadline, tokens, space.words), fine=True)
    roomy = (fit for fit in fits(job, pieces, space, tokens, progress) if fit.roomy)
    return next((fit for fit in roomy if deadline is None or fit.seconds <= deadline), None)


def last_fitting(sizes: list[int], holds: Callable[[int], bool]) -> int | None:
    """The largest of ascending sizes that holds, by bisection (what fits, fits when smaller)."""
    low, high = -1, len(sizes)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(sizes[middle]) else (low, middle)
    return sizes[low] if low >= 0 else None


def _roomy(job: Job, space: Space, progress: Progress | None = None) -> Fit | None:
    """The recommended plan, if it leaves room in memory."""
    fit = _best(job, space, progress)
    return fit if fit is not None and fit.roomy else None


def _best(job: Job, space: Space, progress: Progress | None = None) -> Fit | None:
    """The recommended plan, if there is one."""
    found = search_stacks(job, space, 1, progress)[0]
    return Fit(found.job, found.best, found.best.seconds, None) if found.best else None


def largest_batch(job: Job, space: Space = QUICK, progress: Progress | None = None) -> Fit | None:
    """The largest batch that goes through the chips in one pass, without gradient accumulation or a pipeline's rounds.

    (With accumulation every batch fits; this is how many sequences the memory holds at once.)
    """
    single = replace(space, single=True, fixed=space.fixed | {"pipe": 1, "virtual": 1})
    fit = _largest({2**power: replace(job, batch=2**power) for power in range(24)}, single, progress)
    if fit is None:
        return None
    most, step = fit.job.batch, min(fit.job.batch, job.slice.chips)
    between = {size: replace(job, batch=size) for size in range(most + step, 2 * most, step)}
    return _largest(between, single, progress) or fit


def _largest(jobs: dict[int, Job], space: Space, progress: Progress | None) -> Fit | None:
    """The plan of the largest of ascending jobs that leaves room in memory."""
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
    start = next((number for number, layer in enumerate(old) if layer == old[-1]), 0)
    head, cycle = old[:start], old[start:] or old
    grown = (*head, *(cycle[number % len(cycle)] for number in range(max(0, layers - len(head)))))[:layers]
    return replace(model, name=f"{model.name} with {layers} layers", layers=grown)


def largest_model(job: Job, space: Space = QUICK, progress: Progress | None = None) -> Fit | None:
    """The deepest model of this width that trains on the slice."""
    unit = max(1, job.model.n_layers // 8)
    sizes = [unit * number for number in range(1, 513)]
    return _largest({size: replace(job, model=deeper(job.model, size)) for size in sizes}, space, progress)


SPAN = 0.125
"""How far a batch may be from the one asked for and still be the same to whoever trains."""
BETTER = 0.05
"""A neighbour is named where it is at least this much better."""
TRIES = 2
INNER = 8
"""Chips that replicas need not divide: a node of them holds the model instead."""


def batches_near(chips: int, batch: int, span: float) -> list[int]:
    """Batches near one that more of the chips divide, those first that most do."""
    found = set()
    for size in divisors(chips):
        below = batch // size * size
        found |= {one for one in (below, below + size) if one > 0 and one != batch and abs(one / batch - 1) <= span}
    own = math.gcd(batch, chips)
    better = [one for one in found if math.gcd(one, chips) > own]
    return sorted(better, key=lambda one: (-math.gcd(one, chips), abs(one - batch)))


def better_batch(job: Job, space: Space, mfu: float) -> Fit | None:
    """The batch near this one that makes the chips most of `BETTER` busier; None where the batch
    divides well already."""
    rest = job.slice.chips // math.gcd(job.batch, job.slice.chips)
    if job.slice.chips % job.batch == 0 or (rest <= INNER and rest & (rest - 1) == 0):
        return None
    batches = batches_near(job.slice.chips, job.batch, SPAN)[:TRIES]
    tried = [_roomy(replace(job, batch=batch), quick(space)) for batch in batches]
    found = [near for near in tried if near is not None and near.mfu > (1 + BETTER) * mfu]
    return max(found, key=lambda near: near.mfu, default=None)


def nearest_possible(job: Job, space: Space, missing: float = 1.0) -> list[Fit]:
    """Where nothing runs: the nearest batch that has a plan, and the nearest number of chips. Where the memory is too
    small by a factor, no batch helps, and the chips start from where all of it would hold as much."""
    batches = sorted(batches_near(job.slice.chips, job.batch, 1.0), key=lambda batch: abs(batch - job.batch))
    other = (replace(job, batch=batch) for batch in batches)
    pieces = (replace(job, slice=piece) for piece in _slices_near(job.slice, missing))
    found = [_first(jobs, space) for jobs in ((pieces,) if missing > 1 else (other, pieces))]
    return [near for near in found if near is not None]


def _first(jobs: Iterator[Job], space: Space) -> Fit | None:
    """The first job with a plan that leaves room in memory, with the first before it whose plan is tight."""
    possible = (job for job in jobs if len(meshes(job, space)["pipe"]))
    tight = None
    for job, _ in zip(possible, range(2 * TRIES), strict=False):
        fit = _best(job, quick(space))
        if fit is not None and fit.roomy:
            return replace(fit, tight=tight)
        tight = tight or fit
    return None


def _slices_near(piece: Slice, missing: float = 1.0) -> list[Slice]:
    """Slices that can be had, nearest in size first; beyond the one given where that is too small."""
    most, least = (8 * missing * piece.chips, piece.chips + 1) if missing > 1 else (4 * piece.chips, piece.chips // 2)
    sizes = slice_sizes(piece.chip, int(most), max(1, least), fine=missing <= 1)
    wanted = piece.chips * missing / 2
    near = [one for one in sizes if one.chips != piece.chips and (missing <= 1 or one.chips >= wanted)]
    near.sort(key=lambda one: one.chips if missing > 1 else abs(one.chips - piece.chips))
    return [one for one in near if rentable(one)]


def rentable(piece: Slice) -> bool:
    try:
        check_slice(piece)
    except InputError:
        return False
    return True
