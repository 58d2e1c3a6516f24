"""The configurations that answer a question about serving: where to look, what fits, and in which order to tell."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy

from dragonscale.commands.serve.serve_question import ServeAsked
from dragonscale.errors import InputError
from dragonscale.models.transformer import count_parameters
from dragonscale.physics.hardware import Chip, Slice
from dragonscale.serving.engine.checkpoint import is_quantized
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.space.frontier import Ask, Config, explore, judge
from dragonscale.serving.space.legal import divisible, exchange_note
from dragonscale.serving.space.ranking import best, first_of_each, worth
from dragonscale.serving.space.space import one_plan, parts_of, pool_parts, slices_of

WIDER = (256, 1024)
"""Chips of one replica to look at where nothing fits the usual number."""

Progress = Callable[[int, int], None]


def search(asked: ServeAsked, progress: Progress | None = None) -> list[Config]:
    """Every configuration of what was asked."""
    if asked.saved is not None:
        return judge_plan(asked)
    found: list[Config] = []
    for number, (chip, piece) in enumerate(asked.targets, 1):
        parts = pool_parts if asked.ask.apart else parts_of
        found += _on(asked, chip, slices_of(chip) if piece is None else parts(piece))
        if progress is not None:
            progress(number, len(asked.targets))
    if not found and not asked.several and asked.targets[0][1] is None:
        return _wider(asked, asked.targets[0][0])
    return found


def paced(asked: ServeAsked, progress: Progress | None = None) -> tuple[ServeAsked, list[Config]]:
    """The same, where no target says how quick tokens have to come: no slower than `PACE_S`, or than twice what the
    quickest of all takes where that is slow."""
    configs = search(asked, progress)
    least = 2 * min((float(one.state.tpot) for one in configs), default=0.0)
    if asked.pace is None or asked.pace >= least:
        return asked, configs
    asked = replace(asked, ask=replace(asked.ask, tpot=least))
    return asked, search(asked, progress)


def _on(asked: ServeAsked, chip: Chip, pieces: Sequence[Slice]) -> list[Config]:
    """Each size of a replica by the engines that are taken for it; where replicas fit in no other way, by that of one
    server."""
    names = asked.engine_names(chip, (piece.chips for piece in pieces))
    found = [
        one
        for name, sizes in names.items()
        for one in _by_engine(asked, chip, [piece for piece in pieces if piece.chips in sizes], name)
    ]
    plain = asked.engine_on(chip, chips=1).name
    if asked.is_auto:
        found = [one for one in found if not exchange_note(one.engine, chip, one.plan)]
    if found or not asked.is_auto or [*names] == [plain]:
        return found
    return _by_engine(asked, chip, pieces, plain)


def _by_engine(asked: ServeAsked, chip: Chip, pieces: Sequence[Slice], name: str) -> list[Config]:
    if asked.lacks_drafts(name) and not asked.question.force:
        return []
    batches = None if asked.batch is None else [asked.batch]
    formats, engine = asked.formats(chip, name), asked.engine_on(chip, name)
    return explore(asked.model, pieces, formats, engine, asked.ask, (asked.spread,), batches, asked.draft_by(name))


def _wider(asked: ServeAsked, chip: Chip) -> list[Config]:
    """On more chips than anybody looks at first."""
    smaller = len(slices_of(chip))
    for most in WIDER:
        pieces = slices_of(chip, most)
        found = _on(asked, chip, pieces[smaller:])
        if found:
            return found
        smaller = len(pieces)
    return []


def judge_plan(asked: ServeAsked) -> list[Config]:
    """The one plan that was given, with every batch (or the one that was given), on the best shape of its size."""
    assert asked.saved is not None
    plan = asked.saved.plan
    check_plan(asked, plan)
    batches = None if asked.batch is None else [asked.batch]
    found: list[list[Config]] = []
    for piece in pieces_for(asked, plan):
        lot, engine = one_plan(piece, plan), asked.engine_on(piece.chip)
        found.append(judge(asked.model, lot, engine, asked.ask, batches, asked.draft_by(engine.name)))
    return min(found, key=lambda own: own[0].decode_s if own else math.inf)


def at_batches(asked: ServeAsked, config: Config, batches: Sequence[int]) -> list[Config]:
    """A configuration with other batches."""
    engine, lot = asked.engine_on(config.piece.chip, config.engine), one_plan(config.piece, config.plan)
    return judge(asked.model, lot, engine, asked.ask, batches, asked.draft_by(engine.name))


def pieces_for(asked: ServeAsked, plan: ServingPlan) -> list[Slice]:
    """The slices, or parts of the slice, with as many chips as a plan is for."""
    chip, piece = asked.targets[0]
    pieces = slices_of(chip, max(plan.chips, 1)) if piece is None else parts_of(piece)
    found = [one for one in pieces if one.chips == plan.chips]
    if not found:
        where = f"slices of {chip.name} have" if piece is None else f"{piece} can be cut into parts of"
        raise InputError(
            f"The plan {plan} is for {plan.chips} chips; {where} "
            f"{', '.join(str(n) for n in sorted({p.chips for p in pieces})[-8:])}."
        )
    return found


def check_plan(asked: ServeAsked, plan: ServingPlan) -> None:
    """Refuse what no model of this kind can be split into."""
    experts = max((section.dims.get("e", 0) for section in asked.model.program().sections), default=0)
    if plan.pipe > asked.model.n_layers:
        raise InputError(f"The plan has pipe={plan.pipe}, and {asked.model.name} has {asked.model.n_layers} layers.")
    if plan.expert > 1 and not experts:
        raise InputError(f"The plan has expert={plan.expert}, and {asked.model.name} has no experts.")
    if plan.expert > plan.data * plan.tensor:
        raise InputError(
            f"The plan deals experts out expert={plan.expert} ways, and data x tensor are "
            f"{plan.data * plan.tensor} chips."
        )
    if plan.data > 1 and not experts:
        raise InputError(
            f"The plan has data={plan.data}, and {asked.model.name} has no experts to share between replicas of its "
            "attention; serve separate replicas instead."
        )
    heads = divisible(asked.model).heads
    if heads % plan.tensor:
        raise InputError(
            f"The plan has tensor={plan.tensor}, which does not divide the {heads} heads of {asked.model.name}."
        )
    for piece in pieces_for(asked, plan):
        wires = Deployment(asked.model, piece, plan, asked.engine_on(piece.chip)).wires
        if bool(numpy.all(wires.possible)):
            return
    raise InputError(f"The plan {plan} cannot be laid over the wires of {asked.question.on or 'this slice'}.")


def ranked(asked: ServeAsked, configs: Sequence[Config]) -> list[Config]:
    """The best that meet the targets, cheapest first; where none does, those that miss them least. Of several chips the
    best one each, which is the same that it has alone; those of which nothing was measured compete by the slow end of
    their bands."""
    met = [one for one in configs if one.meets]
    if asked.several:
        chips: dict[str, list[Config]] = {}
        for one in met:
            chips.setdefault(one.piece.chip.name, []).append(one)
        met = [one for _, own in sorted(chips.items()) for one in best(own, asked.ask, 1)]
    found = best(met, asked.ask, asked.top) if met else nearest(asked.ask, configs, asked.top)
    return rentable(asked, found) if met and asked.everywhere and not asked.question.top else found


MOST_CHIPS, DEAR = 10, 3
"""Rows of the whole catalogue, and times the cost of the best that one may have."""


def rentable(asked: ServeAsked, found: Sequence[Config]) -> list[Config]:
    """The chips that somebody would choose between: the cheapest of those with a price (of all where none has one)."""
    priced = [one for one in found if one.usd_per_h is not None] or found
    costs = [worth(one, asked.ask)[2] for one in priced]
    return [one for one, cost in zip(priced, costs, strict=True) if cost <= DEAR * min(costs)][:MOST_CHIPS]


def ranked_apart(asked: ServeAsked, configs: Sequence[Config]) -> tuple[list[Config], list[Config]]:
    """The best in the checkpoint's own formats, and apart from them the best in narrower ones. Where nothing meets the
    targets in its own and something narrower does, that alone is told; so it is where nothing else was looked at."""
    own = [one for one in configs if not is_quantized(one.plan.weights, asked.model)]
    narrow = [one for one in configs if is_quantized(one.plan.weights, asked.model)]
    if not narrow or not own:
        return ranked(asked, configs), []
    if any(one.meets for one in narrow) and not any(one.meets for one in own):
        return ranked(asked, narrow), []
    return ranked(asked, own), ranked(asked, narrow)


def excess(ask: Ask, config: Config) -> float:
    """By how much the worst target is missed: 1 is just met."""
    times = ask.times(config.state.ttft, config.state.tpot)
    return max((found / limit for found, limit in times.values()), default=0.0)


def nearest(ask: Ask, configs: Sequence[Config], count: int) -> list[Config]:
    """The configurations that miss the targets least, one batch of each plan."""
    return first_of_each(configs, lambda one: (excess(ask, one), -one.tokens_per_chip), count)


def parameter_count(asked: ServeAsked) -> int:
    return int(count_parameters(asked.model).total)
