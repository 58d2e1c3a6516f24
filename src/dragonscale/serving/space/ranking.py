"""Ranking configurations: the Pareto frontier, and the best under targets by cost, or by the cost of a fleet for a
rate."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy

from dragonscale.plan.pareto import front
from dragonscale.serving.space.bands import ServedKind, band_of
from dragonscale.serving.space.frontier import OUTPUTS_VARY, Ask, Config
from dragonscale.serving.steady.narrowing import NEARLY


def frontier(configs: Sequence[Config]) -> list[Config]:
    """The Pareto frontier of seconds per token and tokens per second and chip, fastest first."""
    return front(configs, lambda config: (float(config.state.tpot), -config.tokens_per_chip * config.counted))


LOAD = 0.85
"""The fraction of a replica's rate that is planned without a TTFT target. A queue of random arrivals grows as 1/(1 -
load), and a fleet with this load takes a sixth more before its queue grows without end."""
MAX_LOAD = 0.97
"""The same with a target, however loose, since rates are not known better."""
TPOT_LOAD = 0.9
"""The same at a batch that a TPOT target limits. Targets are means: at the whole of that batch half of the requests
would miss theirs. Requests in flight vary with their square root, 5% of 400, and 1.65 times as much leaves one of
twenty above."""


def place_wait(config: Config, busy: float, load: float, replicas: int = 1) -> float:
    """Mean seconds until one of the places of a batch is free.

    `busy` is the mean fraction of places that are taken, `load` the fraction of the rate of full batches.
    """
    # how often all places are taken (Sakasegawa's approximation of M/M/c), times how soon the next request ends
    all_taken = min(busy, 1.0) ** (math.sqrt(2 * (replicas * config.batch + 1)) - 1)
    return all_taken * (1 + OUTPUTS_VARY) / 2 / (replicas * float(config.state.requests) * max(1 - load, 1e-3))


def load_for(config: Config, ask: Ask) -> float:
    """The fraction of its rate that a replica can be planned for.

    It takes no more at once than its batch. Most requests meet a TPOT target if there is some headroom below it; one
    that finds all places taken waits and must still get its first token in time.
    """
    is_limited_by_tpot = ask.step is not None and config.batch != config.most
    if not config.meets:
        return LOAD
    max_load = LOAD if ask.ttft is None else MAX_LOAD
    if is_limited_by_tpot:
        max_load = TPOT_LOAD
    if ask.ttft is None:
        return max_load
    slack = ask.ttft - float(config.state.ttft)
    loads = numpy.linspace(max_load, 0.5, 100).tolist()
    return next((load for load in loads if place_wait(config, load, load) <= slack), 0.5)


def replicas_for(config: Config, ask: Ask) -> int:
    """Replicas for the rate that is asked for, each loaded as far as the target for the first token allows.

    As many as whole slices hold if one was named. Pools are one fleet that is sized for its rate.
    """
    assert ask.rate is not None
    if config.is_fleet:
        return 1
    replica_rate = float(config.state.requests) * config.counted * load_for(config, ask)
    replicas = max(1, math.ceil(ask.rate / replica_rate - 1e-9))
    per_slice = max(1, dict(ask.rented).get(config.piece.chip.name, 0) // config.chips)
    return math.ceil(replicas / per_slice) * per_slice


def loaded(config: Config, judged: Sequence[Config], rate: float, replicas: int) -> tuple[float, float]:
    """Mean seconds to the first token and per token of replicas that get `rate` requests a second each.

    They are those of the batch that does this rate, interpolated between two judged batches of the same plan. In a
    closed loop a request meets all others but itself; one replica with random arrivals has as many as on average beside
    it (the arrival theorem, PASTA). Of several replicas each gets the next request when it has the fewest, so each has
    hardly more than its share. A router that knows whose prompts wait makes their queues one (M/M/k after Sakasegawa),
    and prompts that share an iteration as rare. Pools are judged at the rate they get.
    """
    if config.is_fleet:
        return float(config.state.ttft), float(config.state.tpot)
    same_plan = [other for other in judged if (other.place, other.engine) == (config.place, config.engine)]
    batches = sorted(same_plan, key=lambda other: other.batch)
    rates = [float(other.state.requests) * (1 - 1 / replicas / other.batch) for other in batches]
    rates = numpy.maximum.accumulate(rates)  # ascending, as interpolation needs

    def at_rate(name: str) -> float:
        return float(numpy.interp(rate, rates, [float(getattr(other.state, name)) for other in batches]))

    ttft, tpot, prefill = at_rate("ttft"), at_rate("tpot"), at_rate("prefill")
    if config.packed:
        alone = min(float(other.state.prefill) for other in batches)  # a prompt by itself
    else:
        alone = at_rate("added") + config.chunks * at_rate("decode")  # beside those who decode
    others_wait = at_rate("waiting") + max(prefill - alone, 0.0)  # for others' prompts, on one replica
    # M/M/k: how often all replicas prefill, over how often one does
    pooled = min(rate * prefill, 1.0) ** (math.sqrt(2 * (replicas + 1)) - 2) / replicas
    busy = rate * (ttft + (float(config.state.output) - 1) * tpot) / config.batch  # Little's law
    wait = place_wait(config, busy, rate / float(config.state.requests), replicas)
    return ttft - others_wait * (1 - min(pooled, 1.0)) + wait, tpot


def worth(config: Config, ask: Ask, replicas: float | None = None) -> tuple[float, ...]:
    """The key that configurations are ranked by, best first; for a rate with so many `replicas`, if they are known."""
    cost = config.cost
    if ask.rate is not None:
        cost = (replicas or replicas_for(config, ask)) * config.cost_per_h
    return not config.meets, config.usd_per_h is None, cost, -config.tokens_per_chip * config.counted


CLOSE = 0.1
"""The fraction of the lowest cost that a smaller fleet may cost more: rates are expected to within 10%, and every chip
is one more to rent, to fill and to lose."""


def best(configs: Sequence[Config], ask: Ask, count: int = 5) -> list[Config]:
    """The best configurations, one batch of each plan.

    Those that meet the targets come first, cheapest per token first (most tokens per chip without a price), and before
    them the smallest that costs nearly as little and is plainest. Of each plan it is the smallest batch that makes
    nearly as many tokens, since a larger one only makes its requests wait. With a rate, what counts is the fleet: as
    many whole replicas as it takes.
    """
    same_plan: dict[tuple[str, ...], list[Config]] = {}
    for config in configs:
        same_plan.setdefault(config.place, []).append(config)
    leaders = first_of_each(configs, lambda config: worth(config, ask), count)
    if leaders:
        small = smallest_of(configs, leaders[0]) if ask.rate is None else leaders[0]
        plain = plainest_of(configs, small, ask)
        leaders = [plain, *(leader for leader in leaders if leader.place != plain.place)][:count]
    return [_smallest_batch(leader, same_plan[leader.place], ask) for leader in leaders]


def smallest_of(configs: Sequence[Config], leader: Config) -> Config:
    """The configuration of the fewest chips that costs nearly as little as the cheapest."""
    # chips without a price are not compared with priced ones
    kind = leader.meets, leader.usd_per_h is None
    comparable = (config for config in configs if (config.meets, config.usd_per_h is None) == kind)
    close = (config for config in comparable if config.cost <= (1 + CLOSE) * leader.cost)
    return min(close, key=lambda config: (config.chips, config.cost))


def plainest_of(configs: Sequence[Config], leader: Config, ask: Ask) -> Config:
    """Tensor parallelism alone on as many chips of a node, if expert or data parallelism gains little over it: no more
    than it may gain by the fast end of its own band. It is the plan that people run first."""
    plan, chip = leader.plan, leader.piece.chip
    if leader.is_fleet or plan.data * plan.expert == 1:
        return leader
    band = band_of(ServedKind(chip.name, leader.engine, True), "tokens")
    max_cost = (1 + band.high) * worth(leader, ask)[2]
    kind = leader.meets, chip, leader.engine, plan.weights, plan.chips
    plain: list[Config] = []
    for config in configs:
        same_kind = (config.meets, config.piece.chip, config.engine, config.plan.weights, config.plan.tensor) == kind
        is_plain = (config.chips, config.plan.expert) == (plan.chips, 1)
        if same_kind and is_plain and worth(config, ask)[2] <= max_cost:
            plain.append(config)
    return min(plain, key=lambda config: worth(config, ask), default=leader)


def _smallest_batch(leader: Config, configs: Sequence[Config], ask: Ask) -> Config:
    """The smallest batch of a plan that does nearly as well as the best of them, in as many replicas."""
    enough: list[Config] = []
    for config in configs:
        same_kind = (config.meets, config.engine) == (leader.meets, leader.engine)
        if same_kind and config.tokens_per_chip >= (1 - NEARLY) * leader.tokens_per_chip:
            enough.append(config)
    if ask.rate is not None:
        replicas = replicas_for(leader, ask)
        enough = [config for config in enough if replicas_for(config, ask) <= replicas]
    return min(enough, key=lambda config: (config.batch, -config.tokens_per_chip))


def first_of_each(configs: Sequence[Config], order: Callable[[Config], Any], count: int) -> list[Config]:
    """The first configurations in some order, one batch (and one engine) of each plan."""
    chosen: dict[tuple[str, ...], Config] = {}
    for config in sorted(configs, key=order):
        chosen.setdefault(config.place, config)
        if len(chosen) >= count:
            break
    return list(chosen.values())
