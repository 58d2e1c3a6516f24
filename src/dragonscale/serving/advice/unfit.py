"""Why nothing of a job fits: the bytes that are missing or the heads that do not divide, and what would fit."""

from dataclasses import dataclass, replace

from dragonscale.physics.hardware import Chip, Slice
from dragonscale.physics.numbers import first_number
from dragonscale.serving.advice.formats import ANY_FORMAT, FormatRequest
from dragonscale.serving.advice.job import ServingJob
from dragonscale.serving.advice.search import search
from dragonscale.serving.engine.checkpoint import bits
from dragonscale.serving.engine.formats import Formats
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.iteration.capacity import capacity
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.space.frontier import Config
from dragonscale.serving.space.legal import divisible
from dragonscale.serving.space.space import parts_of, slices_of, splits


@dataclass(frozen=True)
class Shortage:
    """What the least demanding plan on the largest slice needs of each chip, against what the engine can use of it."""

    slice_: Slice
    plan: ServingPlan
    engine: str
    sequences: int
    # Of each sequence, prompt and output together.
    tokens: int
    needed_bytes: float
    usable_bytes: float

    @property
    def is_memory(self) -> bool:
        """Whether bytes are missing; else the batch cannot be split like that."""
        return self.needed_bytes > self.usable_bytes


@dataclass(frozen=True)
class Indivisible:
    """A slice whose chips the model's heads cannot be dealt out over."""

    slice_: Slice
    engine: str
    heads: int
    # The largest slice that it can be cut into, which is too small for the model.
    largest_part: Slice | None
    # What fits on the next smaller and the next larger slice.
    neighbours: tuple[Config, ...]

    @property
    def heads_divide(self) -> bool:
        """Whether it is only the engine that has no way to split the model like that."""
        return self.heads % self.slice_.chips == 0


@dataclass(frozen=True)
class TooManySequences:
    """A batch beyond what an engine decodes at once."""

    engine: str
    batch: int
    limit: int


@dataclass(frozen=True)
class Unfit:
    """Why nothing fits, and the configurations that would fit after a change: of the slice, the batch or the
    formats. All are None where many chips were searched, none of which is the one to explain."""

    division: Indivisible | None = None
    sequences: TooManySequences | None = None
    shortage: Shortage | None = None
    larger_slice: Config | None = None
    smaller_batch: int | None = None
    narrower: Config | None = None


def why_unfit(job: ServingJob, brief: bool = False) -> Unfit:
    """Why nothing of a job fits. In brief what a given plan lacks, without a search for what would fit."""
    chip, slice_ = job.targets[0]
    if brief and job.plan is not None:
        return Unfit(shortage=_shortage(job, chip, slice_, job.formats_on(chip)[-1]))
    division = None if job.compares_chips else _indivisible(job, slice_)
    if division is not None:
        return Unfit(division=division, narrower=_narrower(job))

    sequences = None
    engine = job.engine_on(chip)
    limit = engine.scheduling.max_sequences
    if job.batch is not None and job.batch > limit:
        sequences = TooManySequences(engine.name, job.batch, limit)
    if job.everywhere:
        return Unfit(sequences=sequences)
    return Unfit(
        sequences=sequences,
        shortage=_shortage(job, chip, slice_, job.formats_on(chip)[-1]),
        larger_slice=_smallest_slice(job, chip),
        smaller_batch=_largest_batch(job),
        narrower=_narrower(job),
    )


def _indivisible(job: ServingJob, slice_: Slice | None) -> Indivisible | None:
    """That no plan splits the model over a slice, with what fits beside its size; None where some plan does."""
    if slice_ is None or job.plan is not None:
        return None
    engine = job.engine_on(slice_.chip).name
    if next(splits(job.model, slice_, engine), None) is not None:
        return None
    parts = [part for part in parts_of(slice_) if part.chips < slice_.chips]
    # by the sizes of usual slices, of each the first configuration with the shortest pipeline
    by_size: dict[int, Config] = {}
    for config in search(replace(job, targets=((slice_.chip, None),))):
        shortest = by_size.setdefault(config.chips, config)
        if config.plan.pipe < shortest.plan.pipe:
            by_size[config.chips] = config
    sizes = sorted(by_size)
    below = [size for size in sizes if size < slice_.chips][-1:]
    above = [size for size in sizes if size > slice_.chips][:1]
    neighbours = [by_size[size] for size in (*below, *above)]
    return Indivisible(
        slice_=slice_,
        engine=engine,
        heads=divisible(job.model).heads,
        largest_part=parts[-1] if parts else None,
        neighbours=tuple(neighbours),
    )


def _shortage(job: ServingJob, chip: Chip, slice_: Slice | None, formats: Formats) -> Shortage:
    """What the largest slice that was searched lacks for the given plan, or for the one that splits most."""
    largest = slice_ or slices_of(chip)[-1]
    engine = job.engine_on(chip, chips=largest.chips)
    plan = job.plan or _lightest_plan(job, largest, formats)
    memory = capacity(Deployment(job.model, largest, plan, engine))
    sequences = job.batch or 1
    tokens = job.ask.prompt + job.ask.output
    return Shortage(
        slice_=largest,
        plan=plan,
        engine=engine.name,
        sequences=sequences,
        tokens=tokens,
        needed_bytes=first_number(memory.held(float(sequences), float(tokens))),
        usable_bytes=first_number(memory.usable),
    )


def _lightest_plan(job: ServingJob, slice_: Slice, formats: Formats) -> ServingPlan:
    """The plan of a slice with the fewest bytes of weights on a chip."""
    engine = job.engine_on(slice_.chip, chips=slice_.chips)

    def weight_bytes(plan: ServingPlan) -> float:
        return first_number(capacity(Deployment(job.model, slice_, plan, engine)).weights)

    plans = []
    for split in splits(job.model, slice_, engine.name):
        plans.append(replace(formats.applied_to(split), spread=job.spread))
    # where no plan is legal, TP over all chips says how much is missing
    unsplit = formats.applied_to(ServingPlan(tensor=slice_.chips))
    return min(plans, key=weight_bytes, default=unsplit)


def _smallest_slice(job: ServingJob, chip: Chip) -> Config | None:
    """The smallest slice of a chip that holds the model; of a given plan in its formats, by any other plan."""
    if job.plan is not None:
        plan = job.plan
        formats = FormatRequest(weights=plan.weights, compute=plan.compute, kv=plan.kv, attention=plan.attention)
        job = replace(job, plan=None, formats=formats)
    configs = search(replace(job, targets=((chip, None),)))
    return min(configs, key=lambda config: config.chips, default=None)


def _largest_batch(job: ServingJob) -> int | None:
    """The largest batch that fits, where one was asked for."""
    if job.batch is None:
        return None
    return max((config.most for config in search(replace(job, batch=None))), default=None)


def _narrower(job: ServingJob) -> Config | None:
    """The best configuration in the widest narrower format that fits; None where formats are fixed."""
    if job.has_fixed_formats or job.formats.quantize:
        return None
    configs = search(replace(job, formats=replace(job.formats, quantize=ANY_FORMAT)))
    return max(configs, key=lambda config: (bits(config.plan.weights), config.tokens_per_chip), default=None)
