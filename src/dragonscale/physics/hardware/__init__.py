"""Chips, networks and slices, with the source of every number."""

from dragonscale.physics.hardware.catalogue import chip_names, load_chip
from dragonscale.physics.hardware.changes import changed_chip, with_changes
from dragonscale.physics.hardware.chip import Chip, Level, Memory, Torus, Tree, dtype_bytes
from dragonscale.physics.hardware.paths import axis_diameter, disjoint_paths, eccentricity
from dragonscale.physics.hardware.slices import Slice, hops, links_of, parse_slice, parse_target, wraparound

__all__ = ["Chip", "Level", "Memory", "Slice", "Torus", "Tree", "axis_diameter", "changed_chip", "chip_names"]
__all__ += ["disjoint_paths", "dtype_bytes", "eccentricity", "hops", "links_of", "load_chip", "parse_slice"]
__all__ += ["parse_target", "with_changes", "wraparound"]
