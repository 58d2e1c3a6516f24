"""Where a router sends tokens: how many experts of the busiest chip have any, how many rows they get, in how many
tiles.

`balanced`: every expert gets the same, as benchmarks and well-trained routers have it in large batches. `random`: every
token picks its experts at random, so a small batch leaves some without any. `uneven`: the same where experts are not
in equal demand, as served text has them: fewer have work. A number: the loads follow a power law with
that exponent, as in NVIDIA's kernel database (loads drawn between 1 and 0.8·tokens, or between 0.01 and 2 where there
are fewer rows than experts, scaled to the rows there are, and rounded; the busiest chip is the one that is timed).
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy

from dragonscale.errors import InputError, shorten
from dragonscale.physics.numbers import Number, ceil, exp, floor, maximum, minimum, sqrt, where

Routing = str | float


@dataclass(frozen=True)
class Load:
    """Experts with work and rows of work on the busiest chip; `tiles(side)` is how many tiles of so
    many rows that is."""

    active: Number
    rows: Number
    tiles: Callable[[float], Number]


def route(tokens: Number, picks: Number, experts: Number, chips: Number, routing: Routing) -> Load:
    """The load of the busiest of `chips` chips that share the experts; `tokens` are those of all of them."""
    if routing == "balanced":
        return _balanced(tokens, picks, experts, chips)
    if routing in ("random", "uneven"):
        return _random(tokens, picks, experts, chips, uneven=routing == "uneven")
    if isinstance(routing, str) or not 0 < routing < 2:
        raise InputError(
            f"There is no routing {shorten(routing)}; write 'balanced', 'random', 'uneven' or the exponent of a power "
            "law between 0 and 2."
        )
    return _power_law(tokens, picks, experts, chips, routing)


def _balanced(tokens: Number, picks: Number, experts: Number, chips: Number) -> Load:
    rows = maximum(1.0, tokens * picks / chips)
    active = minimum(experts / chips, rows)
    return Load(active, rows, lambda side: active * ceil(rows / active / side))


def _random(tokens: Number, picks: Number, experts: Number, chips: Number, uneven: bool) -> Load:
    """Poisson loads; one above a tile's rows wastes half a tile on average. Uneven, the demand for experts is
    exponentially distributed (as far apart as it is large on average), which leaves 1 / (1 + mean) of them without any
    work: as many, within an eighth, as the power laws that NVIDIA's aiconfigurator plans serving with."""
    mean = tokens * picks / experts
    here = experts / chips
    active = maximum(1.0, here * (mean / (1 + mean) if uneven else 1 - exp(-mean)))
    rows = maximum(active, mean * here)
    return Load(active, rows, lambda side: maximum(active, rows / side + 0.5 * active))


def busiest(load: Load, experts: Number, chips: Number) -> Load:
    """The largest of the loads of `chips` chips with so many `experts` each, where `load` is their mean and tokens pick
    at random: experts with work scatter as in a binomial distribution, rows as in a Poisson one.

    >>> even = route(4.0, 8.0, 256.0, 8.0, "random")
    >>> most = busiest(even, 32.0, 8.0)
    >>> round(float(even.active), 1), round(float(most.active), 1), round(float(busiest(even, 32.0, 1.0).active), 1)
    (3.8, 6.4, 3.8)
    """
    out = largest_of(chips)
    active = minimum(experts, load.active + out * sqrt(load.active * maximum(0.0, 1 - load.active / experts)))
    rows = maximum(active, load.rows + out * sqrt(load.rows))
    return Load(active, rows, lambda side: maximum(active, rows / side + 0.5 * active))


def largest_of(count: Number) -> Any:
    """How many standard deviations the largest of `count` normal draws lies above the mean (Blom's approximation)."""
    counts, places = numpy.unique(numpy.asarray(count, float), return_inverse=True)
    return numpy.array([_largest(one) for one in counts.tolist()])[places].reshape(numpy.shape(count))


@functools.cache
def _largest(count: float) -> float:
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0


BUSIEST = 1.43
"""The largest of eight draws from a normal distribution, in standard deviations."""


def _power_law(tokens: Number, picks: Number, experts: Number, chips: Number, exponent: float) -> Load:
    tail = 1 - exponent if exponent != 1 else 1e-4
    total = tokens * picks
    few = total <= experts
    low = where(few, 0.01, 1.0)
    high = where(few, 2.0, maximum(0.8 * tokens, 1.001))
    span = (high**tail - low**tail) / tail
    mean = (high ** (1 + tail) - low ** (1 + tail)) / (1 + tail) / span
    square = (high ** (2 + tail) - low ** (2 + tail)) / (2 + tail) / span
    scale = total / experts / mean

    def above(load: Number) -> Number:
        """The part of the experts with at least this load."""
        drawn = minimum(maximum(load / scale, low), high)
        return 1 - (drawn**tail - low**tail) / tail / span

    here = experts / chips
    spread = sqrt(maximum(0.0, square / (mean * mean) - 1) / here)
    busy = minimum(chips, where(chips > 1, 1 + BUSIEST * spread, 1.0))
    most = maximum(1.0, floor(scale * high + 0.5))
    active = minimum(total, maximum(experts * above(0.5), total / most)) / chips
    active = maximum(1.0, minimum(here, active * where(few, busy, sqrt(busy))))
    rows = maximum(active, total / chips * busy)

    def tiles(side: float) -> Number:
        """Loads above a tile waste half of one on average; those below take one each (some are shared by rounding)."""
        large = here * above(side)
        return maximum(active, rows / side + 0.5 * large + 0.7 * maximum(0.0, active - large))

    return Load(active, rows, tiles)
