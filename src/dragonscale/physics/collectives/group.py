"""The chips that take part in a collective, and the wires between them.

A *group* is the chips that hold the shards of one array along some mesh axes. Three kinds of wiring cover every machine
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
    if is_symbolic(value):
        return value
    return maximum(value, 1e-12)


def present(size: Number) -> Number:
    """1 where an axis has more than one chip, else 0 (a symbolic size stands for more than one)."""
    if is_symbolic(size):
        return 1
    return where(size > 1, 1, 0)


@dataclass(frozen=True)
class Ring:
    """One torus axis, or a part of one. `share` is the fraction of its links' bandwidth that this group may use, since
    1/share such groups interleave along the axis; `axis` is the torus axis, counted from 0 (-1: a separate one)."""

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
        """Links that the farthest shard has to cross: half way round a ring, all of a line."""
        return present(self.size) * (self.closed * (self.size / 2) + (1 - self.closed) * (self.size - 1))


MAX_TORUS_AXES = 3


def joined(rings: tuple[Ring, ...]) -> tuple[Ring, ...]:
    """The rings, with consecutive parts of one torus axis joined to the ring or line that they form together: a group
    of 2 chips inside a group of 2 has the links of a line of 4, and no more.

    >>> rings = joined((Ring(2, False, 0.5, 0), Ring(4, True, 1, 1), Ring(2, False, 1, 0)))
    >>> [(ring.size, ring.share) for ring in rings]
    [(4, 1.0), (4, 1)]
    """
    if all(isinstance(ring.axis, int) and ring.axis < 0 for ring in rings):
        return rings
    # Sizes, strides and axes may be arrays over plans, (plans,), so parts are selected by masks.
    separate, whole = list(rings), []
    for axis in range(MAX_TORUS_AXES):
        is_part = [(ring.axis == axis) * (ring.size > 1) for ring in separate]
        parts = sum(is_part)
        if not _any(parts > 1):
            continue
        size, inner_stride, outer_stride, reach = 1, 1e9, 0, 0
        for mask, ring in zip(is_part, separate, strict=True):
            # 1/share groups of this part interleave, so its neighbours are as many chips apart
            stride = where(mask, 1 / ring.share, 1)
            ring_size = where(mask, ring.size, 1)
            size = size * ring_size
            inner_stride = minimum(inner_stride, where(mask, stride, 1e9))
            outer_stride = maximum(outer_stride, where(mask, stride, 0))
            reach = maximum(reach, mask * stride * ring_size)
        # parts with a gap between them reach twice as far as their chips in a row, or more
        join = (parts > 1) & (reach < 1.5 * inner_stride * size)
        closed: Number = 0  # whether the outermost part, which spans the others, wraps around
        for mask, ring in zip(is_part, separate, strict=True):
            closed = closed + mask * (where(mask, 1 / ring.share, 1) == outer_stride) * ring.closed
        whole.append(Ring(where(join, size, 1), closed, where(join, 1 / inner_stride, 1), axis))
        for index, mask in enumerate(is_part):
            ring = separate[index]
            separate[index] = replace(ring, size=where(join & (mask > 0), 1, ring.size))
    if not whole:
        return rings
    return (*whole, *(ring for ring in separate if _any(ring.size > 1)))


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
        """Links that the farthest shard has to cross."""
        return sum(axis.hops for axis in self.axes)

    @cached_property
    def links(self) -> Number:
        """Links into each chip, in units of one-way links."""
        return sum(axis.links for axis in self.axes)


@dataclass(frozen=True)
class Span:
    """A group's footprint on one tier of switches: `fan` children of each switch hold members, `children` in all;
    `sharing` groups use each child's link at the same time; `width` is the bytes per second of one child."""

    level: Level
    fan: Number
    children: Number
    sharing: Number
    width: Number

    def rate(self, kind: str) -> Number:
        """Bytes per second of one child for a collective. In a node without a switch a permute has one neighbour, so
        it has one link."""
        if kind == "permute" and self.level.peers:
            return self.level.bandwidth / self.level.peers
        return self.width


def _width(level: Level, fan: Number, reach: Number) -> Number:
    """Bytes per second of a child towards the others of its group: its link to a switch or, without one, its direct
    links to these."""
    width = level.bandwidth
    if level.peers:
        width = width * minimum(maximum(fan - 1, 1), level.peers) / level.peers
    if level.bridge:  # two neighbours have a bridge between them
        width = where(reach <= 2, level.bridge, width)
    return width


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
        reach = self.size * self.stride  # chips from the first member to the end of the last one's stride
        spans: list[Span] = []
        child_chips: Number = 1  # chips under one child of the tier
        for level in self.levels:
            # a degree of 0 holds as many children as needed
            inside = minimum(reach, child_chips * level.degree) if level.degree else reach
            fan = maximum(inside / maximum(self.stride, child_chips), 1)
            members = minimum(maximum(child_chips / self.stride, 1), self.size)  # of the group, under one child
            sharing = minimum(self.stride, child_chips)
            spans.append(Span(level, fan, self.size / members, sharing, _width(level, fan, reach)))
            child_chips = child_chips * level.degree
        return spans


@dataclass(frozen=True)
class Wide:
    """Pods over the data-centre network: `egress` is the one-way bandwidth of one chip's share of its host's NICs."""

    size: Number
    egress: Number
    latency: Number = 0.0


@dataclass(frozen=True)
class Stacked:
    """A group over two wirings: `outer.size` copies of `inner`, joined by `outer`."""

    inner: "Group"
    outer: "Group"

    @property
    def size(self) -> Number:
        return self.inner.size * self.outer.size


Group: TypeAlias = Rings | Switches | Wide | Stacked
