"""What would make a job fit where no plan does, and fewer chips that would be faster. Every remedy was searched for, so
that it does what it promises.

>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.models import load_model
>>> from dragonscale.training.cost.evaluation import make_job
>>> job = make_job(load_model("llama3-8b"), parse_slice("h100:1"), 8, 8192, "torchtitan")
>>> longest_sequence(job, Space()) is None  # it is weights and optimizer that do not fit
True

An 8-bit optimizer or the optimizer's state in the host's memory would be enough:

>>> job = make_job(load_model("llama1-30b"), parse_slice("a100-40gb:8"), 64, 2048, "hf")
>>> [remedy.text for remedy in memory_remedies(job, Space()) if "fix" in remedy.flags]
['--fix offload=optimizer']
"""

import math
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from dragonscale.physics.hardware import Chip, Slice
from dragonscale.physics.hardware.catalogue import candidates
from dragonscale.training.advice.inverse import Fit, last_fitting, nearest_possible, quick, rentable
from dragonscale.training.advice.scaling import slice_sizes
from dragonscale.training.cost.evaluation import Job, as_asked, tuned, unusual_jobs, usual_jobs, with_numerics
from dragonscale.training.plan.legality import family as chip_family
from dragonscale.training.plan.legality import rules
from dragonscale.training.plan.plan import HOSTED_STATE, Plan
from dragonscale.training.plan.stack import stacks
from dragonscale.training.search.run_kinds import UNNAMED, family
from dragonscale.training.search.search import search
from dragonscale.training.search.search_memory import Candidate
from dragonscale.training.search.space import Space
from dragonscale.training.search.stack_search import search_stacks

# Sequence lengths that are tried for the longest that fits.
LENGTHS = 32
# Chips of the largest slice that is tried where memory is too small, over those asked for.
TIMES_AS_MANY = 8
# The smallest fraction of a slice's chips that is offered instead of all of them.
LEAST_PART = 0.5
FEWER_TRIED = 2
# Optimizers with a narrower state, tried where nothing fits.
NARROW_OPTIMIZERS = ("adam8", "galore-layerwise")


@dataclass(frozen=True)
class Remedy:
    """A change of flags with which a job has a plan: the flags as they would be typed, and the best plan then."""

    flags: dict[str, str]
    fit: Fit

    @property
    def text(self) -> str:
        """The flags as they are typed."""
        return " ".join(f"--{name} {shlex.quote(value)}" for name, value in self.flags.items())


def memory_remedies(job: Job, space: Space) -> Iterator[Remedy]:
    """Changes of the software, where the state is kept, and the optimizer, with which a job fits where it does not."""
    for others in (_other_stacks(job), _finer_losses(job)):
        if (fit := _first_fit(others, space)) is not None:
            yield Remedy({"stack": fit.job.stack.name}, fit)
    benchmark = with_numerics(job, "benchmark")
    if job.numerics != "benchmark":
        stacks_change = [usual.stack for usual in usual_jobs(job)] != [usual.stack for usual in usual_jobs(benchmark)]
        if stacks_change and (fit := _fit(benchmark, space)) is not None:
            yield Remedy({"numerics": "benchmark"}, fit)
    yield from _hosted_state(job, space)
    if space.words.optimizer in (Plan().optimizer, "galore") and not job.tuning.rank:
        for optimizer in NARROW_OPTIMIZERS:
            if optimizer not in rules(job.stack.name, chip_family(job.slice.chip), tuned=True).optimizer:
                continue
            narrow = replace(space, words=replace(space.words, optimizer=optimizer))
            if (fit := _fit(job, narrow)) is not None:
                yield Remedy({"optimizer": optimizer}, fit)


def _hosted_state(job: Job, space: Space) -> Iterator[Remedy]:
    """The first offload of state to the host's memory that is enough."""
    if space.words.offload != Plan().offload or "offload" in space.named:
        return
    for offload in HOSTED_STATE:
        hosted = replace(space, words=replace(space.words, offload=offload), named=space.named | {"offload"})
        if (fit := _fit(job, hosted)) is not None:
            yield Remedy({"fix": f"offload={offload}"}, fit)
            return


def _other_stacks(job: Job) -> Iterator[Job]:
    """The job with the software that is usual there, then with less usual software; what was searched before is left
    out."""
    any_stack = replace(job, auto="named")
    searched = {job.stack.name}
    if job.auto:
        searched = {usual.stack.name for usual in usual_jobs(job)}
    for other in (*usual_jobs(any_stack), *unusual_jobs(any_stack)):
        row = rules(other.stack.name, chip_family(job.slice.chip), tuned=True)
        if job.tuning.quantized and not row.quantized:
            continue
        if other.stack.name not in (*searched, *UNNAMED):
            searched.add(other.stack.name)
            yield replace(other, auto="")


def _finer_losses(job: Job) -> Iterator[Job]:
    """The job with modes of the same software that make logits in more pieces (a fused loss)."""
    if job.auto:
        return
    for name, stack in stacks().items():
        finer = stack.memory.loss_chunks > job.stack.memory.loss_chunks
        if finer and family(name) == family(job.stack.name):
            yield replace(job, stack=as_asked(job, name), auto="")


def combined_remedies(job: Job, space: Space, method: str, missing: float) -> Iterator[Remedy]:
    """What makes a job fit where no single change and no more chips do: frozen weights in 4 bits, with another stack
    or shorter sequences, and chips with more memory. `method` is the `--method` that was asked for, empty for none;
    `missing` is the memory that is needed over what there is."""
    lighter, flags = job, dict[str, str]()
    if method and job.tuning.rank and job.tuning.frozen == "bf16" and job.tuning.method == "lora":
        lighter = tuned(job, replace(job.tuning, method="qlora", frozen="nf4"))
        flags = {"method": "qlora"}
        if (fit := _first_fit(_elsewhere(lighter), quick(space))) is not None:
            yield Remedy(flags | {"stack": fit.job.stack.name}, fit)
        longest = 0
        for other in (lighter, *_elsewhere(lighter)):
            fit = longest_sequence(other, space)
            if fit is None or fit.job.sequence <= longest:
                continue
            longest = fit.job.sequence
            stack = {"stack": fit.job.stack.name} if other is not lighter else {}
            yield Remedy(flags | stack | {"seq": str(longest)}, fit)
    if (fit := _on_larger_chips(job, space, missing)) is not None:
        yield Remedy({"on": str(fit.job.slice)}, fit)


def _elsewhere(job: Job) -> list[Job]:
    """The job with the other software that is usual there, and with modes of its own that need less memory."""
    usual = usual_jobs(replace(job, auto="named"))
    others = [replace(other, auto="") for other in usual if other.stack.name != job.stack.name]
    return [*others, *_finer_losses(job)]


# Sizes of memory, the smallest first, that are tried where no number of the chips asked for helps.
LARGER_CHIPS_TRIED = 5


def _on_larger_chips(job: Job, space: Space, missing: float) -> Fit | None:
    """The job on as many GPUs of the same family with the smallest memory that leaves headroom."""
    chip = job.slice.chip
    if chip.kind != "gpu" or len(job.slice.shape) > 1 or job.slice.pods > 1:
        return None
    larger: list[Chip] = []
    for other in candidates():
        same_software = other.kind == "gpu" and chip_family(other) == chip_family(chip)
        if same_software and other.visible > missing * chip.visible:
            larger.append(other)
    # Of chips with about the same memory (to 10 GB) the cheapest, which is the last one written.
    larger.sort(key=lambda other: other.price or math.inf, reverse=True)
    by_memory = {round(other.visible / 1e10): other for other in larger}
    for _, other in sorted(by_memory.items())[:LARGER_CHIPS_TRIED]:
        slice_ = Slice(other, job.slice.shape)
        if not rentable(slice_):
            continue
        moved = replace(job, slice=slice_)
        if not job.auto:
            moved = replace(moved, stack=as_asked(moved, job.stack.name))
        fit = _fit(moved, quick(space))
        if fit is not None and fit.roomy:
            return fit
    return None


def _fit(job: Job, space: Space) -> Fit | None:
    """The recommended plan of a job, if it has one."""
    best_stack = search_stacks(job, space, 1)[0]
    if best_stack.best is None:
        return None
    return Fit(best_stack.job, best_stack.best, best_stack.best.seconds, None)


def _first_fit(jobs: Iterable[Job], space: Space) -> Fit | None:
    """The recommended plan of the first of some jobs that has one."""
    for job in jobs:
        if (fit := _fit(job, space)) is not None:
            return fit
    return None


def longest_sequence(job: Job, space: Space) -> Fit | None:
    """The job with as many sequences of the greatest length that fits, in multiples of `length_step`; None where not
    even short ones fit."""
    step = length_step(job)
    lengths = list(range(step, job.sequence, step))
    fits: dict[int, Fit | None] = {}

    def holds(length: int) -> bool:
        fits[length] = _fit(replace(job, sequence=length), quick(space))
        return fits[length] is not None

    if not lengths or not holds(lengths[0]):
        return None
    longest = last_fitting(lengths, holds)
    return None if longest is None else fits[longest]


def length_step(job: Job) -> int:
    """The tokens in whose multiples the longest sequence is searched: a power of two, at least 128, so that sequences
    divide over context and tensor ranks."""
    return 2 ** max(7, math.ceil(math.log2(job.sequence / LENGTHS)))


@dataclass(frozen=True)
class LargerSlices:
    """Whether larger slices hold a job: the smallest that was tried and does, or why none does."""

    fit: Fit | None
    tried: Slice | None = None
    """The largest that was tried, where none holds it."""
    nearest: Candidate | None = None
    """The plan that misses the memory of that slice by least; None where the software cannot split the job over its
    chips at all."""


def larger_slices(job: Job, space: Space, missing: float) -> LargerSlices:
    """Whether more chips help; `missing` is the memory that is needed over what there is. Where no plan leaves
    headroom, a slice on which one fits at all is named."""
    roomy = roomy_larger_slice(job, space, missing)
    if roomy is not None:
        return LargerSlices(roomy)
    sizes = slice_sizes(job.slice.chip, TIMES_AS_MANY * job.slice.chips, job.slice.chips + 1)
    slices = [slice_ for slice_ in sizes if rentable(slice_)][::-1]  # the largest first
    tight: Fit | None = None
    for slice_ in slices:
        larger = replace(job, slice=slice_)
        result = search(larger, quick(space), 1)
        if result.best:
            tight = Fit(larger, result.best[0], result.best[0].seconds, None)
        elif tight is not None:
            break  # still smaller ones hold no more
        elif result.nearest is not None:
            return LargerSlices(None, slice_, result.nearest)
    if tight is not None:
        return LargerSlices(tight)
    return LargerSlices(None, slices[0] if slices else None)


def roomy_larger_slice(job: Job, space: Space, missing: float) -> Fit | None:
    """The nearest larger slice with a plan that leaves headroom in memory, of the few that are tried."""
    larger = nearest_possible(job, space, max(missing, 1.001))
    return next((fit for fit in larger if fit.job.slice != job.slice), None)


def fewer_chips(job: Job, space: Space, seconds: float) -> Fit | None:
    """Fewer chips on which the same step is faster: those that divide the batch and the model better, the rest idle;
    None where there are none."""
    if _spare_factor(job.slice.chips, job.batch) == 1 or len(job.slice.shape) > 1:
        return None
    least = math.ceil(job.slice.chips * LEAST_PART)
    counts = range(job.slice.chips - 1, least - 1, -1)
    even = [chips for chips in counts if _spare_factor(chips, job.batch) == 1]
    faster: list[Fit] = []
    for chips in even[:FEWER_TRIED]:
        slice_ = Slice(job.slice.chip, (chips,))
        if not rentable(slice_):
            continue
        fit = _fit(replace(job, slice=slice_), quick(space))
        if fit is not None and fit.roomy and fit.seconds < seconds:
            faster.append(fit)
    return min(faster, key=lambda fit: fit.seconds, default=None)


def _spare_factor(chips: int, batch: int) -> int:
    """The odd factor of the chips that the batch does not divide: 1 where replicas, and powers of two of tensor and
    context ranks, use all chips.

    >>> _spare_factor(72, 6), _spare_factor(64, 6), _spare_factor(72, 512)
    (3, 1, 9)
    """
    rest = chips // math.gcd(chips, batch)
    return rest // (rest & -rest)
