"""A queue with bulk service: how long prompts take on a replica that only prefills.

The prompts that wait when an iteration ends go together into the next one, as many as fit, and all of them end with it.
n prompts take T(n) seconds; those that arrive meanwhile and those that did not fit are the next n. That is a Markov
chain from iteration to iteration, after N. T. J. Bailey (1954). Arrivals are Poisson and are dealt to replicas in turn,
so each of k replicas sees every k-th. The mean follows from Little's law: prompts present over prompts per second. The
chain counts prompts in fractions (units), at most `UNITS` in a full iteration.

With one prompt at a time it is the queue M/D/1, whose wait is load/(1 - load)/2:

>>> round(sojourn(((1.0, 1.0),), 0.8, 1) - 1, 2)
2.0
"""

import functools
import math

import numpy
from numpy.typing import NDArray

UNITS = 24
"""Most units that a full iteration is divided into."""
PARTS = 8
"""Most Poisson arrivals that make up one unit."""
STATES = 48
"""States of the chain beyond two full iterations."""
MAX_TURNS = 8
"""Replicas beyond which arrivals are hardly more regular."""
LOADS = (0.01, 0.3, 0.5, 0.65, 0.75, 0.82, 0.87, 0.9, 0.93, 0.97)
"""Loads at which the chain is solved; between them times grow as 1/(1 - load)."""

PackedTimes = tuple[tuple[float, float], ...]
"""Numbers of prompts that are prefilled together, ascending, each with its seconds."""


def sojourn(packed: PackedTimes, load: float, turns: int) -> float:
    """Mean seconds from a prompt's arrival to the end of its iteration, at a `load` of full iterations, on one of
    `turns` replicas that get prompts in turn."""
    load = min(max(load, LOADS[0]), LOADS[-1])
    above = next(index for index in range(1, len(LOADS)) if LOADS[index] >= load)
    low, high = LOADS[above - 1], LOADS[above]
    low_s, high_s = (_sojourn_at(packed, grid_load, min(turns, MAX_TURNS)) for grid_load in (low, high))
    # times (1 - load) the curve is nearly straight
    fraction = (load - low) / (high - low)
    return ((1 - fraction) * low_s * (1 - low) + fraction * high_s * (1 - high)) / (1 - load)


@functools.lru_cache(1024)
def _sojourn_at(packed: PackedTimes, load: float, turns: int) -> float:
    """The mean sojourn time at a load of the grid. Arrays are (states,), by the units that wait."""
    counts, seconds = zip(*packed, strict=True)
    capacity, full_s = counts[-1], seconds[-1]
    # `turns` arrivals at the pool bring this replica one prompt. They are grouped into units of `arrivals` each, so
    # that a full iteration has no more than UNITS of them.
    arrivals = math.ceil(turns * capacity / UNITS)
    units_per_prompt, rate = turns / arrivals, load * capacity / full_s  # rate in prompts per second
    full_units = max(1, round(capacity * units_per_prompt))
    units = numpy.arange(2 * full_units + STATES)
    # prompts that have arrived whole
    waiting = units // units_per_prompt if units_per_prompt > 1 else units / units_per_prompt
    present = numpy.maximum(waiting, 1.0)  # whoever finds nobody starts an iteration alone
    served = numpy.minimum(present, capacity)
    iteration_s = numpy.interp(served, counts, seconds)
    arrived = _arrival_chances(rate * units_per_prompt * iteration_s, min(arrivals, PARTS), len(units))
    gone = numpy.where(waiting > 0, numpy.round(served * units_per_prompt), units).astype(int)
    gone = numpy.minimum(gone, units)
    ends = _stationary(arrived, gone)
    # the mean number of prompts that arrive during an iteration, with the fraction of one that has begun to
    begun: numpy.ndarray | float = 0.0
    if units_per_prompt > 1:
        begun = (units - gone) % units_per_prompt / units_per_prompt - (1 - 1 / units_per_prompt) / 2
    arriving = numpy.maximum(rate * iteration_s / 2 + begun, 0.0)
    # Little's law: prompt-seconds over prompts
    return float(ends @ (iteration_s * (present + arriving)) / (ends @ served))


def _arrival_chances(means: NDArray[numpy.float64], arrivals: int, states: int) -> NDArray[numpy.float64]:
    """Chances that 0, 1, … units arrive, (means, states), by the mean: every `arrivals`-th of a Poisson process."""
    count = numpy.arange(arrivals * states)
    mean = arrivals * means[:, None]
    log_factorial = numpy.cumsum(numpy.log(numpy.maximum(count, 1)))
    chance = numpy.exp(count * numpy.log(mean) - mean - log_factorial)
    # average over the arrivals that the current unit already has
    below = numpy.cumsum(chance, axis=1).reshape(len(means), states, arrivals).mean(axis=2)
    return numpy.diff(below, axis=1, prepend=0.0)


def _stationary(arrived: NDArray[numpy.float64], gone: NDArray[numpy.int_]) -> NDArray[numpy.float64]:
    """The stationary distribution of the units that wait at the end of an iteration, (states,)."""
    states = len(gone)
    transitions = numpy.zeros((states, states))
    for state, left in enumerate(numpy.arange(states) - gone):
        transitions[state, left:] = arrived[state, : states - left]
    transitions[:, -1] += 1 - transitions.sum(axis=1)  # longer queues count as the longest state
    # solve pi = pi T with the last equation replaced by sum(pi) = 1
    equations = transitions.T - numpy.eye(states)
    equations[-1] = 1.0
    return numpy.maximum(numpy.linalg.solve(equations, numpy.eye(states)[-1]), 0.0)
