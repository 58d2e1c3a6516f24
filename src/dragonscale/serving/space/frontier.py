"""Latency against throughput: every configuration of a model for a kind of request, which of them nobody beats, and the
best one under a target.

A configuration is one copy of the model: a slice, a sharding, formats, and a batch: the requests in flight on it, each
followed by another as soon as it ends (as `dscale simulate --clients` sends them to one replica). Prompts run as the
engine schedules them: by themselves, or in chunks beside the decoding sequences.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy

from dragonscale.errors import InputError
from dragonscale.models.count import cache_bytes
from dragonscale.models.transformer import Transformer, kv_bytes_per_token
from dragonscale.physics.hardware import Slice
from dragonscale.physics.numbers import floor, maximum, minimum
from dragonscale.plan.finite import check_lines, check_terms
from dragonscale.serving.engine.engine import Engine
from dragonscale.serving.engine.plan import DEGREES, ServingPlan
from dragonscale.serving.engine.restrictions import BOTH, DECODE, PREFILL
from dragonscale.serving.iteration.capacity import Capacity, capacity
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.iteration import IterationCost
from dragonscale.serving.space.bands import ServedKind, counted_share, is_moe
from dragonscale.serving.space.space import Formats, Lot, lots
from dragonscale.serving.steady.economics import usd_per_million
from dragonscale.serving.steady.narrowing import PATIENCE_S, narrowed, unqueued
from dragonscale.serving.steady.prompting import NO_DRAFTS, DraftLoop, Served, decode_steps, served, served_apart
from dragonscale.serving.steady.speculation import Draft, drafting_seconds, loop_seconds, tokens_per_loop
from dragonscale.serving.steady.steady import Steady
from dragonscale.serving.steady.targets import LATENCIES

WATERMARK = 0.01
"""The part of the cache's pages that the admission of a further sequence leaves free (vLLM's block manager)."""
BATCHES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192)


OUTPUTS_VARY = 1 / 12
"""The squared coefficient of variation of outputs from half to one and a half of their mean."""


@dataclass(frozen=True)
class Ask:
    """What requests look like and what they must get on average. `ttft`, `tpot`, `itl` (between tokens) and `e2e`
    (whole requests) are seconds, `rate` requests per second, `cached` the part of each prompt that a prefix cache has
    already: a prefix that all requests share, so that every data rank holds it once."""

    prompt: int
    output: int
    ttft: float | None = None
    tpot: float | None = None
    itl: float | None = None
    e2e: float | None = None
    rate: float | None = None
    cached: float = 0.0
    rented: tuple[tuple[str, int], ...] = ()
    """Chips that are had together, by the chip's name, where a slice was named: fleets take whole ones."""
    apart: bool = False
    """Whether prompts are prefilled by other replicas than those that decode."""

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

    @property
    def context(self) -> float:
        """Tokens of a sequence that decodes, on average: half of its output is there, and since outputs vary and long
        ones decode for longer, a little more (the mean age in a renewal process)."""
        return self.prompt + self.output * (1 + OUTPUTS_VARY) / 2

    @property
    def step(self) -> float | None:
        """Seconds from token to token: the mean gap between tokens is the mean time per token."""
        return min((one for one in (self.tpot, self.itl) if one is not None), default=None)

    def times(self, ttft: float, tpot: float) -> dict[str, tuple[float, float]]:
        """Each latency that has a target, on average, and its target. An answer of one token has no time per token."""
        found = {"ttft": ttft, "tpot": tpot, "itl": tpot, "e2e": ttft + (self.output - 1) * tpot}
        names = LATENCIES if self.output > 1 else ("ttft", "e2e")
        limits = ((name, getattr(self, name)) for name in names)
        return {name: (float(found[name]), limit) for name, limit in limits if limit is not None}

    def met_by(self, ttft: float, tpot: float) -> bool:
        """Whether means meet the targets."""
        return all(found <= limit for found, limit in self.times(ttft, tpot).values())


@dataclass(frozen=True)
class Config:
    """One configuration of one replica, with the steady state of its batch. `prefill_s` is a whole prompt's way through
    all its `chunks` of up to `chunk_tokens`, as it runs beside the others. `decode_s` is a plain decode step of the
    whole batch; the steady state's is one of those who decode at a time, and with `drafts` the time per token of a loop
    that drafts so many."""

    piece: Slice
    plan: ServingPlan
    batch: int
    state: Steady
    prefill_s: float
    decode_s: float
    lower_s: float
    hbm_bytes: float
    kv_bytes_per_token: float
    prompt_bytes: float
    """Of a prompt's cache, windows as far as they reach."""
    bound_by: str
    most: int
    meets: bool
    drafts: int = 0
    chunks: int = 1
    chunk_tokens: int = 0
    engine: str = ""
    """The name of the engine that runs it."""
    is_fleet: ClassVar[bool] = False
    """Whether it is several replicas that work together."""
    queued: bool = False
    """Whether TTFT has no target and prompts wait for others longer than anybody lets them (`PATIENCE_S`)."""
    packed: tuple[tuple[float, float], ...] = ()
    """Prompts that are prefilled together by a replica that does nothing else, and the seconds: one, one on every data
    rank, and more up to as many as an iteration takes. Empty where replicas do both."""
    counted: float = 1.0
    """The part of the expected tokens that it is ranked and sized by: what was never measured by the slow end of its
    band (`counted_share`)."""

    @property
    def chips(self) -> int:
        return self.plan.chips

    @property
    def place(self) -> tuple[str, ...]:
        """What is one with other batches: the slice and the plan."""
        return str(self.piece), str(self.plan)

    @property
    def tokens_per_chip(self) -> float:
        """Output tokens per second and chip."""
        return float(self.state.tokens) / self.chips

    @property
    def queues(self) -> bool:
        """Whether a prompt waits for others longer than it takes itself."""
        return bool(self.state.waiting > self.state.prefill)

    @property
    def usd_per_h(self) -> float | None:
        """Dollars for an hour of its chips; None without a price."""
        price = self.piece.chip.price
        return None if price is None else self.chips * float(price)

    @property
    def cost(self) -> float:
        """What its tokens cost, in dollars (in chips without a price), as far as they count."""
        hourly = self.usd_per_h
        return (self.chips if hourly is None else hourly) / (float(self.state.tokens) * self.counted)

    @property
    def offered(self) -> bool:
        return self.meets and not self.queued

    @property
    def usd_per_mtok(self) -> float | None:
        """Dollars per million output tokens, prompts included; None without a price."""
        hourly = self.usd_per_h
        return None if hourly is None else float(usd_per_million(float(self.state.tokens), 1, hourly))

    def split_cost(self, ask: Ask) -> tuple[float, float] | None:
        """Dollars per million input and per million output tokens: each pays for the time it takes of the replica."""
        if self.usd_per_h is None:
            return None
        second = self.usd_per_h / 3600
        request, added = 1 / float(self.state.requests), float(self.state.added)
        added = request if ask.output == 1 else min(added, request)  # an answer of one token is the prompt's
        return second * added / ask.prompt * 1e6, second * (request - added) / max(ask.output - 1, 1) * 1e6


def judge(
    model: Transformer,
    lot: Lot,
    engine: Engine,
    ask: Ask,
    batches: Sequence[int] | None = None,
    draft: Draft | None = None,
) -> list[Config]:
    """Every plan of a lot with every batch that fits it: those of `batches`, or a range of them up to the largest."""
    deployment = Deployment(model, lot.piece, lot.plan, engine)
    room = capacity(deployment)
    most = numpy.atleast_1d(numpy.broadcast_to(_sequences(room, ask), (len(lot),)))
    most = numpy.minimum(most, engine.scheduling.max_sequences * numpy.atleast_1d(numpy.asarray(lot.plan.data)))
    fits = numpy.atleast_1d(numpy.broadcast_to(deployment.wires.possible, (len(lot),))) & (most >= 1)
    data = numpy.atleast_1d(numpy.asarray(lot.plan.data))
    every = [(place, batch) for place in numpy.flatnonzero(fits) for batch in _batches(batches, int(most[place]))]
    rows = [(int(place), batch) for place, batch in every if batch >= data[place]]
    if not rows:
        return []

    def at(rows: Sequence[tuple[int, int]]) -> list[Config]:
        places, batch = numpy.array([place for place, _ in rows]), numpy.array([float(one) for _, one in rows])
        return _judged(model, lot, engine, ask, places, batch, most, room, draft)

    found = at(rows)
    if batches is not None:
        return found
    every = [*found, *narrowed(at, rows, found), *unqueued(at, rows, found)]
    return [one for one in every if not one.queued]


def _batches(given: Sequence[int] | None, most: int) -> list[int]:
    if given is not None:
        return [one for one in given if one <= most]
    return sorted({*(one for one in BATCHES if one <= most), most})


def _own_bytes(room: Capacity, ask: Ask) -> Any:
    """Bytes on a chip of what a sequence does not share with others."""
    return room.sequence(room.in_pages(float(ask.prompt + ask.output))) - ask.past * room.per_token


def _shared_bytes(room: Capacity, ask: Ask) -> Any:
    """Bytes on a chip of the prefix that all sequences share, once on each data rank."""
    return ask.past * room.per_token * room.places


def _sequences(room: Capacity, ask: Ask) -> Any:
    """How many sequences fit; of several the last is only taken if some pages stay free."""
    found = maximum(room.cache - _shared_bytes(room, ask), 0.0) / _own_bytes(room, ask)
    return floor(maximum(found * (1 - WATERMARK), minimum(found, 1.0)))


def _judged(
    model: Transformer,
    lot: Lot,
    engine: Engine,
    ask: Ask,
    places: Any,
    batch: Any,
    most: Any,
    room: Capacity,
    draft: Draft | None,
) -> list[Config]:
    numbers = {name: numpy.atleast_1d(getattr(lot.plan, name))[places] for name in DEGREES}
    wide = Deployment(model, lot.piece, replace(lot.plan, **numbers), engine)
    steps = decode_steps(wide, batch, ask.prompt, ask.context)
    of = f"an iteration under {engine.name} on {lot.piece}"
    check_lines(steps.cost.lines, of)
    plain = steps.curve(batch)
    looped = NO_DRAFTS if draft is None else _looped(wide, draft, batch, steps.keys, plain)
    if ask.apart:
        loop = served_apart(wide, batch, steps, ask.new, ask.past, ask.output, looped)
    else:
        loop = served(wide, batch, steps, ask.new, ask.past, ask.output, looped, ask.rate is not None)
    held = room.weights + room.working + room.reserve + _shared_bytes(room, ask)
    held = _rows(held, lot, places) + batch * _rows(_own_bytes(room, ask), lot, places)
    times = {f"{name} of the steady state": value for name, value in vars(loop.state).items()}
    check_terms({"a decode step": plain, "memory": held, **times}, True, of)
    rows = len(batch)
    lower = steps.cost.lower[:rows]
    columns = (held, plain, looped.drafts, loop.cut.count, numpy.minimum(loop.cut.size, ask.new), lower)
    more = zip(*(numpy.broadcast_to(value, rows).tolist() for value in columns), strict=True)
    packs = zip(*(numpy.broadcast_to(one, rows).tolist() for pair in loop.packed for one in pair), strict=True)
    packed = [tuple(zip(one[::2], one[1::2], strict=True)) for one in packs] or [()] * rows
    bounds = _bounds(steps.cost)[:rows]
    per_token = float(kv_bytes_per_token(model, lot.plan.kv))
    whole = float(sum(cache_bytes(model.program().sections, ask.prompt, lot.plan.kv).values()))
    plans = {place: lot.one(place) for place in sorted(set(places.tolist()))}
    counted = counted_share(ServedKind(lot.pieces[0].chip.name, engine.name, is_moe(model)))
    found: list[Config] = []
    for place, own, bound, pack, others in zip(places.tolist(), _states(loop, rows), bounds, packed, more, strict=True):
        heavy, step_s, drafted, chunks, size, least = others
        config = Config(
            lot.pieces[place],
            plans[place],
            batch=int(own.batch),
            state=own,
            prefill_s=own.prefill,
            decode_s=step_s,
            lower_s=least,
            hbm_bytes=heavy,
            kv_bytes_per_token=per_token,
            prompt_bytes=whole,
            bound_by=bound,
            most=int(most[place]),
            meets=ask.met_by(own.ttft, own.tpot),
            queued=ask.ttft is None and own.ttft > max(PATIENCE_S, 2 * own.prefill),
            drafts=int(drafted),
            chunks=int(chunks),
            chunk_tokens=int(size),
            engine=engine.name,
            packed=pack,
            counted=counted,
        )
        found.append(config)
    return found


def _looped(deployment: Deployment, draft: Draft, batch: Any, keys: float, plain: Any) -> DraftLoop:
    """Loops of as many drafts as bring most tokens."""
    per_token, drafts = loop_seconds(deployment, draft, batch, keys, plain)
    tokens = numpy.array([float(tokens_per_loop(draft.acceptance, int(count))) for count in drafts])
    drafting = drafts * drafting_seconds(deployment, draft, batch, keys, plain)
    return DraftLoop(per_token * tokens / plain, drafting / plain, drafts, tokens)


def _rows(value: Any, lot: Lot, places: Any) -> Any:
    return numpy.broadcast_to(value, (len(lot),))[places]


def _states(loop: Served, rows: int) -> Iterator[Steady]:
    """The steady state of each row."""
    columns = (numpy.broadcast_to(value, rows).tolist() for value in vars(loop.state).values())
    return (Steady(*values) for values in zip(*columns, strict=True))


LATENT = 2.5
"""Times its bound at datasheet rates from which a step is neither reads nor FLOPs: no kernel that is large enough to be
bound by either takes so much longer."""


def _bounds(cost: IterationCost) -> list[str]:
    """What takes most of each step: reading weights or caches, computing, the wires, or the host; where none of them
    does, the latency of small kernels, of gaps between them and of short collectives."""
    weights = numpy.asarray(sum(term.memory for name, term in cost.terms.items() if name != "scores"))
    cache = cost.terms["scores"].memory if "scores" in cost.terms else 0.0 * weights
    wires = sum((wire.exposed for wire in cost.wires.values()), 0.0 * weights)
    names = ("weight reads", "cache reads", "compute", "collectives", "host", "latency")
    host = cost.host + numpy.maximum(cost.floor - cost.device, 0.0)
    table = numpy.stack(numpy.broadcast_arrays(weights, cache, cost.compute, wires, host))
    place = numpy.argmax(table, axis=0)
    bound = cost.roofline + sum((wire.lower for wire in cost.wires.values()), 0.0 * weights)
    largest = numpy.max(table, axis=0) > cost.expected / 2
    latent = (cost.expected > LATENT * bound) & ~largest & (place != names.index("host"))
    return [names[one] for one in numpy.where(latent, names.index("latency"), place)]


def explore(
    model: Transformer,
    pieces: Iterable[Slice],
    formats: Iterable[Formats],
    engine: Engine,
    ask: Ask,
    spreads: tuple[str, ...] = ("copy",),
    batches: Sequence[int] | None = None,
    draft: Draft | None = None,
) -> list[Config]:
    """Every configuration on some slices of one chip."""
    roles = (PREFILL, DECODE) if ask.apart else (BOTH,)
    every = (lot for format_ in formats for lot in lots(model, pieces, format_, spreads, engine.name, roles))
    return [one for lot in every for one in judge(model, lot, engine, ask, batches, draft)]
