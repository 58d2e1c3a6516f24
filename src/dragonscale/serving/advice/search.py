"""The configurations that answer a job: where to look, what fits, and which of them come first."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy

from dragonscale.blocks.sheet import several
from dragonscale.errors import InputError
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip, Slice
from dragonscale.serving.advice.job import ServingJob
from dragonscale.serving.engine.checkpoint import is_quantized
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.space.frontier import Ask, Config, explore, judge
from dragonscale.serving.space.legal import divisible, exchange_note
from dragonscale.serving.space.ranking import best, first_of_each, worth
from dragonscale.serving.space.space import one_plan, parts_of, pool_parts, slices_of

# Chips of one replica that are searched in turn where nothing fits the usual number.
MORE_CHIPS = (256, 1024)

# Chips that are shown of the whole catalogue.
MAX_CATALOGUE_ROWS = 10

# Cost of a chip of the catalogue over that of the best, up to which it is shown.
MAX_COST_RATIO = 3.0

# The slice that people have of a card that is bought one by one.
ONE_CARD = "1"

# Called with how many of the chips are searched, and of how many.
Progress = Callable[[int, int], None]


def search(job: ServingJob, progress: Progress | None = None) -> list[Config]:
    """Every configuration of a job that fits: those of its plan, or of all plans on all its chips."""
    if job.plan is not None:
        return judge_plan(job, job.plan)
    configs: list[Config] = []
    cut = pool_parts if job.ask.apart else parts_of
    for number, (chip, slice_) in enumerate(job.targets, 1):
        sizes = slices_of(chip) if slice_ is None else cut(slice_)
        of_chip = _search_chip(job, chip, sizes)
        if slice_ is None and chip.default_slice == ONE_CARD:
            of_chip = _on_one_card(of_chip, _in_host(job, chip))
        configs += of_chip
        if progress is not None:
            progress(number, len(job.targets))
    chip, slice_ = job.targets[0]
    # a model that is too large for the slices that people rent first
    if not configs and not job.compares_chips and slice_ is None:
        return _search_larger(job, chip)
    return configs


def _on_one_card(configs: list[Config], in_host: bool) -> list[Config]:
    """The configurations on a single card where any of them will do, since more cards are not what people have; any at
    all where layers are left in the host's memory, which is how they make one card do."""
    single = [config for config in configs if config.chips == 1]
    # without a single card that holds the model, `single` is empty and the larger slices stay
    return single if any(in_host or config.meets for config in single) else configs


def _in_host(job: ServingJob, chip: Chip) -> bool:
    """Whether the job leaves layers in the host's memory."""
    # an engine that the job leaves open is the usual one for a single card
    offload = job.engine_on(chip, chips=1).offload
    return bool(offload.layers or offload.expert_layers)


@dataclass(frozen=True)
class PacedSearch:
    """Configurations, and the seconds per token that they keep; None where there is no such limit."""

    configs: list[Config]
    tpot: float | None


def paced_search(job: ServingJob, progress: Progress | None = None) -> PacedSearch:
    """The configurations of a job. Where no target says how quickly tokens have to come, they come no slower than
    `PACE_S`, or than twice what the quickest configuration takes where that is slow."""
    configs = search(job, progress)
    slowest = 2 * min((float(config.state.tpot) for config in configs), default=0.0)
    if job.pace is None or job.pace >= slowest:
        return PacedSearch(configs, job.ask.tpot)
    configs = search(replace(job, ask=replace(job.ask, tpot=slowest)), progress)
    return PacedSearch(configs, slowest)


def _search_chip(job: ServingJob, chip: Chip, slices: Sequence[Slice]) -> list[Config]:
    """The configurations on slices of one chip, each size by the engines that are usual for it; where replicas fit in
    no other way, by the engine of a single chip."""
    engines = job.engine_names(chip, (slice_.chips for slice_ in slices))
    configs: list[Config] = []
    for name, sizes in engines.items():
        fitting = [slice_ for slice_ in slices if slice_.chips in sizes]
        configs += _search_engine(job, chip, fitting, name)
    if not job.is_auto:
        return configs
    # wide expert parallelism over several servers is left to the form of the engine that is made for it
    configs = [config for config in configs if not exchange_note(config.engine, chip, config.plan)]
    plain = job.engine_on(chip, chips=1).name
    if configs or list(engines) == [plain]:
        return configs
    return _search_engine(job, chip, slices, plain)


def _search_engine(job: ServingJob, chip: Chip, slices: Sequence[Slice], name: str) -> list[Config]:
    if job.lacks_drafts(name) and not job.force:
        return []
    formats = job.formats_on(chip, name)
    engine = job.engine_on(chip, name)
    return explore(job.model, slices, formats, engine, job.ask, (job.spread,), job.batches, job.draft_by(name))


def _search_larger(job: ServingJob, chip: Chip) -> list[Config]:
    """The configurations on larger slices than are usually searched, of the smallest range in which any fits."""
    searched = len(slices_of(chip))
    for max_chips in MORE_CHIPS:
        slices = slices_of(chip, max_chips)
        configs = _search_chip(job, chip, slices[searched:])
        if configs:
            return configs
        searched = len(slices)
    return []


def judge_plan(job: ServingJob, plan: ServingPlan) -> list[Config]:
    """One plan with every batch (or the one that is asked for), on the slice of its size where a step is shortest."""
    check_plan(job, plan)
    by_slice: list[list[Config]] = []
    for slice_ in slices_for(job, plan):
        engine = job.engine_on(slice_.chip)
        plans = one_plan(slice_, plan)
        by_slice.append(judge(job.model, plans, engine, job.ask, job.batches, job.draft_by(engine.name)))
    return min(by_slice, key=lambda configs: configs[0].decode_s if configs else math.inf)


def at_batches(job: ServingJob, config: Config, batches: Sequence[int]) -> list[Config]:
    """A configuration with other batches, those of them that fit."""
    engine = job.engine_on(config.piece.chip, config.engine)
    plans = one_plan(config.piece, config.plan)
    return judge(job.model, plans, engine, job.ask, batches, job.draft_by(engine.name))


def slices_for(job: ServingJob, plan: ServingPlan) -> list[Slice]:
    """The slices of a job's chip, or the parts of its slice, with as many chips as a plan has."""
    chip, slice_ = job.targets[0]
    slices = slices_of(chip, max(plan.chips, 1)) if slice_ is None else parts_of(slice_)
    matches = [part for part in slices if part.chips == plan.chips]
    if not matches:
        where = f"slices of {chip.name} have" if slice_ is None else f"{slice_} can be cut into parts of"
        sizes = sorted({part.chips for part in slices})[-8:]
        raise InputError(f"The plan {plan} is for {several(plan.chips, 'chip')}; {where} {', '.join(map(str, sizes))}.")
    return matches


def check_plan(job: ServingJob, plan: ServingPlan) -> None:
    """Refuse a plan that the model cannot be split by, or that no slice has the wires for."""
    model = job.model
    experts = max((section.dims.get("e", 0) for section in model.program().sections), default=0)
    if plan.pipe > model.n_layers:
        raise InputError(f"The plan has pipe={plan.pipe}, and {model.name} has {model.n_layers} layers.")
    if plan.expert > 1 and not experts:
        raise InputError(f"The plan has expert={plan.expert}, and {model.name} has no experts.")
    if plan.expert > plan.data * plan.tensor:
        raise InputError(
            f"The plan deals experts out expert={plan.expert} ways, and data x tensor are "
            f"{plan.data * plan.tensor} chips."
        )
    if plan.data > 1 and not experts:
        raise InputError(
            f"The plan has data={plan.data}, and {model.name} has no experts to share between replicas of its "
            "attention; serve separate replicas instead."
        )
    heads = divisible(model).heads
    if heads % plan.tensor:
        raise InputError(f"The plan has tensor={plan.tensor}, which does not divide the {heads} heads of {model.name}.")
    chip, asked_slice = job.targets[0]
    # on a torus a plan's axes have to be whole rings of some slice
    for slice_ in slices_for(job, plan):
        wires = Deployment(model, slice_, plan, job.engine_on(slice_.chip)).wires
        if bool(numpy.all(wires.possible)):
            return
    raise InputError(f"The plan {plan} cannot be laid over the wires of {asked_slice or chip.name}.")


def ranked(job: ServingJob, configs: Sequence[Config]) -> list[Config]:
    """The best configurations that meet the targets, cheapest first; where none does, those that miss them least.

    Of several chips each has its best one, which is the same as alone. Chips of which nothing was measured compete by
    the slow end of their bands."""
    meeting = [config for config in configs if config.meets]
    if not meeting:
        return nearest(job.ask, configs, job.top)
    if job.compares_chips:
        # the best of each chip by itself, whatever the others are: ranking looks at what is close to the leader
        chips: dict[str, list[Config]] = {}
        for config in meeting:
            chips.setdefault(config.piece.chip.name, []).append(config)
        meeting = []
        for _, of_chip in sorted(chips.items()):
            meeting += best(of_chip, job.ask, 1)
    leaders = best(meeting, job.ask, job.top)
    if job.everywhere and not job.top_asked:
        return _affordable(job, leaders)
    return leaders


def _affordable(job: ServingJob, configs: Sequence[Config]) -> list[Config]:
    """The chips of the catalogue that somebody would choose between: the cheapest of those with a price (of all where
    none has one)."""
    priced = [config for config in configs if config.usd_per_h is not None] or list(configs)

    def cost(config: Config) -> float:
        return worth(config, job.ask)[2]

    limit = MAX_COST_RATIO * min(map(cost, priced))
    return [config for config in priced if cost(config) <= limit][:MAX_CATALOGUE_ROWS]


@dataclass(frozen=True)
class RankedByFormat:
    """The best configurations in the checkpoint's own formats, and the best in narrower ones.

    Where only one kind was searched, or only narrower formats meet the targets, `native` has those alone."""

    native: list[Config]
    narrower: list[Config]


def ranked_by_format(job: ServingJob, configs: Sequence[Config]) -> RankedByFormat:
    """The best configurations, those in narrower formats than the checkpoint's apart."""
    native: list[Config] = []
    narrower: list[Config] = []
    for config in configs:
        (narrower if is_narrower(config, job.model) else native).append(config)
    if not narrower or not native:
        return RankedByFormat(ranked(job, configs), [])
    # quality is given up only where nothing else meets the targets
    if any(config.meets for config in narrower) and not any(config.meets for config in native):
        return RankedByFormat(ranked(job, narrower), [])
    return RankedByFormat(ranked(job, native), ranked(job, narrower))


def is_narrower(config: Config, model: Transformer) -> bool:
    """Whether a configuration's weights are narrower than the checkpoint's."""
    return is_quantized(config.plan.weights, model)


def excess(ask: Ask, config: Config) -> float:
    """The worst latency over its target: above 1 it is missed."""
    times = ask.times(config.state.ttft, config.state.tpot)
    return max((seconds / limit for seconds, limit in times.values()), default=0.0)


def nearest(ask: Ask, configs: Sequence[Config], count: int) -> list[Config]:
    """The configurations that miss the targets least, one batch of each plan."""
    return first_of_each(configs, lambda config: (excess(ask, config), -config.tokens_per_chip), count)
