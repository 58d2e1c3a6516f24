"""How long prompts take in a replica that only prefills: those that wait when an iteration ends go together into the
next, as many as it takes, and all of them end with it (a queue with bulk service).

n prompts take T(n) seconds, and those that came meanwhile and those for whom there was no room are the next n: a Markov
chain from iteration to iteration, after N. T. J. Bailey (1954). Prompts come at random and are dealt to replicas in
turn, so that each of k sees every k-th. The mean is Little's: prompts there over prompts per second. What waits is
counted in k-ths of a prompt, of large iterations in `UNITS` of what they take.

One at a time it is the queue M/D/1, whose wait is load/(1 - load)/2:

>>> round(sojourn(((1.0, 1.0),), 0.8, 1) - 1, 2)
2.0
"""

import functools
import math

import numpy

UNITS, PARTS, STATES = 24, 8, 48
"""The most units of a full iteration, the most parts of a unit that come one by one, and the states beyond two full
iterations."""
MOST_TURNS = 8
"""Replicas beyond which arrivals become hardly more regular."""
LOADS = (0.01, 0.3, 0.5, 0.65, 0.75, 0.82, 0.87, 0.9, 0.93, 0.97)
"""At which times are worked out: between them they grow as 1/(1 - load)."""


def sojourn(packed: tuple[tuple[float, float], ...], load: float, turns: int) -> float:
    """Mean seconds from coming to the end of one's iteration, where n prompts take the seconds of `packed`, at a load
    of full iterations, in one of `turns` replicas."""
    load = min(max(load, LOADS[0]), LOADS[-1])
    above = next(place for place in range(1, len(LOADS)) if LOADS[place] >= load)
    low, high = LOADS[above - 1 : above + 1]
    share = (load - low) / (high - low)
    mean, more = (_at(packed, one, min(turns, MOST_TURNS)) for one in (low, high))
    return ((1 - share) * mean * (1 - low) + share * more * (1 - high)) / (1 - load)


@functools.lru_cache(1024)
def _at(packed: tuple[tuple[float, float], ...], load: float, turns: int) -> float:
    counts, seconds = zip(*packed, strict=True)
    most, whole = counts[-1], seconds[-1]
    part = math.ceil(turns * most / UNITS)
    fine, rate = turns / part, load * most / whole  # units of a prompt, prompts per second
    full = max(1, round(most * fine))
    units = numpy.arange(2 * full + STATES)
    waiting = units // fine if fine > 1 else units / fine  # prompts that have come whole
    there = numpy.maximum(waiting, 1.0)  # whoever finds nobody starts an iteration alone
    served = numpy.minimum(there, most)
    took = numpy.interp(served, counts, seconds)
    arrived = _arrived(rate * fine * took, min(part, PARTS), len(units))
    gone = numpy.where(waiting > 0, numpy.round(served * fine), units).astype(int)
    gone = numpy.minimum(gone, units)
    ends = _solved(arrived, gone)
    begun = (units - gone) % fine / fine - (1 - 1 / fine) / 2 if fine > 1 else 0.0  # of the next to come
    come = numpy.maximum(rate * took / 2 + begun, 0.0)
    return float(ends @ (took * (there + come)) / (ends @ served))


def _arrived(means: numpy.ndarray, part: int, most: int) -> numpy.ndarray:
    """Chances that 0, 1, … up to `most` units come, by their mean: every `part`-th of a Poisson process."""
    count = numpy.arange(part * most)
    mean = part * means[:, None]
    chance = numpy.exp(count * numpy.log(mean) - mean - numpy.cumsum(numpy.log(numpy.maximum(count, 1))))
    below = numpy.cumsum(chance, axis=1).reshape(len(means), most, part).mean(axis=2)
    return numpy.diff(below, axis=1, prepend=0.0)


def _solved(arrived: numpy.ndarray, gone: numpy.ndarray) -> numpy.ndarray:
    """How often so many units wait at the end of an iteration, in the long run."""
    most = len(gone)
    table = numpy.zeros((most, most))
    for place, left in enumerate(numpy.arange(most) - gone):
        table[place, left:] = arrived[place, : most - left]
    table[:, -1] += 1 - table.sum(axis=1)
    table = table.T - numpy.eye(most)
    table[-1] = 1.0
    return numpy.maximum(numpy.linalg.solve(table, numpy.eye(most)[-1]), 0.0)
