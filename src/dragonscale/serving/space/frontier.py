"""Configurations of a model for a kind of request: one replica's slice, sharding, formats and batch, judged for
latency, throughput and cost.

The batch is the requests in flight on a replica, each followed by another as soon as it ends (as
`dscale simulate --clients` sends them). Prompts run as the engine schedules them: by themselves, or in chunks beside
the decoding sequences.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy
from numpy.typing import NDArray

from dragonscale.errors import InputError
from dragonscale.models.count import cache_bytes
from dragonscale.models.transformer import Transformer, kv_bytes_per_token
from dragonscale.physics.hardware import Slice
from dragonscale.physics.numbers import Number, floor, maximum, minimum
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
from dragonscale.serving.steady.narrowing import PATIENCE_S, Rows, narrowed, unqueued
from dragonscale.serving.steady.prompting import NO_DRAFTS, DraftLoop, Served, decode_steps, served, served_apart
from dragonscale.serving.steady.speculation import Draft, drafting_seconds, loop_seconds, tokens_per_loop
from dragonscale.serving.steady.steady import Steady
from dragonscale.serving.steady.targets import LATENCIES

WATERMARK = 0.01
"""The fraction of the cache's pages that admitting a further sequence leaves free (vLLM's block manager)."""
BATCHES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192)
"""The coarse range of batches that is judged first."""
OUTPUTS_VARY = 1 / 12
"""The squared coefficient of variation of outputs, uniform from half to one and a half times their mean."""
LATENCY_BOUND = 2.5
"""A step that takes this many times its bound at datasheet rates is bound by latency: no kernel that is large enough to
be bound by reads or FLOPs takes so much longer."""


@dataclass(frozen=True)
class Ask:
    """What requests look like and which mean latencies they must get.

    `ttft`, `tpot`, `itl` (between tokens) and `e2e` (whole requests) are seconds, `rate` is requests per second.
    `cached` is the fraction of each prompt that a prefix cache has already: a prefix that all requests share, so that
    every data rank stores it once.
    """

    prompt: int
    output: int
    ttft: float | None = None
    tpot: float | None = None
    itl: float | None = None
    e2e: float | None = None
    rate: float | None = None
    cached: float = 0.0
    rented: tuple[tuple[str, int], ...] = ()
    """Chips that are rented together, by the chip's name, if a slice was named: fleets take whole ones."""
    apart: bool = False
    """Whether other replicas than those that decode prefill (disaggregation)."""

    def __post_init__(self) -> None:
        if self.prompt < 1 or self.output < 1:
            raise InputError(
                f"A request of {self.prompt} prompt and {self.output} output tokens is none; both are at least 1."
            )
        if not 0 <= self.cached < 1:
            raise InputError(f"The cached part of a prompt is {self.cached}; it lies between 0 and 1, and below 1.")

    @property
    def new(self) -> int:
        """Prompt tokens that have to be computed."""
        return max(1, round(self.prompt * (1 - self.cached)))

    @property
    def past(self) -> int:
        """Prompt tokens that are cached."""
        return self.prompt - self.new

    @property
    def context(self) -> float:
        """Mean tokens of a decoding sequence.

        Half of its output is there, and since outputs vary and long ones decode for longer, a little more (the mean age
        in a renewal process).
        """
        return self.prompt + self.output * (1 + OUTPUTS_VARY) / 2

    @property
    def step(self) -> float | None:
        """Target seconds from token to token: the mean gap between tokens is the mean time per token."""
        return min((target for target in (self.tpot, self.itl) if target is not None), default=None)

    def times(self, ttft: float, tpot: float) -> dict[str, tuple[float, float]]:
        """Each latency that has a target, with its mean and its target; an output of one token has no time per
        token."""
        means = {"ttft": ttft, "tpot": tpot, "itl": tpot, "e2e": ttft + (self.output - 1) * tpot}
        times: dict[str, tuple[float, float]] = {}
        for name in LATENCIES if self.output > 1 else ("ttft", "e2e"):
            target = getattr(self, name)
            if target is not None:
                times[name] = (float(means[name]), target)
        return times

    def met_by(self, ttft: float, tpot: float) -> bool:
        """Whether mean latencies meet all targets."""
        return all(mean <= target for mean, target in self.times(ttft, tpot).values())


@dataclass(frozen=True)
class Config:
    """One configuration of one replica, with the steady state of its batch.

    `prefill_s` is a whole prompt's way through all its `chunks` of up to `chunk_tokens`, as it runs beside the others.
    `decode_s` is a plain decode step of the whole batch. The steady state's is that of the sequences that decode at a
    time, and with `drafts` the time per token of a loop that drafts so many.
    """

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
    """Bytes of one prompt's cache, windows no longer than they reach."""
    bound_by: str
    most: int
    meets: bool
    drafts: int = 0
    chunks: int = 1
    chunk_tokens: int = 0
    engine: str = ""
    """The name of the engine that runs it."""
    is_fleet: ClassVar[bool] = False
    """Whether it stands for several replicas that work together."""
    queued: bool = False
    """Whether there is no target for TTFT and prompts wait longer than anybody accepts (`PATIENCE_S`)."""
    packed: tuple[tuple[float, float], ...] = ()
    """Numbers of prompts that a prefill replica runs together, with the seconds: one, one on every data rank, and more
    up to as many as an iteration takes. Empty for replicas that also decode."""
    counted: float = 1.0
    """The fraction of the expected tokens by which it is ranked and sized: the slow end of the band for what was never
    measured (`counted_share`)."""

    @property
    def chips(self) -> int:
        """Chips of one replica."""
        return self.plan.chips

    @property
    def place(self) -> tuple[str, ...]:
        """What configurations share that differ only in their batch: slice and plan."""
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
    def cost_per_h(self) -> float:
        """Dollars for an hour of its chips, or the number of chips without a price."""
        return self.chips if self.usd_per_h is None else self.usd_per_h

    @property
    def cost(self) -> float:
        """Dollars (chips without a price) per hour for a token per second, with only tokens that count."""
        return self.cost_per_h / (float(self.state.tokens) * self.counted)

    @property
    def offered(self) -> bool:
        """Whether it can be recommended: it meets the targets, and prompts do not just queue."""
        return self.meets and not self.queued

    @property
    def usd_per_mtok(self) -> float | None:
        """Dollars per million output tokens, prompts included; None without a price."""
        if self.usd_per_h is None:
            return None
        return float(usd_per_million(float(self.state.tokens), 1, self.usd_per_h))

    def split_cost(self, ask: Ask) -> tuple[float, float] | None:
        """Dollars per million input and per million output tokens, by the replica's time that each takes."""
        if self.usd_per_h is None:
            return None
        usd_per_s = self.usd_per_h / 3600
        request_s = 1 / float(self.state.requests)
        prompt_s = min(float(self.state.added), request_s)
        if ask.output == 1:
            prompt_s = request_s  # the only output token comes from the prefill
        input_usd = usd_per_s * prompt_s / ask.prompt * 1e6
        output_usd = usd_per_s * (request_s - prompt_s) / max(ask.output - 1, 1) * 1e6
        return input_usd, output_usd


def judge(
    model: Transformer,
    lot: Lot,
    engine: Engine,
    ask: Ask,
    batches: Sequence[int] | None = None,
    draft: Draft | None = None,
) -> list[Config]:
    """Every plan of a lot with every batch that fits it: those of `batches`, or a range that is narrowed down."""
    deployment = Deployment(model, lot.piece, lot.plan, engine)
    memory = capacity(deployment)
    # all of shape (plans,)
    data = numpy.atleast_1d(numpy.asarray(lot.plan.data))
    largest = numpy.atleast_1d(numpy.broadcast_to(_sequences(memory, ask), (len(lot),)))
    largest = numpy.minimum(largest, engine.scheduling.max_sequences * data)
    fits = numpy.atleast_1d(numpy.broadcast_to(deployment.wires.possible, (len(lot),))) & (largest >= 1)
    rows: list[tuple[int, int]] = []
    for index in numpy.flatnonzero(fits).tolist():
        # every data rank decodes at least one sequence
        candidates = _batches(batches, int(largest[index]))
        rows += [(index, batch) for batch in candidates if batch >= data[index]]
    if not rows:
        return []
    judge_rows = _RowJudge(model, lot, engine, ask, draft, memory, largest)
    configs = judge_rows(rows)
    if batches is not None:
        return configs
    configs = [*configs, *narrowed(judge_rows, rows, configs), *unqueued(judge_rows, rows, configs)]
    return [config for config in configs if not config.queued]


def _batches(batches: Sequence[int] | None, largest: int) -> list[int]:
    """Batches to judge first: those given, or the coarse range, up to the largest that fits."""
    if batches is not None:
        return [batch for batch in batches if batch <= largest]
    return sorted({*(batch for batch in BATCHES if batch <= largest), largest})


def _sequence_bytes(memory: Capacity, ask: Ask) -> Number:
    """Bytes on a chip of what a sequence does not share with others, at its full length."""
    return memory.sequence(memory.in_pages(float(ask.prompt + ask.output))) - ask.past * memory.per_token


def _shared_bytes(memory: Capacity, ask: Ask) -> Number:
    """Bytes on a chip of the prefix that all sequences share, once on each data rank."""
    return ask.past * memory.per_token * memory.places


def _sequences(memory: Capacity, ask: Ask) -> Number:
    """How many sequences fit; of several the last is only admitted if some pages stay free."""
    sequences = maximum(memory.cache - _shared_bytes(memory, ask), 0.0) / _sequence_bytes(memory, ask)
    return floor(maximum(sequences * (1 - WATERMARK), minimum(sequences, 1.0)))


@dataclass(frozen=True)
class _RowJudge:
    """Judges pairs of a plan of the lot and a batch, all of them in one call: arrays are (rows,) unless noted."""

    model: Transformer
    lot: Lot
    engine: Engine
    ask: Ask
    draft: Draft | None
    memory: Capacity
    largest: NDArray[numpy.float64]
    """The largest batch of each plan, (plans,)."""

    def __call__(self, rows: Rows) -> list[Config]:
        lot, ask = self.lot, self.ask
        plan_index, batch = numpy.array(rows).T
        batch = batch.astype(float)
        degrees = {name: numpy.atleast_1d(getattr(lot.plan, name))[plan_index] for name in DEGREES}
        deployment = Deployment(self.model, lot.piece, replace(lot.plan, **degrees), self.engine)
        of = f"an iteration under {self.engine.name} on {lot.piece}"
        steps = decode_steps(deployment, batch, ask.prompt, ask.context)
        check_lines(steps.cost.lines, of)
        plain = steps.curve(batch)
        loop = NO_DRAFTS
        if self.draft is not None:
            loop = _draft_loop(deployment, self.draft, batch, steps.keys, plain)
        if ask.apart:
            result = served_apart(deployment, batch, steps, ask.new, ask.past, ask.output, loop)
        else:
            result = served(deployment, batch, steps, ask.new, ask.past, ask.output, loop, ask.rate is not None)
        memory = self.memory
        fixed_bytes = memory.weights + memory.working + memory.reserve + _shared_bytes(memory, ask)
        hbm_bytes = self._by_row(fixed_bytes, plan_index)
        hbm_bytes = hbm_bytes + batch * self._by_row(_sequence_bytes(memory, ask), plan_index)
        terms = {f"{name} of the steady state": value for name, value in vars(result.state).items()}
        check_terms({"a decode step": plain, "memory": hbm_bytes, **terms}, True, of)
        count = len(batch)
        columns: dict[str, list[Any]] = {
            "decode_s": _listed(plain, count),
            "lower_s": _listed(steps.cost.lower[:count], count),
            "hbm_bytes": _listed(hbm_bytes, count),
            "bound_by": _bounds(steps.cost)[:count],
            "drafts": _listed(loop.drafts, count, int),
            "chunks": _listed(result.cut.count, count, int),
            "chunk_tokens": _listed(numpy.minimum(result.cut.size, ask.new), count, int),
            "packed": _packed_rows(result, count),
        }
        plans = {index: lot.one(index) for index in set(plan_index.tolist())}
        kind = ServedKind(lot.pieces[0].chip.name, self.engine.name, is_moe(self.model))
        cached = cache_bytes(self.model.program().sections, ask.prompt, lot.plan.kv)
        constants: dict[str, Any] = {
            "engine": self.engine.name,
            "kv_bytes_per_token": float(kv_bytes_per_token(self.model, lot.plan.kv)),
            "prompt_bytes": float(sum(cached.values())),
            "counted": counted_share(kind),
        }
        configs: list[Config] = []
        for row, ((index, _), state) in enumerate(zip(rows, _states(result, count), strict=True)):
            config = Config(
                lot.pieces[index],
                plans[index],
                batch=int(state.batch),
                state=state,
                prefill_s=state.prefill,
                most=int(self.largest[index]),
                meets=ask.met_by(state.ttft, state.tpot),
                queued=ask.ttft is None and state.ttft > max(PATIENCE_S, 2 * state.prefill),
                **{name: column[row] for name, column in columns.items()},
                **constants,
            )
            configs.append(config)
        return configs

    def _by_row(self, value: Number, plan_index: NDArray[numpy.int_]) -> NDArray[numpy.float64]:
        """Numbers of plans, (plans,), as those of rows."""
        return numpy.broadcast_to(value, (len(self.lot),))[plan_index]


def _listed(value: Number, count: int, kind: type = float) -> list[Any]:
    """A number of every row as a list of `kind`."""
    return numpy.broadcast_to(value, count).astype(kind).tolist()


def _packed_rows(result: Served, count: int) -> list[tuple[tuple[float, float], ...]]:
    """For each row the numbers of prompts that are prefilled together, with the seconds."""
    pairs = [(_listed(prompts, count), _listed(seconds, count)) for prompts, seconds in result.packed]
    return [tuple((prompts[row], seconds[row]) for prompts, seconds in pairs) for row in range(count)]


def _draft_loop(deployment: Deployment, draft: Draft, batch: Any, keys: float, plain: Any) -> DraftLoop:
    """Loops with as many drafts as make most tokens, over plain steps."""
    per_token, drafts = loop_seconds(deployment, draft, batch, keys, plain)
    tokens = numpy.array([float(tokens_per_loop(draft.acceptance, int(count))) for count in drafts])
    drafting = drafts * drafting_seconds(deployment, draft, batch, keys, plain)
    return DraftLoop(per_token * tokens / plain, drafting / plain, drafts, tokens)


def _states(result: Served, count: int) -> Iterator[Steady]:
    """The steady state of each row."""
    columns = (_listed(value, count) for value in vars(result.state).values())
    return (Steady(*values) for values in zip(*columns, strict=True))


def _bounds(cost: IterationCost) -> list[str]:
    """What takes most of each step: reading weights or caches, computing, the wires, or the host.

    If none of them takes half, it may be the latency of small kernels, of gaps between them and of short collectives.
    """
    weights = numpy.asarray(sum(term.memory for name, term in cost.terms.items() if name != "scores"))
    zero = 0.0 * weights  # (rows,)
    cache = cost.terms["scores"].memory if "scores" in cost.terms else zero
    wires = sum((wire.exposed for wire in cost.wires.values()), zero)
    host = cost.host + numpy.maximum(cost.floor - cost.device, 0.0)
    names = ("weight reads", "cache reads", "compute", "collectives", "host", "latency")
    table = numpy.stack(numpy.broadcast_arrays(weights, cache, cost.compute, wires, host))  # (names, rows)
    name_index = numpy.argmax(table, axis=0)
    bound = cost.roofline + sum((wire.lower for wire in cost.wires.values()), zero)
    is_clear = numpy.max(table, axis=0) > cost.expected / 2
    is_latency = (cost.expected > LATENCY_BOUND * bound) & ~is_clear & (name_index != names.index("host"))
    return [names[index] for index in numpy.where(is_latency, names.index("latency"), name_index)]


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
    slices = list(pieces)
    configs: list[Config] = []
    for plan_formats in formats:
        for lot in lots(model, slices, plan_formats, spreads, engine.name, roles):
            configs += judge(model, lot, engine, ask, batches, draft)
    return configs
