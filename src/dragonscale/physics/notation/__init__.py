"""The book's notation: sharded arrays and einsum lines, as text and as records."""

from dragonscale.physics.notation.array import Array, Dim, parse_array, parse_axes, subscript
from dragonscale.physics.notation.einsum import Einsum, parse_chain, parse_einsum

__all__ = ["Array", "Dim", "Einsum", "parse_array", "parse_axes", "parse_chain", "parse_einsum", "subscript"]
