"""Latency against throughput: every configuration of a model for a kind of request, which of them nobody beats, and the
best one under a target.

A configuration is one copy of the model: a slice, a sharding, formats, and the number of sequences it decodes at a time.
Prompts run as the engine schedules them: by themselves, or in chunks beside the decoding sequences.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy

from dragonscale.errors import InputError
from dragonscale.hardware import Slice
from dragonscale.models.transformer import Transformer, kv_bytes_per_token
from dragonscale.numbers import ceil_to
from dragonscale.plan.pareto import front
from dragonscale.serving.capacity import capacity
from dragonscale.serving.deployment import Deployment
from dragonscale.serving.economics import usd_per_million
from dragonscale.serving.engine import Engine
from dragonscale.serving.phases import Iteration, IterationCost, iteration_cost
from dragonscale.serving.plan import ServingPlan
from dragonscale.serving.space import DEGREES, Formats, Lot, lots
from dragonscale.serving.speculation import Draft, loop_seconds
from dragonscale.serving.steady import Steady, steady_state

BATCHES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192)


@dataclass(frozen=True)
class Ask:
    """What requests look like and what they must get. `ttft` and `tpot` are seconds, `rate` requests per second, `cached`
    the part of each prompt that a prefix cache has already."""

    prompt: int
    output: int
    ttft: float | None = None
    tpot: float | None = None
    rate: float | None = None
    cached: float = 0.0

    def __post_init__(self) -> None:
        if self.prompt < 1 or self.output < 1:
            raise InputError(
                f"A request of {self.prompt} prompt and {self.output} output tokens is none; both are at least 1."
            )
        if not 0 <= self.cached < 1:
            raise InputError(f"The cached part of a prompt is {self.cached}; it lies between 0 and 1, and below 1.")

    @property
    def new(self) -> int:
        """Tokens of a prompt that have to be computed."""
        return max(1, round(self.prompt * (1 - self.cached)))

    @property
    def past(self) -> int:
        """Tokens of a prompt that are cached."""
        return self.prompt - self.new


@dataclass(frozen=True)
class Config:
    """One configuration of one replica, with the steady state of its batch. `decode_s` is a plain decode step; with `drafts`
    the steady state's step is the time per token of a loop that drafts so many."""

    piece: Slice
    plan: ServingPlan
    batch: int
    state: Steady
    prefill_s: float
    decode_s: float
    lower_s: float
    hbm_bytes: float
    kv_bytes_per_token: float
    bound_by: str
    most: int
    meets: bool
    drafts: int = 0

    @property
    def chips(self) -> int:
        return self.plan.chips

    @property
    def tokens_per_chip(self) -> float:
        """Output tokens per second and chip."""
        return float(self.state.tokens) / self.chips

    @property
    def usd_per_mtok(self) -> float | None:
        """Dollars per million output tokens, prompts included; None without a price."""
        price = self.piece.chip.price
        return None if price is None else float(usd_per_million(float(self.state.tokens), self.chips, price))

    def split_cost(self, ask: Ask) -> tuple[float, float] | None:
        """Dollars per million input and per million output tokens: each pays for the time it takes of the replica."""
        price = self.piece.chip.price
        if price is None:
            return None
        second = price * self.chips / 3600
        return second * self.state.added / ask.prompt * 1e6, second * self.state.decode / self.batch * 1e6


def judge(
    model: Transformer, lot: Lot, engine: Engine, ask: Ask, batches: Sequence[int] | None = None, draft: Draft | None = None
) -> list[Config]:  # fmt: skip
    """Every plan of a lot with every batch that fits it: those of `batches`, or a range of them up to the largest."""
    deployment = Deployment(model, lot.piece, lot.plan, engine)
    room = capacity(deployment)
    length = ask.prompt + ask.output
    most = numpy.atleast_1d(numpy.broadcast_to(room.sequences(float(length)), (len(lot),)))
    most = numpy.minimum(most, engine.scheduling.max_sequences * numpy.atleast_1d(numpy.asarray(lot.plan.data)))
    fits = numpy.atleast_1d(numpy.broadcast_to(deployment.wires.possible, (len(lot),))) & (most >= 1)
    data = numpy.atleast_1d(numpy.asarray(lot.plan.data))
    rows = [
        (place, batch)
        for place in range(len(lot))
        if fits[place]
        for batch in _batches(batches, int(most[place]))
        if batch >= data[place]
    ]
    if not rows:
        return []
    places = numpy.array([place for place, _ in rows])
    batch = numpy.array([float(one) for _, one in rows])
    return _judged(model, lot, engine, ask, places, batch, most, room, draft)


def _batches(given: Sequence[int] | None, most: int) -> list[int]:
    if given is not None:
        return [one for one in given if one <= most]
    return sorted({*(one for one in BATCHES if one <= most), most})


def _judged(
    model: Transformer, lot: Lot, engine: Engine, ask: Ask, places: Any, batch: Any, most: Any, room: Any,
    draft: Draft | None,
) -> list[Config]:  # fmt: skip
    numbers = {name: numpy.atleast_1d(getattr(lot.plan, name))[places] for name in DEGREES}
    wide = Deployment(model, lot.piece, replace(lot.plan, **numbers), engine)
    keys = ask.prompt + ask.output / 2
    step = iteration_cost(wide, Iteration(decodes=batch, keys=keys))
    prefill, added = _prefill(wide, engine, ask, batch, keys, step)
    plain = numpy.broadcast_to(step.expected, batch.shape)
    taken, drafts = (plain, 0) if draft is None else loop_seconds(wide, draft, batch, keys, plain)
    front = engine.host.front_s(ask.prompt)
    state = steady_state(batch, taken, prefill, added, ask.output, front)
    held = room.weights + room.working + room.reserve
    held = numpy.broadcast_to(held, (len(lot),))[places] + batch * (
        ceil_to(float(ask.prompt + ask.output), room.page) * numpy.broadcast_to(room.per_token, (len(lot),))[places]
        + numpy.broadcast_to(room.fixed, (len(lot),))[places]
    )
    per_token = float(kv_bytes_per_token(model, lot.plan.kv))
    plans = {place: lot.one(place) for place in sorted(set(places.tolist()))}
    bounds = _bounds(step)

    columns = [
        numpy.broadcast_to(value, batch.shape).tolist()
        for value in (batch, state.decode, prefill, added, float(ask.output), state.waiting, front)
    ]
    lower, heavy, step_s, drafted = (
        numpy.broadcast_to(value, batch.shape).tolist() for value in (step.lower, held, plain, drafts)
    )
    found: list[Config] = []
    for row, (place, *values) in enumerate(zip(places.tolist(), *columns, strict=True)):
        own = Steady(*values)
        meets = (ask.ttft is None or own.ttft <= ask.ttft) and (ask.tpot is None or own.tpot <= ask.tpot)
        found.append(
            Config(
                lot.pieces[place], plans[place], int(values[0]), own, values[2], step_s[row], lower[row], heavy[row],
                per_token, bounds[row], int(most[place]), meets, drafted[row],
            )
        )  # fmt: skip
    return found


def _prefill(
    deployment: Deployment, engine: Engine, ask: Ask, batch: Any, keys: float, step: IterationCost
) -> tuple[Any, Any]:
    """Seconds of a prompt's own prefill, and what each prompt adds to the iterations.

    Every `data` place and every stage of a pipeline has prompts of its own. In a full batch B/(O−1) sequences end in each
    step; the prompts that take their places are prefilled together, so those that are alone in an iteration are fewer
    than a Poisson process would have them: an iteration with any has m/(1 − e^−m) of them, m being the mean.
    """
    plan = deployment.plan
    several = plan.data * plan.pipe
    coming = numpy.maximum(batch / several / max(ask.output - 1, 1), 1e-6)
    together = numpy.minimum(coming / -numpy.expm1(-coming), max(engine.scheduling.max_tokens / ask.new, 1.0))
    if not engine.scheduling.beside:
        pieces = math.ceil(ask.new / engine.scheduling.max_tokens)
        whole: Any = 0.0
        for piece in range(pieces):
            done, past = engine.scheduling.max_tokens * piece, ask.past + engine.scheduling.max_tokens * piece
            asked = Iteration(
                prompts=several * together, tokens=min(engine.scheduling.max_tokens, ask.new - done), past=past
            )
            whole = whole + iteration_cost(deployment, asked).expected
        return whole, whole / several / together
    room = numpy.maximum(engine.scheduling.max_tokens - batch / several, 64.0)
    chunk = numpy.minimum(room / together, ask.new)
    pieces = numpy.maximum(ask.new / chunk, 1.0)
    past = ask.past + (ask.new - chunk) / 2
    asked = Iteration(decodes=batch, keys=keys, prompts=several * together, tokens=chunk, past=past)
    mixed = iteration_cost(deployment, asked).expected
    return mixed * pieces, numpy.maximum(mixed - step.expected, 0.0) * pieces / several / together


def _bounds(cost: IterationCost) -> list[str]:
    """What takes most of each step: reading weights or caches, computing, the wires, or the host."""
    weights = numpy.asarray(sum(term.memory for name, term in cost.terms.items() if name != "scores"))
    cache = cost.terms["scores"].memory if "scores" in cost.terms else 0.0 * weights
    wires = sum((wire.exposed for wire in cost.wires.values()), 0.0 * weights)
    names = ("weight reads", "cache reads", "compute", "collectives", "host")
    host = cost.host + numpy.maximum(cost.floor - cost.device, 0.0)
    table = numpy.stack([numpy.broadcast_to(one, weights.shape) for one in (weights, cache, cost.compute, wires, host)])
    return [names[place] for place in numpy.argmax(table, axis=0)]


def explore(
    model: Transformer,
    pieces: Iterable[Slice],
    formats: Callable[[Slice], Iterable[Formats]],
    engine: Engine,
    ask: Ask,
    spreads: tuple[str, ...] = ("copy",),
    progress: Callable[[int], None] | None = None,
    batches: Sequence[int] | None = None,
    draft: Draft | None = None,
) -> list[Config]:
    """Every configuration on some slices; `progress` is told how many chips are done."""
    by_chip: dict[str, list[Slice]] = {}
    for piece in pieces:
        by_chip.setdefault(piece.chip.name, []).append(piece)
    found: list[Config] = []
    for number, own in enumerate(by_chip.values()):
        for format_ in formats(own[0]):
            for lot in lots(model, own, format_, spreads, engine.name):
                found += judge(model, lot, engine, ask, batches, draft)
        if progress is not None:
            progress(number + 1)
    return found


def frontier(configs: Sequence[Config]) -> list[Config]:
    """The configurations that no other beats in both seconds per token and tokens per second and chip, fastest first."""
    return front(configs, lambda one: (float(one.state.tpot), -one.tokens_per_chip))


LOAD = 0.85
"""Part of what replicas can do that a rate may load them with."""


def replicas_for(config: Config, rate: float, load: float = LOAD) -> int:
    """Replicas for so many requests per second, none loaded above a part of what it can do."""
    return max(1, math.ceil(rate / (float(config.state.requests) * load) - 1e-9))


def best(configs: Sequence[Config], ask: Ask, count: int = 5) -> list[Config]:
    """Those that meet the targets, cheapest per token first (most tokens per chip where there is no price); one batch each.

    With a rate, what counts is the fleet: as many whole replicas as it takes.
    """

    def worth(one: Config) -> tuple[float, ...]:
        per_chip = -one.tokens_per_chip
        price = one.piece.chip.price
        if ask.rate is not None:
            chips = replicas_for(one, ask.rate) * one.chips
            return (not one.meets, chips * (price or 1.0) if price is not None else math.inf, chips, per_chip)
        return (not one.meets, math.inf if one.usd_per_mtok is None else one.usd_per_mtok, per_chip)

    return first_of_each(configs, worth, count)


def first_of_each(configs: Sequence[Config], order: Callable[[Config], Any], count: int) -> list[Config]:
    """The first configurations in some order, one batch of each plan."""
    chosen: dict[tuple[str, str], Config] = {}
    for one in sorted(configs, key=order):
        chosen.setdefault((str(one.piece), str(one.plan)), one)
        if len(chosen) >= count:
            break
    return list(chosen.values())
