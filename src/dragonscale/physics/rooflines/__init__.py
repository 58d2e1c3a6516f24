"""Rooflines: costs as an algebra, bounds on time, crossovers."""

from dragonscale.physics.rooflines.bounds import Rates, Roofline, attainable, rates_of, roofline
from dragonscale.physics.rooflines.cost import Cost
from dragonscale.physics.rooflines.crossover import Crossover, crossovers, solve_equal, symbol
from dragonscale.physics.rooflines.einsums import array_bytes, compute_dtype, einsum_cost

__all__ = ["Cost", "Crossover", "Rates", "Roofline", "array_bytes", "attainable", "compute_dtype", "crossovers"]
__all__ += ["einsum_cost", "rates_of", "roofline", "solve_equal", "symbol"]
