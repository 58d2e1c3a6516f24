"""What the groups of a collective say about the devices: how many work together, how far apart, how many there are at
least.

A profile of one device shows local shapes only. A group `{0,16,32,…,112}` is 8 devices with 16 between one and the
next: an axis of 8 with an axis of 16 inside it, so at least 128 devices.

>>> group_shape(((0, 16, 32, 48, 64, 80, 96, 112),))
GroupShape(degree=8, stride=16, groups=1, at_least=128)
>>> group_shape(((0, 1), (2, 3), (4, 5), (6, 7)))
GroupShape(degree=2, stride=1, groups=4, at_least=8)
"""

import itertools
import math
from collections.abc import Iterable

import msgspec

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
