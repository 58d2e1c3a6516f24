"""Who takes part in a collective, and over which wires.

A *group* is the chips that hold the pieces of one array along some mesh axes. Three kinds of wiring cover every machine
here: `Rings` are axes of a torus; `Switches` are tiers of switches that a strided set of chips spans; `Wide` is the
data-centre network between pods. `Stacked` is a group over an inner and an outer wiring, which collectives cross one
after the other. Sizes may be floats, NumPy arrays or SymPy symbols; a size of 1 costs nothing.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from dragonscale.physics.hardware.chip import Level
from dragonscale.physics.numbers import Number, is_array, is_symbolic, maximum, minimum, product, where


def positive(value: Number) -> Number:
    """The value, kept off zero so that an axis of one chip divides nothing by zero (its cost is dropped later)."""
    return value if is_symbolic(value) else maximum(value, 1e-12)


def present(size: Number) -> Number:
    """1 where an axis has more than one chip, else 0 (a symbolic size stands for more than one)."""
    return 1 if is_symbolic(size) else where(size > 1, 1, 0)


@dataclass(frozen=True)
class Ring:
    """One torus axis, or a part of one: `share` is the part of its links' bandwidth this group may use, since so many
    such groups lie side by side; `axis` says which of the torus's axes it is, counted from 0 (-1: one of its own)."""

    size: Number
    wrap: Number = True
    share: Number = 1
    axis: Number = -1

    @property
    def closed(self) -> Number:
        """1 for a ring, 0 for a line."""
        return int(self.wrap) if isinstance(self.wrap, bool) else self.wrap

    @property
    def links(self) -> Number:
        """Links into each chip, in units of one-way links: two on a ring, one at the end of a line."""
        return present(self.size) * (1 + self.closed) * self.share

    @property
    def hops(self) -> Number:
        """Links that the farthest piece has to cross."""
        return present(self.size) * (self.closed * (self.size / 2) + (1 - self.closed) * (self.size - 1))


MOST_AXES = 3
"""Axes of a torus."""


def joined(rings: tuple[Ring, ...]) -> tuple[Ring, ...]:
    """Parts of one torus axis that follow each other, as the one ring or line that they are: a group of 2 chips inside
    a group of 2 has the links of a line of 4, and no more.

    >>> [
    ...     (ring.size, ring.share)
    ...     for ring in joined((Ring(2, False, 0.5, 0), Ring(4, True, 1, 1), Ring(2, False, 1, 0)))
    ... ]
    [(4, 1.0), (4, 1)]
    """
    if all(isinstance(ring.axis, int) and ring.axis < 0 for ring in rings):
        return rings
    found, whole = list(rings), []
    for axis in range(MOST_AXES):
        here = [(ring.axis == axis) * (ring.size > 1) for ring in found]
        if not _any(sum(here) > 1):
            continue
        sizes = [where(mine, ring.size, 1) for mine, ring in zip(here, found, strict=True)]
        strides = [where(mine, 1 / ring.share, 1) for mine, ring in zip(here, found, strict=True)]
        inner = minimum(*(where(mine, stride, 1e9) for mine, stride in zip(here, strides, strict=True)))
        outer = maximum(*(where(mine, stride, 0) for mine, stride in zip(here, strides, strict=True)))
        reach = maximum(*(mine * stride * size for mine, stride, size in zip(here, strides, sizes, strict=True)))
        together = product(sizes)
        join = (sum(here) > 1) & (
            reach < 1.5 * inner * together
        )  # with a gap between them they reach twice as far or more
        last = [mine * (stride == outer) * ring.closed for mine, stride, ring in zip(here, strides, found, strict=True)]
        whole.append(Ring(where(join, together, 1), sum(last), where(join, 1 / inner, 1), axis))
        found = [
            replace(ring, size=where(join & (mine > 0), 1, ring.size)) for mine, ring in zip(here, found, strict=True)
        ]
    return (*whole, *(ring for ring in found if _any(ring.size > 1))) if whole else rings


def _any(condition: Number) -> bool:
    return bool(condition.any()) if is_array(condition) else bool(condition)


@dataclass(frozen=True)
class Rings:
    """Torus axes used together; `link` is the one-way bandwidth of one link, `hop` its latency."""

    axes: tuple[Ring, ...]
    link: Number
    hop: Number = 0.0

    @cached_property
    def size(self) -> Number:
        """Chips of the group."""
        return product(axis.size for axis in self.axes)

    @cached_property
    def hops(self) -> Number:
        """Links that the farthest piece has to cross."""
        return sum(axis.hops for axis in self.axes)

    @cached_property
    def links(self) -> Number:
        """Links into each chip, in units of one-way links."""
        return sum(axis.links for axis in self.axes)


@dataclass(frozen=True)
class Span:
    """How a group lies across one tier of switches: `fan` of its switch's children hold members, `children` in all,
    and `sharing` groups use each child's link at the same time, of which the group has `width` bytes per second."""

    level: Level
    fan: Number
    children: Number
    sharing: Number
    width: Number

    def rate(self, kind: str) -> Number:
        """Bytes per second that a collective has: a permute has one neighbour, so where there is no switch one link."""
        single = kind == "permute" and self.level.peers
        return self.level.bandwidth / self.level.peers if single else self.width


def _width(level: Level, fan: Number, reach: Number) -> Number:
    """What a child has towards the others of its group: its link to a switch, or without one its links to these."""
    whole = level.bandwidth
    if level.peers:
        whole = whole * minimum(maximum(fan - 1, 1), level.peers) / level.peers
    return where(reach <= 2, level.bridge, whole) if level.bridge else whole


@dataclass(frozen=True)
class Switches:
    """`size` chips, `stride` apart, under tiers of switches. With a stride of Y, Y such groups work side by side and
    share the links of the tiers above."""

    size: Number
    levels: tuple[Level, ...]
    stride: Number = 1

    @cached_property
    def spans(self) -> list[Span]:
        """The group's footprint on each tier, lowest first."""
        reach = self.size * self.stride
        spans: list[Span] = []
        below: Number = 1
        for level in self.levels:
            inside = minimum(reach, below * level.degree) if level.degree else reach
            fan = maximum(inside / maximum(self.stride, below), 1)
            members = minimum(maximum(below / self.stride, 1), self.size)
            width = _width(level, fan, reach)
            spans.append(Span(level, fan, self.size / members, minimum(self.stride, below), width))
            below = below * level.degree
        return spans


@dataclass(frozen=True)
class Wide:
    """Pods over the data-centre network: `egress` is the one-way bandwidth of one chip's share of its host's NICs."""

    size: Number
    egress: Number
    latency: Number = 0.0


@dataclass(frozen=True)
class Stacked:
    """A group over two wirings: every chip of `inner` in each of the `outer.size` places of `outer`."""

    inner: "Group"
    outer: "Group"

    @property
    def size(self) -> Number:
        return self.inner.size * self.outer.size


Group: TypeAlias = Rings | Switches | Wide | Stacked
