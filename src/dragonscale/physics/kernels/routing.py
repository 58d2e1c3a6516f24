"""The load of experts: how many on the busiest chip have tokens, how many rows they get, and in how many tiles.

- `balanced`: every expert gets the same, as in benchmarks and with well-trained routers in large batches.
- `random`: every token picks its experts at random, so a small batch leaves some without tokens.
- `uneven`: the same for experts that are not in equal demand, as with served text: fewer have work.
- A number: loads follow a power law with that exponent, as in NVIDIA's kernel database: drawn between 1 and 0.8·tokens
  (between 0.01 and 2 where there are fewer rows than experts), scaled to the number of rows, and rounded; the busiest
  chip is timed.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dragonscale.errors import InputError, shorten
from dragonscale.physics.numbers import Number, ceil, exp, floor, maximum, minimum, sqrt, where

Routing = str | float


@dataclass(frozen=True)
class Load:
    """Experts with rows (`active`) and all their rows on the busiest chip; `tiles(side)` is the number of tiles of
    `side` rows that they fill."""

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
    """Poisson loads; one above a tile's rows wastes half a tile on average.

    `uneven` demand for experts is exponentially distributed (its standard deviation equals its mean), which leaves
    1 / (1 + mean) of them without rows: as many, within an eighth, as the power laws that NVIDIA's aiconfigurator plans
    serving with.
    """
    mean = tokens * picks / experts  # rows of an expert
    local_experts = experts / chips
    has_rows = mean / (1 + mean) if uneven else 1 - exp(-mean)  # the probability of an expert
    active = maximum(1.0, local_experts * has_rows)
    rows = maximum(active, mean * local_experts)
    return Load(active, rows, lambda side: maximum(active, rows / side + 0.5 * active))


def busiest(load: Load, experts: Number, chips: Number) -> Load:
    """The largest of the loads of `chips` chips with `experts` experts each, where `load` is their mean and tokens pick
    at random: the number of active experts is binomially distributed, that of rows as a Poisson variable.

    >>> even = route(4.0, 8.0, 256.0, 8.0, "random")
    >>> largest = busiest(even, 32.0, 8.0)
    >>> round(float(even.active), 1), round(float(largest.active), 1), round(float(busiest(even, 32.0, 1.0).active), 1)
    (3.8, 6.4, 3.8)
    """
    deviations = largest_of(chips)
    active_deviation = sqrt(load.active * maximum(0.0, 1 - load.active / experts))
    active = minimum(experts, load.active + deviations * active_deviation)
    rows = maximum(active, load.rows + deviations * sqrt(load.rows))
    return Load(active, rows, lambda side: maximum(active, rows / side + 0.5 * active))


def largest_of(count: Number) -> NDArray[np.float64]:
    """The standard deviations that the largest of `count` normal draws lies above the mean (Blom's approximation), in
    the shape of `count`."""
    counts, inverse = np.unique(np.asarray(count, float), return_inverse=True)
    deviations = np.array([_largest(draws) for draws in counts.tolist()])  # (different counts,)
    return deviations[inverse].reshape(np.shape(count))


@functools.cache
def _largest(count: float) -> float:
    if count <= 1:
        return 0.0
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25))


LARGEST_OF_EIGHT = 1.43
"""The largest of eight draws from a normal distribution, in standard deviations."""


def _power_law(tokens: Number, picks: Number, experts: Number, chips: Number, exponent: float) -> Load:
    # Loads x between `low` and `high` with the density x^(−exponent): integrals of powers have closed forms.
    tail = 1 - exponent if exponent != 1 else 1e-4
    total = tokens * picks
    is_sparse = total <= experts
    low = where(is_sparse, 0.01, 1.0)
    high = where(is_sparse, 2.0, maximum(0.8 * tokens, 1.001))
    norm = (high**tail - low**tail) / tail
    mean = (high ** (1 + tail) - low ** (1 + tail)) / (1 + tail) / norm
    mean_square = (high ** (2 + tail) - low ** (2 + tail)) / (2 + tail) / norm
    scale = total / experts / mean  # from drawn loads to rows

    def fraction_above(rows: Number) -> Number:
        """The fraction of the experts with at least so many rows."""
        drawn = minimum(maximum(rows / scale, low), high)
        return 1 - (drawn**tail - low**tail) / tail / norm

    local_experts = experts / chips
    # relative standard deviation of a chip's load, and by it the load of the busiest chip over the mean
    deviation = sqrt(maximum(0.0, mean_square / (mean * mean) - 1) / local_experts)
    busy = minimum(chips, where(chips > 1, 1 + LARGEST_OF_EIGHT * deviation, 1.0))
    most_rows = maximum(1.0, floor(scale * high + 0.5))
    active = minimum(total, maximum(experts * fraction_above(0.5), total / most_rows)) / chips
    active = maximum(1.0, minimum(local_experts, active * where(is_sparse, busy, sqrt(busy))))
    rows = maximum(active, total / chips * busy)

    def tiles(side: float) -> Number:
        """Loads above a tile waste half of one on average; those below take one each (some are shared by rounding)."""
        large = local_experts * fraction_above(side)
        return maximum(active, rows / side + 0.5 * large + 0.7 * maximum(0.0, active - large))

    return Load(active, rows, tiles)
