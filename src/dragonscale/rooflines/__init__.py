"""Rooflines: costs as an algebra, bounds on time, crossovers."""

from dragonscale.rooflines.bounds import Roofline, attainable, roofline
from dragonscale.rooflines.cost import Cost, Rates, rates_of
from dragonscale.rooflines.crossover import Crossover, crossovers, solve_equal, symbol
from dragonscale.rooflines.operations import array_bytes, compute_dtype, einsum_cost

__all__ = [
    "Cost",
    "Crossover",
    "Rates",
    "Roofline",
    "array_bytes",
    "attainable",
    "compute_dtype",
    "crossovers",
    "einsum_cost",
    "rates_of",
    "roofline",
    "solve_equal",
    "symbol",
]
