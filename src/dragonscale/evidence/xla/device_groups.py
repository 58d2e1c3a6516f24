"""What the groups of a collective say about the devices: how many work together, how far apart, how many there are at
least, and which mesh axes they run along.

A profile of one device shows local shapes only. A group `{0,16,32,…,112}` is 8 devices with 16 between one and the
next: an axis of 8 with an axis of 16 inside it, so at least 128 devices.

>>> group_shape(((0, 16, 32, 48, 64, 80, 96, 112),))
GroupShape(degree=8, stride=16, groups=1, at_least=128)
>>> group_shape(((0, 1), (2, 3), (4, 5), (6, 7)))
GroupShape(degree=2, stride=1, groups=4, at_least=8)

HLO numbers devices by their position in the mesh, last axis fastest. A group that varies along some axes and is fixed
along all others *spans* those axes. The compiler may also cut an axis: over `X=8` it can form groups of two. So the
axes asked about may be parts: with `X=8` cut into `X1=2, X2=2, X3=2` (major first) such a group spans one of them.

>>> spanned_axes(((0, 1), (2, 3)), {"X": 2, "Y": 2})
('Y',)
>>> spanned_axes(((0, 2), (1, 3)), {"X": 4}) is None
True
>>> spanned_axes(((0, 2), (1, 3)), axis_parts({"X": 4})["X"])
('X1',)
"""

import itertools
import math
from collections.abc import Iterable

import msgspec
import numpy as np

from dragonscale.evidence.xla.replica_groups import Groups


class GroupShape(msgspec.Struct, frozen=True):
    """Devices of a group, the distance from one to the next (None where it varies), how many groups, and the least
    number of devices."""

    degree: int
    stride: int | None
    groups: int
    at_least: int


def group_shape(groups: Groups) -> GroupShape:
    """The shape of a collective's groups; of a permute's pairs, how far each sends."""
    first = groups[0]
    steps = {after - before for before, after in itertools.pairwise(first)}
    stride = steps.pop() if len(steps) == 1 else None
    highest = 1 + max(device for group in groups for device in group)
    whole = abs(stride) * len(first) if stride else highest
    return GroupShape(len(first), stride, len(groups), max(highest, whole))


def least_devices(every: Iterable[Groups]) -> int:
    """Devices that a program has at least, from all its collectives.

    >>> least_devices([((0, 16),), ((0, 1, 2),)])
    96
    """
    shapes = [group_shape(groups) for groups in every if groups]
    return math.lcm(*(shape.at_least for shape in shapes)) if shapes else 1


def axis_parts(axes: dict[str, int]) -> dict[str, dict[str, int]]:
    """The parts of each axis, of prime size, major first, numbered from 1.

    >>> axis_parts({"X": 4, "Y": 3})
    {'X': {'X1': 2, 'X2': 2}, 'Y': {'Y1': 3}}
    """
    return {
        name: {f"{name}{place}": part for place, part in enumerate(_primes(size), 1)} for name, size in axes.items()
    }


def _primes(size: int) -> list[int]:
    parts: list[int] = []
    divisor = 2
    while size > 1:
        while size % divisor == 0:
            parts.append(divisor)
            size //= divisor
        divisor += 1
    return parts


def coordinates(devices: object, axes: dict[str, int]) -> np.ndarray:
    """The coordinate of each device along each axis, axes first."""
    return np.array(np.unravel_index(np.asarray(devices), tuple(axes.values())))


def spanned_axes(groups: Groups, axes: dict[str, int]) -> tuple[str, ...] | None:
    """The axes along which every group runs, in mesh order, or None where the groups are not along whole axes."""
    table = coordinates(groups, axes)
    varies = [bool((each != each[:, :1]).any()) for each in table]
    spanned = tuple(name for name, moving in zip(axes, varies, strict=True) if moving)
    # Groups with distinct members that are fixed along all other axes hold at most this many: full if they hold them
    # all.
    full = math.prod(axes[name] for name in spanned) == len(groups[0])
    still = [each for each, moving in zip(table, varies, strict=True) if not moving]
    return spanned if full and all((each == each[:, :1]).all() for each in still) else None


def moved_axes(pairs: Groups, axes: dict[str, int]) -> tuple[str, ...]:
    """The axes along which some device of a permute sends."""
    table = coordinates(pairs, axes)
    return tuple(name for name, each in zip(axes, table, strict=True) if (each[:, 0] != each[:, 1]).any())
