"""Which configurations nobody beats, and the best under a target: by cost, or of a fleet for a rate."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy

from dragonscale.plan.pareto import front
from dragonscale.serving.space.bands import ServedKind, band_of
from dragonscale.serving.space.frontier import OUTPUTS_VARY, Ask, Config
from dragonscale.serving.steady.narrowing import NEARLY


def frontier(configs: Sequence[Config]) -> list[Config]:
    """The configurations that no other beats in both seconds per token and tokens per second and chip,
    fastest first."""
    return front(configs, lambda one: (float(one.state.tpot), -one.tokens_per_chip * one.counted))


LOAD = 0.85
"""Of what a replica can do, how much of it is asked without a TTFT target: a queue of random arrivals grows as 1/(1 -
load), and a fleet that is loaded like this takes in a sixth more before it grows without end."""
MOST_LOAD = 0.97
"""The same with a target, however loose: rates are not known better."""
TPOT_LOAD = 0.9
"""The same at a batch that a TPOT target limits. Targets are means: at the whole of that batch half of the requests
would be above theirs. Requests in flight vary with their square root, 5% in 400 of them, and 1.65 times as much leaves
one of twenty above."""


def place_wait(config: Config, taken: float, load: float, replicas: int = 1) -> float:
    """Mean seconds until one of the places of a batch is free, with part of them `taken` on average and a `load` of the
    rate of full batches: how often all are (after Sakasegawa's M/M/c), and how soon the next one ends."""
    full = min(taken, 1.0) ** (math.sqrt(2 * (replicas * config.batch + 1)) - 1)
    return full * (1 + OUTPUTS_VARY) / 2 / (replicas * float(config.state.requests) * max(1 - load, 1e-3))


def load_for(config: Config, ask: Ask) -> float:
    """How much of its rate a replica can be asked for. It takes no more at once than its batch: most requests meet a
    TPOT target if there is some room below it, and one that finds all places taken waits and still has to get its first
    token in time."""
    if not config.meets or (ask.ttft is None and (ask.step is None or config.batch == config.most)):
        return LOAD
    if ask.ttft is None:
        return TPOT_LOAD
    slack = ask.ttft - float(config.state.ttft)
    high = MOST_LOAD if ask.step is None or config.batch == config.most else TPOT_LOAD
    loads = numpy.linspace(high, 0.5, 100).tolist()
    return next((load for load in loads if place_wait(config, load, load) <= slack), 0.5)


def replicas_for(config: Config, ask: Ask) -> int:
    """Replicas for the rate that is asked for, each loaded as far as the target for the first token allows; as many as
    whole slices hold where one was named. Pools are one fleet that is sized for its rate."""
    assert ask.rate is not None
    if config.is_fleet:
        return 1
    each = float(config.state.requests) * config.counted * load_for(config, ask)
    least = max(1, math.ceil(ask.rate / each - 1e-9))
    each = max(1, dict(ask.rented).get(config.piece.chip.name, 0) // config.chips)
    return math.ceil(least / each) * each


def loaded(config: Config, judged: Sequence[Config], rate: float, replicas: int) -> tuple[float, float]:
    """Mean seconds to the first token and per token of replicas that get `rate` requests a second each: those of the
    batch at which it does as many, on the line between two batches of its plan that were judged. In a closed loop a
    request meets all others but itself; of random arrivals one replica has as many as on average beside it (the arrival
    theorem, PASTA), and several of which each gets the next request when it has the fewest have hardly more than their
    share. A router that knows whose prompts wait makes their queues one (M/M/k after Sakasegawa), and prompts that
    share an iteration as rare. Pools are judged at the rate they get."""
    if config.is_fleet:
        return float(config.state.ttft), float(config.state.tpot)
    own = [one for one in judged if (one.place, one.engine) == (config.place, config.engine)]
    own = sorted(own, key=lambda one: one.batch)
    rates = numpy.maximum.accumulate([float(one.state.requests) * (1 - 1 / replicas / one.batch) for one in own])
    ttft, tpot, waiting, prefill, added, decode = (
        float(numpy.interp(rate, rates, [float(getattr(one.state, name)) for one in own]))
        for name in ("ttft", "tpot", "waiting", "prefill", "added", "decode")
    )
    # a prompt that meets no other: by itself, or beside those who decode
    alone = min(float(one.state.prefill) for one in own) if config.packed else added + config.chunks * decode
    met = waiting + max(prefill - alone, 0.0)  # of others' prompts, on one replica
    shared = min(rate * prefill, 1.0) ** (math.sqrt(2 * (replicas + 1)) - 2) / replicas
    taken = rate * (ttft + (float(config.state.output) - 1) * tpot) / config.batch
    place = place_wait(config, taken, rate / float(config.state.requests), replicas)
    return ttft - met * (1 - min(shared, 1.0)) + place, tpot


def worth(one: Config, ask: Ask, replicas: float | None = None) -> tuple[float, ...]:
    """What configurations are ranked by, the least first; at a rate with so many `replicas`, where they are known."""
    unpriced, cost = one.usd_per_h is None, one.cost
    if ask.rate is not None:
        cost = (replicas or replicas_for(one, ask)) * (one.chips if one.usd_per_h is None else one.usd_per_h)
    return not one.meets, unpriced, cost, -one.tokens_per_chip * one.counted


CLOSE = 0.1
"""Of the lowest cost what a smaller fleet may cost more: rates are expected to 10%, and every chip is one more to rent,
to fill and to lose."""


def best(configs: Sequence[Config], ask: Ask, count: int = 5) -> list[Config]:
    """Those that meet the targets, cheapest per token first (most tokens per chip where there is no price), and before
    them the smallest that costs nearly as little and is plainest; one batch each, the smallest that makes nearly as
    many tokens: a larger one only makes its requests wait.

    With a rate, what counts is the fleet: as many whole replicas as it takes.
    """
    alike: dict[tuple[str, ...], list[Config]] = {}
    for one in configs:
        alike.setdefault(one.place, []).append(one)
    leaders = first_of_each(configs, lambda one: worth(one, ask), count)
    if leaders:
        small = smallest_of(configs, leaders[0]) if ask.rate is None else leaders[0]
        plain = plainest_of(configs, small, ask)
        leaders = [plain, *(one for one in leaders if one.place != plain.place)][:count]
    return [_smallest(one, alike[one.place], ask) for one in leaders]


def smallest_of(configs: Sequence[Config], leader: Config) -> Config:
    """The one of the fewest chips that costs nearly as little as the cheapest."""
    like = [one for one in configs if (one.meets, one.usd_per_h is None) == (leader.meets, leader.usd_per_h is None)]
    return min((one for one in like if one.cost <= (1 + CLOSE) * leader.cost), key=lambda one: (one.chips, one.cost))


def plainest_of(configs: Sequence[Config], leader: Config, ask: Ask) -> Config:
    """Tensor parallelism alone, on as many chips of a node, where dealing out experts or attention gains no more over
    it than it may gain itself by the fast end of its band: the plan that people run first."""
    plan, chip = leader.plan, leader.piece.chip
    if leader.is_fleet or plan.data * plan.expert == 1:
        return leader
    within = (1 + band_of(ServedKind(chip.name, leader.engine, True), "tokens").high) * worth(leader, ask)[2]
    alike = leader.meets, chip, leader.engine, plan.weights, plan.chips
    plain = [
        one
        for one in configs
        if (one.meets, one.piece.chip, one.engine, one.plan.weights, one.plan.tensor) == alike
        and (one.chips, one.plan.expert) == (plan.chips, 1)
        and worth(one, ask)[2] <= within
    ]
    return min(plain, key=lambda one: worth(one, ask), default=leader)


def _smallest(leader: Config, others: Sequence[Config], ask: Ask) -> Config:
    """The smallest batch of a plan that does what the best of them does, in as many replicas and nearly as well."""
    alike = [one for one in others if (one.meets, one.engine) == (leader.meets, leader.engine)]
    enough = [one for one in alike if one.tokens_per_chip >= (1 - NEARLY) * leader.tokens_per_chip]
    if ask.rate is not None:
        enough = [one for one in enough if replicas_for(one, ask) <= replicas_for(leader, ask)]
    return min(enough, key=lambda one: (one.batch, -one.tokens_per_chip))


def first_of_each(configs: Sequence[Config], order: Callable[[Config], Any], count: int) -> list[Config]:
    """The first configurations in some order, one batch (and one engine) of each plan."""
    chosen: dict[tuple[str, ...], Config] = {}
    for one in sorted(configs, key=order):
        chosen.setdefault(one.place, one)
        if len(chosen) >= count:
            break
    return list(chosen.values())
