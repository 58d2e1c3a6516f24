"""Which mesh axes a collective's groups run along.

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

import math

import numpy as np

from dragonscale.evidence.xla.replica_groups import Groups


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
