"""One serving configuration as a record: its times and their bands, where they go, what fills its memory, what its
tokens cost; and the ledgers behind its bars."""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy

from dragonscale.commands.given import slice_of
from dragonscale.commands.record import shared
from dragonscale.commands.serve.search import at_batches
from dragonscale.commands.serve.serve_question import ServeAsked
from dragonscale.commands.serve.serve_records import (
    ConfigReport,
    ExpectedError,
    MemoryUse,
    PrefillPool,
    ServeReport,
    StepTerm,
)
from dragonscale.models.transformer import Transformer
from dragonscale.physics.units import render
from dragonscale.plan.ledger import HeldLine, Ledger, LedgerLine, plan_ledger
from dragonscale.serving.engine.checkpoint import is_quantized
from dragonscale.serving.engine.launch import engine_on
from dragonscale.serving.engine.plan import parse_serving_plan
from dragonscale.serving.iteration.capacity import Capacity, capacity
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.phases import Iteration, IterationCost, decode, iteration_cost, prefill
from dragonscale.serving.iteration.resident_memory import cache_lines, weight_lines, workspace_lines
from dragonscale.serving.space.bands import MEASURES, ServedBand, ServedKind, band_of, fitted_kernels, is_moe
from dragonscale.serving.space.disaggregation import PooledConfig
from dragonscale.serving.space.frontier import Config
from dragonscale.serving.space.ranking import loaded, replicas_for
from dragonscale.serving.steady.economics import usd_per_million
from dragonscale.serving.steady.prompting import chunks_of
from dragonscale.serving.steady.targets import LATENCIES
from dragonscale.training.search.bands import kind_name

STEP_SCORES, PROMPT_SCORES = "decode attention (KV reads)", "attention (QK, softmax, PV)"
"""What attention itself is called: a decode step reads the cache, a prompt multiplies."""


def first(value: Any) -> float:
    """A number, or the only one of an array."""
    return float(numpy.ravel(value)[0])


def deployed(asked: ServeAsked, config: Config) -> Deployment:
    """The deployment that a configuration is of."""
    return Deployment(asked.model, config.piece, config.plan, asked.engine_on(config.piece.chip, config.engine))


def iterations(asked: ServeAsked, batch: int, deployment: Deployment) -> dict[str, Iteration]:
    """A decode step at the mean context, and a prefill of one prompt for each data rank and stage."""
    ask, plan = asked.ask, deployment.plan
    tokens = min(ask.new, deployment.engine.scheduling.max_tokens)
    return {
        "decode": decode(batch, ask.context),
        "prefill": prefill(tokens, plan.data * plan.pipe, ask.past),
    }


def asked_slice(asked: ServeAsked, config: Config) -> tuple[str, int]:
    """The slice that was asked for and the replicas it holds; where only the chip was named, that of one (of pools as
    many chips as they take)."""
    for chip, piece in asked.targets:
        whole = piece is not None and chip.name == config.piece.chip.name
        if piece is not None and whole and (config.is_fleet or piece.chips % config.chips == 0):
            return str(piece), max(piece.chips // config.chips, 1)
    return f"{config.piece.chip.name}:{config.chips}" if config.is_fleet else str(config.piece), 1


def config_report(asked: ServeAsked, config: Config, full: bool = False) -> ConfigReport:
    """A configuration, beside its fields its steady state; with `full` also its terms and memory, and beside its fields
    the bills these are read off."""
    plan, state, ask = config.plan, config.state, asked.ask
    where, copies = asked_slice(asked, config)
    split = config.split_cost(ask)
    replicas = None if ask.rate is None else replicas_for(config, ask)
    chips = None if replicas is None else replicas * config.chips
    hourly = None if replicas is None or config.usd_per_h is None else replicas * config.usd_per_h
    alone = None if replicas is None else replicas_for(config, replace(ask, rented=()))
    idle = idle_by_price(config)
    unpriced = any(price is None for _, price in idle)
    tpot = float(state.tpot) if ask.output > 1 else 0.0
    words = {"plan": str(plan), "engine": asked.engine_words(config.engine), **_pools(asked, config)}
    report = ConfigReport(
        **shared(ConfigReport, config, plan, **words),
        slice=where,
        decode_step_s=config.decode_s,
        ttft_s=float(state.ttft),
        tpot_s=tpot,
        output_tokens_per_s_per_chip=config.tokens_per_chip,
        cost_usd_per_mtok=config.usd_per_mtok,
        meets_slo=config.meets,
        dtypes={name: getattr(plan, name) or plan.compute for name in ("weights", "compute", "kv", "attention")},
        copy_slice=str(config.piece),
        copies=copies,
        max_batch=config.most,
        latency_s=float(state.latency),
        requests_per_s=float(state.requests),
        tokens_per_s_per_user=1 / tpot if tpot else 0.0,
        hbm_limit_bytes=config.piece.chip.visible,
        cost_usd_per_mtok_input=None if split is None else float(split[0]),
        cost_usd_per_mtok_output=None if split is None else float(split[1]),
        replicas=replicas,
        fleet_chips=chips,
        fleet_usd_per_h=hourly,
        fleet_usd_per_mtok=hourly and ask.rate and float(usd_per_million(ask.rate * ask.output, 1, hourly)),
        idle_chips=sum(count for count, _ in idle),
        idle_usd_per_h=None if unpriced else sum(count * (price or 0.0) for count, price in idle),
        enough_replicas=alone,
        prefill_chunks=config.chunks,
        violations=violations(asked, config),
        quantized=is_quantized(plan.weights, asked.model),
    )
    add_bands(report, kind_of(asked, config))
    vars(report)["state"] = state
    if full:
        bills = vars(report)["bills"] = iteration_bills(asked, deployed(asked, config), config.batch)
        if report.prefill is not None:
            bills["prefill"] = iteration_bills(asked, deployment_of(asked, report, "prefill"), 1)["prefill"]
        report.roofline_s = float(bills["decode"].total("bound_s", lambda line: not line.moves))
        report.terms, report.prefill_terms = (term_rows(bills[name]) for name in ("decode", "prefill"))
        report.memory = memory_use(asked, config)
    return report


def idle_by_price(config: Config) -> list[tuple[int, float | None]]:
    """Chips of each kind that whole slices bring and no pool uses, with the price of one. A replica that does both
    prefill and decode always fills its part of a slice."""
    if not isinstance(config, PooledConfig):
        return []
    pair = config.pools
    used: dict[str, int] = {}
    for one, count in ((pair.prefill, pair.prefills), (pair.decode, pair.decodes)):
        name = one.piece.chip.name
        used[name] = used.get(name, 0) + one.chips * count
    return [(billed - used[name], price) for name, (billed, price) in zip(used, pair.chips_by_price, strict=True)]


ABOUT = numpy.linspace(0.8, 1.4, 13)
"""Batches at a rate, over what those that are searched say."""


def fleet_times(asked: ServeAsked, config: Config, configs: Sequence[Config], replicas: int) -> tuple[float, float]:
    """Mean seconds to the first token and per token of so many replicas at the asked rate, from batches about as large
    as they have then: those that are searched are sizes that engines launch kernels for, and steps between them jump to
    the next."""
    rate = (asked.ask.rate or 0.0) / replicas
    ttft, tpot = loaded(config, configs, rate, replicas)
    if config.is_fleet:
        return ttft, tpot
    about = ABOUT * rate * (ttft + (asked.ask.output - 1) * tpot)
    near = {min(max(round(one), config.plan.data), config.most) for one in about.tolist()}
    others = [one for one in configs if not about[0] <= one.batch <= about[-1] and one.drafts == config.drafts]
    alike = replace(asked, draft=asked.draft and replace(asked.draft, counts=(config.drafts,)))  # as it is launched
    return loaded(config, [*at_batches(alike, config, sorted(near)), *others], rate, replicas)


def _pools(asked: ServeAsked, config: Config) -> dict[str, Any]:
    """The pools of a configuration that has some."""
    if not isinstance(config, PooledConfig):
        return {}
    pair, own = config.pools, config.pools.prefill
    pool = PrefillPool(
        str(own.plan),
        str(own.piece),
        own.chips,
        pair.prefills,
        pair.prefill_load,
        engine=asked.engine_words(own.engine),
    )
    return {"prefill": pool, "decodes": pair.decodes, "places": pair.decode.batch}


def kind_of(asked: ServeAsked, config: Config) -> ServedKind:
    """The kind of a configuration, as far as errors go."""
    return ServedKind(config.piece.chip.name, config.engine, is_moe(asked.model))


def violations(asked: ServeAsked, config: Config) -> list[str]:
    """Each target that is missed, and by how much."""
    times = asked.ask.times(config.state.ttft, config.state.tpot)
    return [violation(name, found, target) for name, (found, target) in times.items() if found > target]


def violation(name: str, found: float, target: float, at: str = "") -> str:
    """A latency that misses its target, in words."""
    above = f"{found / target - 1:.0%} above" if found < 2 * target else f"{found / target:.3g} times"
    return f"{LATENCIES[name]} is {render(found, 's')}{at}, {above} the {render(target, 's')} asked for"


def prompt_chunks(asked: ServeAsked, deployment: Deployment) -> list[tuple[float, float, float]]:
    """The iterations of a prompt that runs by itself: how many alike, their tokens, and the tokens that are cached
    before."""
    cut = chunks_of(deployment, asked.ask.new, asked.ask.past, numpy.zeros(1))
    count, size, last = (first(value) for value in (cut.count, cut.size, cut.last))
    chunks = [(1.0, last, asked.ask.past + (count - 1) * size)]
    return chunks + ([(count - 1, size, asked.ask.past + (count - 2) / 2 * size)] if count > 1 else [])


WIRES = {
    "tensor": "tensor collectives",
    "width": "width collectives",
    "context": "context collectives",
    "data": "expert exchange",
    "pipe": "pipeline hops",
}
"""What moves over each axis of a plan."""
_PARTS = {"tensor": {"expert", "tensor", "share"}, "data": {"data", "expert"}}
"""Axes of a mesh that are one axis of a plan."""


def wire_name(axes: tuple[str, ...]) -> str:
    """What moves over some axes, in a plan's words."""
    known = (name for axis, name in WIRES.items() if set(axes) <= _PARTS.get(axis, {axis}))
    return next(known, f"collectives over {', '.join(axes)}")


def term_rows(bill: Ledger) -> list[StepTerm]:
    """The terms of an iteration, longest first: groups of its lines, whose expected seconds add up to it. Bytes are
    those of HBM, of moves those of the arrays as one group sees them."""
    bound, exposed, read, moved, flops = (
        bill.by("term", name) for name in ("bound_s", "exposed_s", "hbm_bytes", "volume", "flops")
    )
    rows = (
        StepTerm(name, *map(first, (bound[name], exposed[name], read[name] + moved[name], flops[name])))
        for name in bound
    )
    return sorted((row for row in rows if row.expected_s > 1e-12), key=lambda row: -row.expected_s)


def memory_use(asked: ServeAsked, config: Config) -> MemoryUse:
    """What fills a chip of this configuration."""
    room = capacity(deployed(asked, config))
    cache = config.hbm_bytes - first(room.weights + room.working + room.reserve)
    page = max(room.page, 1)
    length = first(room.in_pages(float(asked.ask.prompt + asked.ask.output)))
    sequence = first(room.sequence(length))
    tokens = first(room.cache) / max(sequence / length, 1e-9)
    return MemoryUse(
        weights_bytes=first(room.weights),
        cache_bytes=cache,
        working_bytes=first(room.working),
        reserve_bytes=float(room.reserve),
        free_bytes=first(room.cache) - cache,
        left_alone_bytes=first(room.hbm - room.usable),
        page_tokens=page,
        pages=int(tokens // page),
        tokens=tokens,
        wasted=(page - 1) / 2 / (asked.ask.context + (page - 1) / 2),
        sequence_bytes=sequence,
        token_bytes=sequence / length,
        kv_cache_tokens=int(room.printed_tokens(longest_served(asked))),
        largest_context=largest_context(asked, config, room),
        model_context=asked.model.context or 0,
        ranks=round(first(room.places)),
    )


def longest_served(asked: ServeAsked) -> float:
    """Tokens of the longest request that is served: what a launch says, or what the model was made for (twice what was
    asked for, where that is not known)."""
    asked_for = asked.ask.prompt + asked.ask.output
    return float(max(asked.served_length or asked.model.context or 2 * asked_for, asked_for))


def largest_context(asked: ServeAsked, config: Config, room: Capacity) -> int:
    """Tokens of the longest request that a replica takes; of pools, that both take."""
    most = longest_request(asked.model, room)
    if isinstance(config, PooledConfig):
        prefill = config.pools.prefill
        engine = asked.engine_on(prefill.piece.chip, prefill.engine)
        other = capacity(Deployment(asked.model, prefill.piece, prefill.plan, engine))
        return min(most, longest_request(asked.model, other))
    return most


NO_CONTEXT = 2.0**30
"""Tokens of a request of a model that says no length."""


def longest_request(model: Transformer, room: Capacity) -> int:
    """Tokens of the longest request that a cache holds, no more than the model was made for."""
    return room.largest_request(float(model.context or NO_CONTEXT))


# How far expectations have been from measurements, for servers of one kind: the bands around an answer, and in a
# sentence what they rest on (`dragonscale.serving.space.bands`).


SHOWN = {"tpot": "TPOT", "ttft": "TTFT", "tokens": "tokens/s"}


@functools.cache
def bands_for(kind: ServedKind) -> dict[str, ServedBand]:
    """The band of each number."""
    return {measure: band_of(kind, measure) for measure in MEASURES}


def expected_error(kind: ServedKind) -> ExpectedError:
    """The median errors of a kind of server; null where nothing like it was measured.

    >>> expected_error(ServedKind("mi355x", "sglang", True)).tpot
    """
    bands = bands_for(kind)
    known = {measure: None if band.estimated else band.median for measure, band in bands.items()}
    return ExpectedError(known["step"], known["tokens"], known["tpot"], known["ttft"], rests_on(kind))


def rests_on(kind: ServedKind) -> str:
    """What the bands of TPOT, TTFT and rates rest on."""
    bands = {measure: bands_for(kind)[measure] for measure in SHOWN}
    guessed = [SHOWN[measure] for measure, band in bands.items() if band.estimated]
    parts: dict[tuple[int, str], list[str]] = {}
    for measure, band in bands.items():
        side = f", nearly all {abs(band.bias):.0%} or more {'above' if band.bias > 0 else 'below'} what is expected"
        parts.setdefault((band.runs, kind_name(band.name) + (side if band.bias else "")), []).append(SHOWN[measure])
    found = ", ".join(f"{runs:,} {name} ({', '.join(names)})" for (runs, name), names in parts.items())
    if not guessed:
        return found
    which = "a guess: " if len(guessed) == len(SHOWN) else f"{' and '.join(guessed)} are a guess: "
    why = f"no such run on {kind.chip} was measured"
    why += "" if fitted_kernels(kind.chip) else ", and its kernels' efficiencies are assumed"
    return f"{which}{why}; 80% intervals from {found}"


def add_bands(report: ConfigReport, kind: ServedKind) -> None:
    """Put the bands of its kind around a configuration's numbers."""
    bands = bands_for(kind)
    report.tpot_low_s, report.tpot_high_s = bands["tpot"].around(report.tpot_s)
    report.ttft_low_s, report.ttft_high_s = bands["ttft"].around(report.ttft_s)
    report.tokens_low, report.tokens_high = bands["tokens"].around(report.output_tokens_per_s_per_chip)
    report.estimated = [measure for measure in SHOWN if bands[measure].estimated]


# The bills of a configuration: every kernel, move and wait of a decode step and of a prompt, and every tensor held.
#
# Lines carry the names of the terms that `dscale serve` shows, which are their groups (`term_rows`). A prompt is the
# whole of one that runs alone, all its chunks together; `phase` then says which chunk a line is of.


_WAITS = {"sampling": "sampling and launch gaps"}
_TENSOR = {"expert": "tensor", "share": "tensor"}
"""Parts that a mesh cuts the tensor ways of a plan into; a plan knows them as one axis."""


def deployment_of(asked: ServeAsked, one: ConfigReport, phase: str = "decode") -> Deployment:
    """One replica of a configuration of a report: of pools one of those that run a phase."""
    pool = one.prefill if phase == "prefill" else None
    replica = one if pool is None else pool
    where = one.copy_slice if pool is None else pool.slice
    piece = slice_of(where, (chip for chip, _ in asked.targets))
    engine = engine_on(replica.engine or one.engine, piece.chip, asked.model, asked.limits)
    return Deployment(asked.model, piece, parse_serving_plan(replica.plan), engine)


def bills_of(report: ServeReport) -> dict[str, Ledger]:
    """The bills of a report's first configuration, `decode` (where more than one token is asked for) and `prefill`;
    made once."""
    asked, one = report.asked, report.configs[0]
    known = vars(one)
    if "bills" not in known:
        known["bills"] = iteration_bills(asked, deployment_of(asked, one), one.batch)
    return {name: bill for name, bill in known["bills"].items() if name == "prefill" or asked.ask.output > 1}


def iteration_bills(asked: ServeAsked, deployment: Deployment, batch: int) -> dict[str, Ledger]:
    """A decode step, and a prompt that runs alone."""
    step = iteration_cost(deployment, iterations(asked, batch, deployment)["decode"])
    chunks, lines = prompt_chunks(asked, deployment), list[LedgerLine]()
    for place, (times, tokens, past) in enumerate(chunks):
        phase = "prefill" if len(chunks) == 1 else ("last chunk", "earlier chunks")[place]
        chunk = _named(deployment, iteration_cost(deployment, prefill(tokens, 1, past)), phase, PROMPT_SCORES)
        lines += [replace(line, times=line.times * times) for line in chunk.lines]
    return {"decode": _named(deployment, step, "decode", STEP_SCORES), "prefill": Ledger(lines)}


def _named(deployment: Deployment, cost: IterationCost, phase: str, scores: str) -> Ledger:
    """An iteration's lines under the names of the report's terms; axes are those of more than one chip."""
    names = {"scores": scores, "attention": "attention projections", **_WAITS}
    sizes, found = deployment.axis_sizes, []
    for line in plan_ledger(cost.ledger(phase), 0).lines:
        term = wire_name(line.axes) if line.moves else names.get(line.term, line.term)
        axes = tuple(dict.fromkeys(_TENSOR.get(axis, axis) for axis in line.axes if sizes.get(axis, 1) > 1))
        # What is sent counts though nobody waits for it.
        counts = float(line.total("expected_s")) > 0 or line.moves
        if counts and (axes or not line.moves):
            found.append(replace(line, term=term, axes=axes, phase=phase))
    return Ledger(found)


def held_bill(asked: ServeAsked, one: ConfigReport, deployment: Deployment) -> Ledger:
    """The tensors on a chip: weights, caches of all sequences at full length, workspace."""
    return Ledger([], [replace(line, bytes=first(line.bytes)) for line in _held(asked, one, deployment)])


def _held(asked: ServeAsked, one: ConfigReport, deployment: Deployment) -> Iterator[HeldLine]:
    length = capacity(deployment).in_pages(float(asked.ask.prompt + asked.ask.output))
    yield from weight_lines(deployment)
    for line in cache_lines(deployment, length):
        yield replace(line, bytes=line.bytes * one.batch)
    yield from workspace_lines(deployment)
