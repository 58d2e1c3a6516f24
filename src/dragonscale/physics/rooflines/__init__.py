# ruff: noqa: F401  what is imported here is what the package offers
"""Rooflines: costs as an algebra, bounds on time, crossovers."""

from dragonscale.physics.rooflines.cost import Cost, Rates, Roofline, attainable, rates_of, roofline
from dragonscale.physics.rooflines.counts import array_bytes, compute_dtype, einsum_cost
from dragonscale.physics.rooflines.crossover import crossovers, solve_equal, symbol
