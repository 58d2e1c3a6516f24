"""Who takes part in a collective, and over which wires.

A *group* is the chips that hold the pieces of one array along some mesh axes. Three kinds of wiring cover every machine
here: `Rings` are axes of a torus; `Switches` are tiers of switches that a strided set of chips spans; `Wide` is the
data-centre network between pods. `Stacked` is a group over an inner and an outer wiring, which collectives cross one
after the other. Sizes may be floats, NumPy arrays or SymPy symbols; a size of 1 costs nothing.
"""

from dataclasses import dataclass
from typing import TypeAlias

from dragonscale.hardware.chip import Level
from dragonscale.numbers import Number, is_symbolic, maximum, minimum, product, where


def positive(value: Number) -> Number:
    """The value, kept off zero so that an axis of one chip divides nothing by zero (its cost is dropped later)."""
    return value if is_symbolic(value) else maximum(value, 1e-12)


def present(size: Number) -> Number:
    """1 where an axis has more than one chip, else 0 (a symbolic size stands for more than one)."""
    return 1 if is_symbolic(size) else where(size > 1, 1, 0)


@dataclass(frozen=True)
class Ring:
    """One torus axis, or a part of one: `share` is the part of its links' bandwidth this group may use."""

    size: Number
    wrap: Number = True
    share: Number = 1

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


@dataclass(frozen=True)
class Rings:
    """Torus axes used together; `link` is the one-way bandwidth of one link, `hop` its latency."""

    axes: tuple[Ring, ...]
    link: Number
    hop: Number = 0.0

    @property
    def size(self) -> Number:
        return product(axis.size for axis in self.axes)


@dataclass(frozen=True)
class Span:
    """How a group lies across one tier of switches: `fan` of its switch's children hold members, `children` in all,
    and `sharing` groups use each child's link at the same time."""

    level: Level
    fan: Number
    children: Number
    sharing: Number


@dataclass(frozen=True)
class Switches:
    """`size` chips, `stride` apart, under tiers of switches. With a stride of Y, Y such groups work side by side and
    share the links of the tiers above."""

    size: Number
    levels: tuple[Level, ...]
    stride: Number = 1

    def spans(self) -> list[Span]:
        """The group's footprint on each tier, lowest first."""
        reach = self.size * self.stride
        spans: list[Span] = []
        below: Number = 1
        for level in self.levels:
            inside = minimum(reach, below * level.degree) if level.degree else reach
            fan = maximum(inside / maximum(self.stride, below), 1)
            members = minimum(maximum(below / self.stride, 1), self.size)
            spans.append(Span(level, fan, self.size / members, minimum(self.stride, below)))
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
