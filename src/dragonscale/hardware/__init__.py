"""Chips, networks and slices, with the source of every number."""

from dragonscale.hardware.catalogue import chip_names, load_chip
from dragonscale.hardware.chip import Chip, Level, Memory, Torus, Tree, dtype_bytes
from dragonscale.hardware.datasheet import dense_rate
from dragonscale.hardware.paths import axis_diameter, disjoint_paths, eccentricity
from dragonscale.hardware.slices import Slice, hops, links_of, parse_slice, parse_target, wraparound
from dragonscale.hardware.systolic import (
    core_peak,
    filling_side,
    matrix_tile,
    reduction_shifts,
    slice_cores,
    structural_peak,
    systolic_flops,
    vector_alus,
)

__all__ = [
    "Chip",
    "Level",
    "Memory",
    "Slice",
    "Torus",
    "Tree",
    "axis_diameter",
    "chip_names",
    "core_peak",
    "dense_rate",
    "disjoint_paths",
    "dtype_bytes",
    "eccentricity",
    "filling_side",
    "hops",
    "links_of",
    "load_chip",
    "matrix_tile",
    "parse_slice",
    "parse_target",
    "reduction_shifts",
    "slice_cores",
    "structural_peak",
    "systolic_flops",
    "vector_alus",
    "wraparound",
]
