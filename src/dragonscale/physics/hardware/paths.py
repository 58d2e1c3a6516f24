"""Paths between the chips of a torus: how far the farthest chip is, and how many disjoint paths lead there."""

import math

from dragonscale.errors import InputError
from dragonscale.physics.hardware.chip import Torus
from dragonscale.physics.hardware.slices import Slice, links_of
from dragonscale.physics.numbers import Number, floor


def axis_diameter(size: Number, wraps: bool) -> Number:
    """Hops between the two chips of an axis that are farthest apart: half way round a ring, or from end to end.

    >>> axis_diameter(16, wraps=True), axis_diameter(16, wraps=False)
    (8, 15)
    """
    if wraps:
        return floor(size / 2)
    return size - 1


def eccentricity(slice_: Slice, position: tuple[int, ...] = ()) -> int:
    """Hops from a chip (without a position, a corner) to the one farthest from it.

    >>> from dragonscale.physics.hardware.slices import parse_slice
    >>> eccentricity(parse_slice("v5e:4x4"), (0, 0)), eccentricity(parse_slice("v5e:4x4"), (1, 1))
    (6, 4)
    """
    position = position or (0,) * len(slice_.shape)
    check_position(slice_, position)
    total = 0
    for size, wraps, index in zip(slice_.shape, slice_.wrap, position, strict=True):
        # on a line the farther of its two ends is farthest
        total += int(axis_diameter(size, wraps=True)) if wraps else max(index, size - 1 - index)
    return total


def disjoint_paths(slice_: Slice, source: tuple[int, ...], target: tuple[int, ...]) -> int:
    """Paths from one chip to another that share no link, over which a message can be spread.

    By Menger's theorem they are as many as the smallest cut between the two: the links of either end, or the links
    across an axis along which the two differ (twice that if the axis is a ring).

    >>> from dragonscale.physics.hardware.slices import parse_slice
    >>> disjoint_paths(parse_slice("v5e:4x4"), (0, 0), (3, 3)), disjoint_paths(parse_slice("v5e:16x16"), (0, 0), (3, 3))
    (2, 4)
    """
    check_position(slice_, source)
    check_position(slice_, target)
    if source == target:
        raise InputError(f"The chip {source} of {slice_} is both ends of the path; choose two chips.")
    chips = math.prod(slice_.shape)
    cuts = [links_of(slice_, source), links_of(slice_, target)]
    for size, wraps, start, end in zip(slice_.shape, slice_.wrap, source, target, strict=True):
        if start != end:
            cross_section = chips // size
            cuts.append(2 * cross_section if wraps else cross_section)  # a ring is cut in two places
    return min(cuts)


def check_position(slice_: Slice, position: tuple[int, ...]) -> None:
    """Refuse a position that the slice does not have, and slices whose chips have none."""
    if not isinstance(slice_.chip.network, Torus):
        raise InputError(f"{slice_} hangs on switches; only the chips of a torus have a position.")
    last = tuple(size - 1 for size in slice_.shape)
    is_inside = len(position) == len(last) and all(0 <= at <= end for at, end in zip(position, last, strict=True))
    if not is_inside:
        raise InputError(f"{slice_} has no chip at {position}; positions go from {(0,) * len(last)} to {last}.")
