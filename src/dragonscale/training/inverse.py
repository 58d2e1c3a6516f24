"""The planner asked backwards: the fewest chips, the largest batch, the largest model.

Feasibility does not grow evenly with the chips (heads and batches must divide), so slices are tried one by one in
order, from the smallest that could possibly do: no slice computes faster than its peak or holds more than its memory.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from dragonscale.models.transformer import Transformer, count_parameters
from dragonscale.physics.hardware import Chip, Slice
from dragonscale.training.budget import run_budget
from dragonscale.training.evaluation import Job, moved
from dragonscale.training.memory import OPTIMIZER_BYTES
from dragonscale.training.plan import Plan
from dragonscale.training.scaling import slice_sizes
from dragonscale.training.search import Candidate, Progress, search, shared
from dragonscale.training.simplicity import leaves_room
from dragonscale.training.space import Space

MOST_CHIPS = 65536
USUAL = Plan()
QUICK = Space(schedule=("1f1b", "interleaved"))
"""A smaller space for questions that search many slices."""


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

    @property
    def roomy(self) -> bool:
        """Whether the plan leaves room in memory."""
        return bool(leaves_room(self.best.hbm_bytes, self.job.slice.chip.visible))


def run_seconds(job: Job, step_s: float, tokens: float | None) -> float:
    """How long the run takes, or a step if nothing is said about the run."""
    return step_s if tokens is None else run_budget(tokens, job.tokens, step_s, job.slice.chips).seconds


def least_chips(job: Job, chip: Chip, deadline: float | None, tokens: float | None, words: Plan = USUAL) -> int:
    """Fewer chips than this cannot do: their peak FLOP/s are too slow, or all their memory is less than weights and
    optimizer state."""
    steps = run_seconds(job, 1.0, tokens)
    by_time = steps * job.model_flops / (deadline * chip.peak(words.dtype)) if deadline else 1.0
    state = OPTIMIZER_BYTES[words.optimizer] if words.offload == "none" else 0.0
    by_memory = count_parameters(job.model).total * (2 + state) / chip.visible
    return max(1, int(max(by_time, by_memory)))


def fits(
    job: Job, pieces: Iterable[Slice], space: Space, tokens: float | None = None, progress: Progress | None = None
) -> Iterator[Fit]:
    """The best plan on each slice that has one."""
    every = list(pieces)
    for done, piece in enumerate(every):
        here = moved(job, piece, space.words.dtype)
        found = search(here, space, 1, shared(progress, done, len(every)))
        if found.best:
            best = found.best[0]
            budget = run_budget(tokens or job.tokens, job.tokens, best.seconds, piece.chips, piece.chip.price)
            yield Fit(here, best, run_seconds(here, best.seconds, tokens), budget.cost_usd)


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


def _roomy(job: Job, space: Space, progress: Progress | None) -> Candidate | None:
    """The recommended plan, if it leaves room in memory."""
    best = search(job, space, 1, progress).best
    return best[0] if best and leaves_room(best[0].hbm_bytes, job.slice.chip.visible) else None


def largest_batch(job: Job, space: Space = QUICK, progress: Progress | None = None) -> Fit | None:
    """The largest batch that goes through the chips in one pass, without gradient accumulation or a pipeline's rounds.

    (With accumulation every batch fits; this is how many sequences the memory holds at once.)
    """
    single = replace(space, single=True, fixed=space.fixed | {"pipe": 1, "virtual": 1})

    def one_pass(batch: int) -> Candidate | None:
        return _roomy(replace(job, batch=batch), single, progress)

    batch = last_fitting([2**power for power in range(24)], lambda size: one_pass(size) is not None)
    best = one_pass(batch) if batch is not None else None
    if batch is None or best is None:
        return None
    return Fit(replace(job, batch=batch), best, best.seconds, None)


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

    def best(layers: int) -> Candidate | None:
        return _roomy(replace(job, model=deeper(job.model, layers)), space, progress)

    layers = last_fitting(sizes, lambda size: best(size) is not None)
    if layers is None:
        return None
    found = best(layers)
    assert found is not None
    return Fit(replace(job, model=deeper(job.model, layers)), found, found.seconds, None)
