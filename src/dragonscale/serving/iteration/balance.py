"""Load imbalance between ranks: everybody waits for the fullest one.

Experts are not equally popular. Over a day of traffic their shares differ by about their mean (`skew`, a coefficient of
variation of 1). Dealt out in order, the busiest of 72 GPUs then has three times the mean load, and of 32 twice. That
explains what balancing gained where it was published: 2.54 times the throughput of decoding over 72 GPUs and 1.49 times
that of prefill over 32 (LMSYS, large-scale EP on 96 H100), 17% over 8 (AMD ATOM, pull request 1210). A load balancer
(EPLB) copies popular experts into `redundant` slots and packs slots onto GPUs by load. It cannot know today's traffic:
0.3 of the skew is assumed to be new (`drift`, fitted to the seven published runs with 32 and more GPUs), and the tokens
of one step scatter by chance.

Sequences of data-parallel attention differ in what they have cached. With equally many on every rank (least loaded
first), the rank with the longest is behind by z(n)·cv/√b, with b sequences on each rank. The largest of n draws from a
normal distribution lies z(n) standard deviations above the mean (`largest_of`).

>>> [round(float(largest_of(ranks)), 2) for ranks in (1, 8, 72)]
[0.0, 1.43, 2.38]
>>> round(packed_load(256, 288, 72, 1.0), 2), round(dealt_load(256, 72, 1.0), 1)
(1.03, 3.0)
"""

import functools
from statistics import NormalDist

import numpy
from numpy.typing import NDArray

from dragonscale.physics.kernels.routing import largest_of
from dragonscale.physics.numbers import Number, ceil_to, maximum, sqrt, where
from dragonscale.serving.engine.engine_settings import EngineExperts

CACHED_VARIATION = 0.19
"""Coefficient of variation of the cached tokens of sequences whose outputs are as long as their prompts: uniform
between one and two lengths, 1/√12 over 3/2."""
SHUFFLES = 32
"""Orders of the experts that the expected load of the busiest rank is averaged over."""


@functools.cache
def _popularity(experts: int, skew: float) -> NDArray[numpy.float64]:
    """Loads of experts, (experts,), with mean 1: quantiles of a lognormal distribution with variation `skew`."""
    # a lognormal distribution has a coefficient of variation of √(exp(σ²) − 1)
    sigma = float(numpy.sqrt(numpy.log1p(skew**2)))
    normal = NormalDist()
    loads = numpy.exp([sigma * normal.inv_cdf((rank + 0.5) / experts) for rank in range(experts)])
    return loads / loads.mean()


@functools.cache
def packed_load(experts: int, slots: int, ranks: int, skew: float) -> float:
    """The busiest rank's load over the mean after balancing (EPLB).

    The most popular experts are copied into the spare slots, with their load split over the copies. Then slots are
    packed by load: the heaviest first, onto the least loaded rank with a free slot.
    """
    loads = _popularity(experts, skew)
    copies = numpy.ones(experts)
    for _ in range(slots - experts):
        copies[numpy.argmax(loads / copies)] += 1
    slot_loads = sorted(numpy.repeat(loads / copies, copies.astype(int)), reverse=True)
    rank_loads, free_slots = numpy.zeros(ranks), numpy.full(ranks, -(-slots // ranks))
    for load in slot_loads:
        rank = int(numpy.argmin(numpy.where(free_slots > 0, rank_loads, numpy.inf)))
        rank_loads[rank] += load
        free_slots[rank] -= 1
    busiest = float(rank_loads.max() / rank_loads.mean())
    # Greedy packing is not always better with more slots; spare slots may stay empty.
    if slots - ranks >= experts:
        return min(busiest, packed_load(experts, slots - ranks, ranks, skew))
    return busiest


@functools.cache
def dealt_load(experts: int, ranks: int, skew: float) -> float:
    """The busiest rank's load over the mean if experts are dealt out in order: the mean over random orders."""
    loads, random = _popularity(experts, skew), numpy.random.default_rng(0)
    ranks = min(ranks, experts)
    busiest: list[float] = []
    for _ in range(SHUFFLES):
        shards = numpy.array_split(random.permutation(loads), ranks)
        busiest.append(max(shard.sum() for shard in shards))
    return float(numpy.mean(busiest) / (experts / ranks))


def expert_slots(experts: Number, ranks: Number, redundant: int) -> Number:
    """Experts with their copies: at least `redundant` copies, and as many slots on every rank.

    >>> [float(expert_slots(256.0, float(ranks), 32)) for ranks in (8, 64, 72, 144)]
    [288.0, 320.0, 288.0, 288.0]
    """
    return ceil_to(experts + redundant, ranks) if redundant else experts


def hot_load(habits: EngineExperts, experts: int, slots: Number, ranks: Number, rows: Number) -> Number:
    """The busiest rank's load of experts over the mean, where each rank has `rows` in one step.

    1 if the engine's settings have no skew, or all experts lie on one rank.
    """
    if not habits.skew:
        return 1.0
    slots, ranks = numpy.broadcast_arrays(numpy.asarray(slots, float), numpy.asarray(ranks, float))
    pairs = zip(slots.ravel().tolist(), ranks.ravel().tolist(), strict=True)
    placed = [_placed_load(habits, experts, int(slot_count), int(rank_count)) for slot_count, rank_count in pairs]
    placed_load = numpy.array(placed).reshape(ranks.shape)
    # variances of a rank's load: demand that the placement does not know, averaged over its experts, and chance
    drift = habits.drift**2 / maximum(slots / ranks, 1.0) if habits.balanced else 0.0
    chance = 1 / maximum(rows, 1.0)
    return where(ranks > 1, placed_load * (1 + largest_of(ranks) * sqrt(drift + chance)), 1.0)


def _placed_load(habits: EngineExperts, experts: int, slots: int, ranks: int) -> float:
    """The busiest rank's expected load over the mean, by the engine's way to place experts."""
    if ranks <= 1:
        return 1.0
    if habits.balanced:
        return packed_load(experts, slots, ranks, habits.skew)
    return dealt_load(experts, ranks, habits.skew)


def longest_held(ranks: Number, sequences: Number) -> Number:
    """Cached tokens of the fullest data rank over the mean, with so many sequences on each."""
    if numpy.all(numpy.asarray(ranks) == 1):
        return 1.0
    return 1 + largest_of(ranks) * CACHED_VARIATION / sqrt(maximum(sequences, 1.0))
