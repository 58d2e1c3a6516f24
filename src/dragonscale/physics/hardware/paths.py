"""Ways between chips of a torus: how far the farthest is, and how many ways can be used at once."""

import math

from dragonscale.errors import InputError
from dragonscale.physics.hardware.chip import Torus
from dragonscale.physics.hardware.slices import Slice, links_of
from dragonscale.physics.numbers import Number, floor


def axis_diameter(size: Number, wraps: bool) -> Number:
    """Links between the two chips of an axis that are farthest apart: half way round a ring, or from end to end.

    >>> axis_diameter(16, wraps=True), axis_diameter(16, wraps=False)
    (8, 15)
    """
    return floor(size / 2) if wraps else size - 1


def eccentricity(piece: Slice, position: tuple[int, ...] = ()) -> int:
    """Links from a chip (without a position, a corner) to the one farthest from it.

    >>> from dragonscale.physics.hardware.slices import parse_slice
    >>> eccentricity(parse_slice("v5e:4x4"), (0, 0)), eccentricity(parse_slice("v5e:4x4"), (1, 1))
    (6, 4)
    """
    position = position or (0,) * len(piece.shape)
    check_position(piece, position)
    axes = zip(piece.shape, piece.wrap, position, strict=True)
    return sum(int(axis_diameter(size, True)) if wraps else max(at, size - 1 - at) for size, wraps, at in axes)


def disjoint_paths(piece: Slice, source: tuple[int, ...], target: tuple[int, ...]) -> int:
    """Ways from one chip to another that share no link, over which a message can be spread.

    They are limited by the links of either end and, on a slice that is narrow somewhere, by the links across it: no
    more than the cross-section of any axis along which the two are apart, twice that if the axis is a ring.

    >>> from dragonscale.physics.hardware.slices import parse_slice
    >>> disjoint_paths(parse_slice("v5e:4x4"), (0, 0), (3, 3)), disjoint_paths(parse_slice("v5e:16x16"), (0, 0), (3, 3))
    (2, 4)
    """
    check_position(piece, source)
    check_position(piece, target)
    if source == target:
        raise InputError(f"The chip {source} of {piece} is both ends of the way; choose two chips.")
    chips = math.prod(piece.shape)
    axes = zip(piece.shape, piece.wrap, source, target, strict=True)
    narrow = [chips // size * (2 if wraps else 1) for size, wraps, start, end in axes if start != end]
    return min(links_of(piece, source), links_of(piece, target), *narrow)


def check_position(piece: Slice, position: tuple[int, ...]) -> None:
    """Refuse a position that the slice does not have, and slices without positions."""
    if not isinstance(piece.chip.network, Torus):
        raise InputError(f"{piece} hangs on switches; only the chips of a torus have a position.")
    last = tuple(size - 1 for size in piece.shape)
    if len(position) != len(last) or not all(0 <= at <= end for at, end in zip(position, last, strict=True)):
        raise InputError(f"{piece} has no chip at {position}; positions go from {(0,) * len(last)} to {last}.")
