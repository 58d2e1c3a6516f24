# ruff: noqa: F401  what is imported here is what the package offers
"""Chips, networks and slices, with the source of every number."""

from dragonscale.physics.hardware.catalogue import chip_names, load_chip
from dragonscale.physics.hardware.changes import changed_chip, with_changes
from dragonscale.physics.hardware.chip import Chip, Level, Torus, Tree, dtype_bytes
from dragonscale.physics.hardware.paths import axis_diameter, disjoint_paths, eccentricity
from dragonscale.physics.hardware.slices import Slice, hops, links_of, parse_slice, parse_target
