"""How long a batch of answers takes to generate: decode steps of one replica over time, as its batch drains.

Every decode step makes a token of each answer under way, so a step is the clock: an answer that starts at step s ends
at step s + length, whatever a step takes. Answers beyond what the cache or the engine has room for start as others end.
What a step takes follows from how many are under way and how long they are by then (`serving.phases`), and few long
answers at the end are the tail that everything waits for.

A batch need not end: with `ahead` answers under way beyond the step's own, the step is over when as many as it needs
have ended, and the rest go on in the next (partial rollouts, bounded staleness). Nothing ahead is the whole drain.
"""

import heapq
import math
from dataclasses import dataclass

import numpy

from dragonscale.physics.numbers import first_number
from dragonscale.serving.iteration.capacity import capacity
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.iteration import decode, prefill
from dragonscale.serving.iteration.phases import iteration_cost
from dragonscale.simulation.rl.lengths import AnswerLengths

SEGMENTS = 32
"""Stretches of time by the clock, and as many by answers that end, in which decode steps are taken as alike."""
LAST = 0.02
"""The part of a batch's answers whose time is its tail."""
ROUNDS = 12
"""Guesses of how many answers the cache has room for."""
MOST_AHEAD = 4.0
"""Steps ahead beyond which a batch is always full."""


@dataclass(frozen=True)
class Rollout:
    """The answers of a step on one replica: seconds in all, of them for prompts and for the `tail` after all but the
    last answers have ended; how many are under way at once at most and on average; bytes on a chip; output tokens."""

    seconds: float
    prefill_s: float
    tail_s: float
    together: int
    mean_batch: float
    hbm_bytes: float
    tokens: float


def room_for(deployment: Deployment, prompt: float, lengths: numpy.ndarray) -> int:
    """Answers under way at once that the engine and, at the fullest moment, the cache have room for; 0 where not even
    the weights fit. Those that start together grow together, so the fullest moment is late: an engine that began more
    would have to preempt some and compute them again."""
    found = capacity(deployment)
    room = min(len(lengths), deployment.engine.scheduling.max_sequences * deployment.plan.data)
    if not numpy.all(found.fits):
        return 0
    for _ in range(ROUNDS):
        start = starts(lengths, room)
        _, batch, keys = _segments(start, start + lengths, float((start + lengths).max()))
        fullest = float((batch * found.sequence(prompt + keys)).max())
        if fullest <= first_number(found.cache) or room == 1:
            break
        room = max(int(room * min(first_number(found.cache) / fullest, 0.98)), 1)
    return room


def generate(
    deployment: Deployment,
    prompt: int,
    lengths: AnswerLengths,
    samples: int,
    group: int,
    replicas: int,
    ahead: float = 0.0,
    again: bool = False,
) -> Rollout:
    """Generate `samples` answers, `group` to a prompt, on so many replicas of which this is the one with the longest
    answer; the prompt's cache is shared by its answers. Those that go on in the next step keep their cache, or have
    their tokens computed `again` by the new weights."""
    extra = min(ahead, MOST_AHEAD)
    own = lengths.draw(math.ceil(samples * (1 + extra)))[::-1][::replicas]
    needed = math.ceil(len(own) / (1 + extra))
    own = numpy.random.default_rng(0).permutation(own)
    room = room_for(deployment, prompt / group, own)
    if room < 1:
        return Rollout(math.inf, 0.0, 0.0, 0, 0.0, math.inf, 0.0)
    start = starts(own, room)
    end = start + own
    over = numpy.sort(end)[needed - 1]
    cut = numpy.minimum(end, over)
    edges, batch, keys = _segments(start, cut, over)
    step = numpy.broadcast_to(iteration_cost(deployment, decode(batch, prompt + keys)).expected, batch.shape)
    taken = numpy.diff(edges) * step
    tokens = float(numpy.maximum(cut - start, 0.0).sum())
    # what was begun ahead is work of the next step, as what the last one began is of this
    share = float(own.mean()) * needed / tokens
    last = numpy.sort(end)[max(math.ceil(needed * (1 - LAST)) - 1, 0)]
    tail = float(taken[edges[:-1] >= last].sum())
    first = _prefill(deployment, prompt, max(needed / group, 1.0))
    if again and numpy.any(end > over):
        held = prompt + (over - start)[(end > over) & (start < over)]
        first += _prefill(deployment, round(held.mean()), float(len(held))) if len(held) else 0.0
    found = capacity(deployment)
    most = int(min(room, len(own)))
    held = first_number(found.held(most, prompt + float(keys.max())))
    decoding = float(taken.sum()) * share
    mean = float((batch * taken).sum() / taken.sum())
    held = min(held, first_number(found.usable))
    return Rollout(first + decoding, first, tail * share, most, mean, held, float(own.mean()) * needed)


def starts(lengths: numpy.ndarray, room: int) -> numpy.ndarray:
    """The decode step at which each answer starts, in their order: at once while there is room, then as others end.

    >>> starts(numpy.array([4.0, 1.0, 2.0]), room=2).tolist()
    [0.0, 0.0, 1.0]
    """
    begun = numpy.zeros(len(lengths))
    ends = lengths[:room].tolist()
    heapq.heapify(ends)
    for place in range(room, len(lengths)):
        begun[place] = ends[0]
        heapq.heapreplace(ends, ends[0] + float(lengths[place]))
    return begun


def _segments(start: numpy.ndarray, end: numpy.ndarray, over: float) -> tuple[numpy.ndarray, ...]:
    """Edges of stretches of decode steps, and in each the mean answers under way and their mean tokens."""
    ends = numpy.sort(end)
    by_rank = ends[numpy.linspace(0, len(ends) - 1, SEGMENTS).astype(int)]
    last = ends[max(math.ceil(len(ends) * (1 - LAST)) - 1, 0)]
    edges = numpy.unique([0.0, last, *numpy.linspace(0.0, over, SEGMENTS), *by_rank, *ends[-8:]])
    low, high = edges[:-1, None], edges[1:, None]
    begun, gone = numpy.maximum(start, low), numpy.minimum(end, high)
    there = numpy.maximum(gone - begun, 0.0)
    total = there.sum(axis=1)
    keys = (there * ((begun + gone) / 2 - start)).sum(axis=1) / numpy.maximum(total, 1e-12)
    return edges, numpy.maximum(total / (high - low)[:, 0], 1.0), keys


def _prefill(deployment: Deployment, prompt: int, prompts: float) -> float:
    """Seconds for so many prompts, as many in an iteration as its budget of tokens takes."""
    together = min(max(deployment.engine.scheduling.max_tokens // prompt, 1), math.ceil(prompts))
    cost = iteration_cost(deployment, prefill(prompt, together)).expected
    return first_number(cost) * prompts / together
