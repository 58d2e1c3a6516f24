"""The fullest of many ranks: all wait for it.

Experts are not equally popular. Over a day of traffic their shares differ by about their mean (`skew`, a coefficient of
variation of 1): dealt out in order, the busiest of 72 GPUs then has three times the mean, and of 32 twice. That
explains what balancing gained where it was published: 2.54 times the throughput of decoding over 72 GPUs and 1.49 times
that of prefill over 32 (LMSYS, large-scale EP on 96 H100), 17% over 8 (AMD ATOM, pull request 1210). A load balancer
(EPLB) copies the experts in demand into `redundant` slots and packs slots onto GPUs by load. What it cannot know is
today's traffic: 0.3 of the skew is taken to come anew (`drift`, settled on the seven published runs with 32 and more
GPUs), and tokens of one step scatter by chance.

Sequences of data-parallel attention differ in what they have cached. With as many on every rank (least loaded first),
the rank with the longest is behind by z(n)·cv/√b, b sequences a rank. The largest of n draws of a normal distribution
lies z(n) standard deviations out.

>>> [round(float(largest_of(ranks)), 2) for ranks in (1, 8, 72)]
[0.0, 1.43, 2.38]
>>> round(packed_load(256, 288, 72, 1.0), 2), round(dealt_load(256, 72, 1.0), 1)
(1.03, 3.0)
"""

import functools
from statistics import NormalDist
from typing import Any

import numpy

from dragonscale.physics.kernels.routing import largest_of
from dragonscale.physics.numbers import Number, ceil_to, maximum, sqrt, where
from dragonscale.serving.engine.engine_settings import EngineExperts

HELD_SPREAD = 0.19
"""Coefficient of variation of what sequences have cached, half-way through outputs as long as their prompts: uniform
between one and two lengths, 1/√12 over 3/2."""
SHUFFLES = 32
"""Orders of the experts that the expected load of the busiest rank is averaged over."""


@functools.cache
def _popularity(experts: int, skew: float) -> Any:
    """Loads of experts as quantiles of a lognormal distribution with that coefficient of variation, the mean one."""
    sigma = float(numpy.sqrt(numpy.log1p(skew**2)))
    normal = NormalDist()
    loads = numpy.exp([sigma * normal.inv_cdf((place + 0.5) / experts) for place in range(experts)])
    return loads / loads.mean()


@functools.cache
def packed_load(experts: int, slots: int, ranks: int, skew: float) -> float:
    """The busiest rank's load over the mean where the most popular experts are copied into the spare slots, each copy
    taking its part, and slots are packed by load: the heaviest first, onto the lightest rank with room."""
    loads = _popularity(experts, skew)
    copies = numpy.ones(experts)
    for _ in range(slots - experts):
        copies[numpy.argmax(loads / copies)] += 1
    each = sorted(numpy.repeat(loads / copies, copies.astype(int)), reverse=True)
    held, room = numpy.zeros(ranks), numpy.full(ranks, -(-slots // ranks))
    for load in each:
        place = int(numpy.argmin(numpy.where(room > 0, held, numpy.inf)))
        held[place] += load
        room[place] -= 1
    found = float(held.max() / held.mean())
    fewer = slots - ranks  # spare slots may stay empty
    return min(found, packed_load(experts, fewer, ranks, skew)) if fewer >= experts else found


@functools.cache
def dealt_load(experts: int, ranks: int, skew: float) -> float:
    """The same where experts are dealt out in order: expected over orders."""
    loads, dice = _popularity(experts, skew), numpy.random.default_rng(0)
    ranks = min(ranks, experts)
    parts = (numpy.array_split(dice.permutation(loads), ranks) for _ in range(SHUFFLES))
    most = [max(part.sum() for part in own) for own in parts]
    return float(numpy.mean(most) / (experts / ranks))


def expert_slots(experts: Number, ranks: Number, redundant: int) -> Number:
    """Experts with their copies: at least as many as asked for, and so many that they divide over the ranks.

    >>> [float(expert_slots(256.0, float(ranks), 32)) for ranks in (8, 64, 72, 144)]
    [288.0, 320.0, 288.0, 288.0]
    """
    return ceil_to(experts + redundant, ranks) if redundant else experts


def hot_load(habits: EngineExperts, experts: int, slots: Any, ranks: Any, rows: Any) -> Any:
    """The busiest rank's part of the work of experts over the mean; `rows` are those of a rank in one step. 1 where an
    engine knows of no skew, or all experts lie on one rank."""
    if not habits.skew:
        return 1.0
    slots, ranks = numpy.broadcast_arrays(numpy.asarray(slots, float), numpy.asarray(ranks, float))
    pairs = zip(slots.ravel().tolist(), ranks.ravel().tolist(), strict=True)
    placed = numpy.array([_placed(habits, experts, int(one), int(many)) for one, many in pairs]).reshape(ranks.shape)
    new = habits.drift**2 / maximum(slots / ranks, 1.0) if habits.balanced else 0.0
    return where(ranks > 1, placed * (1 + largest_of(ranks) * sqrt(new + 1 / maximum(rows, 1.0))), 1.0)


def _placed(habits: EngineExperts, experts: int, slots: int, ranks: int) -> float:
    if ranks <= 1:
        return 1.0
    if habits.balanced:
        return packed_load(experts, slots, ranks, habits.skew)
    return dealt_load(experts, ranks, habits.skew)


def longest_held(ranks: Any, sequences: Any) -> Any:
    """What the fullest of data-parallel ranks has cached over the mean, with so many sequences on each."""
    if numpy.all(numpy.asarray(ranks) == 1):
        return 1.0
    return 1 + largest_of(ranks) * HELD_SPREAD / sqrt(maximum(sequences, 1.0))
