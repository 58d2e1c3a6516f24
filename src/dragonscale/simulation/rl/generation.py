"""How long a batch of answers takes to generate: decode steps of one replica over time, as its batch drains.

Every decode step makes a token of each running answer, so steps are the clock: an answer that starts at step s ends at
step s + length, whatever a step takes. Answers for which cache or engine have no space start as others end. The time of
a step follows from how many answers run and how long they are by then (`serving.phases`); the few long answers at the
end are the tail that everything waits for.

A batch need not drain: with `ahead` answers running beyond the step's own, the step is over when as many as it needs
have ended, and the rest continue in the next (partial rollouts, bounded staleness). Nothing ahead is the whole drain.
"""

import heapq
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy

from dragonscale.physics.numbers import first_number
from dragonscale.serving.iteration.capacity import capacity
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.iteration import decode, prefill
from dragonscale.serving.iteration.phases import iteration_cost
from dragonscale.simulation.rl.lengths import AnswerLengths

SEGMENTS = 32
"""Stretches by the clock, and as many by answers that end, within which all decode steps count as equal."""
TAIL_SHARE = 0.02
"""The fraction of a batch's answers, the last ones, whose time is its tail."""
ROUNDS = 12
"""Iterations to find how many answers fit into the cache."""
MAX_AHEAD = 4.0
"""Steps ahead beyond which a batch is always full."""


class Segments(NamedTuple):
    """Stretches of decode steps: their edges, (segments + 1,), and in each the mean number of running answers and their
    mean tokens, (segments,)."""

    edges: numpy.ndarray
    batch: numpy.ndarray
    keys: numpy.ndarray


@dataclass(frozen=True)
class Rollout:
    """The answers of a step on one replica: seconds in all, of them for prompts and for the `tail` after all but the
    last answers have ended; how many run together at most and on average; bytes on a chip; output tokens."""

    seconds: float
    prefill_s: float
    tail_s: float
    together: int
    mean_batch: float
    hbm_bytes: float
    tokens: float


def room_for(deployment: Deployment, prompt: float, lengths: numpy.ndarray) -> int:
    """The most answers that run together within the engine's limit and, at the fullest moment, within the cache; 0 if
    not even the weights fit.

    Those that start together grow together, so the fullest moment is late. An engine that started more would have to
    preempt some and compute them again.
    """
    memory = capacity(deployment)
    together = min(len(lengths), deployment.engine.scheduling.max_sequences * deployment.plan.data)
    if not numpy.all(memory.fits):
        return 0
    for _ in range(ROUNDS):
        start = starts(lengths, together)
        _, batch, keys = _segments(start, start + lengths, float((start + lengths).max()))
        fullest = float((batch * memory.sequence(prompt + keys)).max())
        # shrink in proportion, and by at least 2% so that it ends
        if fullest <= first_number(memory.cache) or together == 1:
            break
        together = max(int(together * min(first_number(memory.cache) / fullest, 0.98)), 1)
    return together


def generate(
    deployment: Deployment,
    prompt: int,
    lengths: AnswerLengths,
    samples: int,
    group: int,
    replicas: int,
    ahead: float = 0.0,
    recomputes: bool = False,
) -> Rollout:
    """Generate `samples` answers, `group` to a prompt, on `replicas` replicas: the one with the longest answer.

    The cache of a prompt is shared by its answers. Answers that continue in the next step keep their cache, or have
    their tokens recomputed by the new weights. Arrays are (answers,) or (segments,).
    """
    extra = min(ahead, MAX_AHEAD)
    # every `replicas`-th answer, from the longest; they start in random order
    drawn = lengths.draw(math.ceil(samples * (1 + extra)))[::-1][::replicas]
    needed = math.ceil(len(drawn) / (1 + extra))
    drawn = numpy.random.default_rng(0).permutation(drawn)
    together = room_for(deployment, prompt / group, drawn)
    if together < 1:
        return Rollout(math.inf, 0.0, 0.0, 0, 0.0, math.inf, 0.0)
    start = starts(drawn, together)
    end = start + drawn
    over = numpy.sort(end)[needed - 1]  # the step at which enough have ended
    cut = numpy.minimum(end, over)
    edges, batch, keys = _segments(start, cut, over)
    step = numpy.broadcast_to(iteration_cost(deployment, decode(batch, prompt + keys)).expected, batch.shape)
    segment_s = numpy.diff(edges) * step
    tokens = float(numpy.maximum(cut - start, 0.0).sum())
    # Answers begun ahead are work of the next step, as those that the last step began are of this: count as many
    # tokens as a step needs.
    share = float(drawn.mean()) * needed / tokens
    last = numpy.sort(end)[max(math.ceil(needed * (1 - TAIL_SHARE)) - 1, 0)]
    tail = float(segment_s[edges[:-1] >= last].sum())
    first = _prefill(deployment, prompt, max(needed / group, 1.0))
    if recomputes and numpy.any(end > over):
        # those in flight are prefilled anew, with what they have produced
        cached = prompt + (over - start)[(end > over) & (start < over)]
        if len(cached):
            first += _prefill(deployment, round(cached.mean()), float(len(cached)))
    memory = capacity(deployment)
    largest = int(min(together, len(drawn)))
    hbm_bytes = first_number(memory.held(largest, prompt + float(keys.max())))
    return Rollout(
        seconds=first + float(segment_s.sum()) * share,
        prefill_s=first,
        tail_s=tail * share,
        together=largest,
        mean_batch=float((batch * segment_s).sum() / segment_s.sum()),
        hbm_bytes=min(hbm_bytes, first_number(memory.usable)),
        tokens=float(drawn.mean()) * needed,
    )


def starts(lengths: numpy.ndarray, together: int) -> numpy.ndarray:
    """The decode step at which each answer starts, in their order: at once up to `together`, then as others end.

    >>> starts(numpy.array([4.0, 1.0, 2.0]), together=2).tolist()
    [0.0, 0.0, 1.0]
    """
    begun = numpy.zeros(len(lengths))
    ends = lengths[:together].tolist()
    heapq.heapify(ends)
    for index in range(together, len(lengths)):
        begun[index] = ends[0]
        heapq.heapreplace(ends, ends[0] + float(lengths[index]))
    return begun


def _segments(start: numpy.ndarray, end: numpy.ndarray, over: float) -> Segments:
    """Cut the decode steps up to `over` into segments; `start` and `end` are (answers,)."""
    ends = numpy.sort(end)
    by_rank = ends[numpy.linspace(0, len(ends) - 1, SEGMENTS).astype(int)]
    last = ends[max(math.ceil(len(ends) * (1 - TAIL_SHARE)) - 1, 0)]
    # the last answers end one by one
    edges = numpy.unique([0.0, last, *numpy.linspace(0.0, over, SEGMENTS), *by_rank, *ends[-8:]])
    low, high = edges[:-1, None], edges[1:, None]  # (segments, 1)
    begun, gone = numpy.maximum(start, low), numpy.minimum(end, high)  # (segments, answers)
    steps = numpy.maximum(gone - begun, 0.0)
    total = steps.sum(axis=1)
    # an answer's mean length in a segment is that in its middle
    keys = (steps * ((begun + gone) / 2 - start)).sum(axis=1) / numpy.maximum(total, 1e-12)
    return Segments(edges, numpy.maximum(total / (high - low)[:, 0], 1.0), keys)


def _prefill(deployment: Deployment, prompt: int, prompts: float) -> float:
    """Seconds for so many prompts, as many in an iteration as its token budget takes."""
    together = min(max(deployment.engine.scheduling.max_tokens // prompt, 1), math.ceil(prompts))
    cost = iteration_cost(deployment, prefill(prompt, together)).expected
    return first_number(cost) * prompts / together
