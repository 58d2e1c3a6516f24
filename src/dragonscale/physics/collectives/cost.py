"""What each collective costs: a bandwidth term and a latency term, from datasheet numbers alone.

`volume` is always the bytes of the whole array as one group sees it: what each chip holds after an AllGather, before a
ReduceScatter, before and after an AllReduce; for an AllToAll, the sum of what the chips hold; for a permute, what each
chip sends. If other mesh axes split the array too, it is already divided by them.

On a ring of N chips (book, chapter 3): an AllGather lets every byte pass every link once in one of two directions, so
it takes V/W whatever N is, with W both directions of the axis; several axes share the work. A ReduceScatter is the same
backwards, an AllReduce is both. An AllToAll moves a quarter: the bisection of the longest axis must carry V/4 each way.
Without wraparound the end chips receive (N−1)/N of V through a single link. Under switches (book, chapter on GPUs) a
tier with D children takes V·(D−1)/D over the bandwidth of one child's link, and the slowest tier binds; switches that
add (SHARP) let an AllReduce send V only once. In a node without a switch (MI300X, DGX-1) a group has only the links
between its own chips.
"""

from collections.abc import Callable
from dataclasses import dataclass

from dragonscale.errors import unknown
from dragonscale.physics.collectives.group import Group, Rings, Span, Stacked, Switches, Wide, positive, present
from dragonscale.physics.numbers import Number, is_symbolic, log2, maximum, minimum, product, where

KINDS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute")


@dataclass(frozen=True)
class Seconds:
    """Two bounds on a collective's time: what its bytes need, and what its hops need."""

    bandwidth: Number
    latency: Number

    def __add__(self, other: "Seconds") -> "Seconds":
        return Seconds(self.bandwidth + other.bandwidth, self.latency + other.latency)

    def __mul__(self, times: Number) -> "Seconds":
        return Seconds(self.bandwidth * times, self.latency * times)

    __rmul__ = __mul__

    @property
    def lower(self) -> Number:
        """The two overlap: the larger one binds."""
        return maximum(self.bandwidth, self.latency)

    @property
    def upper(self) -> Number:
        """The two add up."""
        return self.bandwidth + self.latency

    @property
    def regime(self) -> str:
        """Which of the two binds (for plain numbers)."""
        return "latency" if self.latency > self.bandwidth else "bandwidth"


@dataclass(frozen=True)
class Options:
    """How a collective is done. `exact` keeps the (N−1)/N that the book drops to first order: with it the bandwidth
    term is a true lower bound, without it the book's figure (lines of a torus keep it either way); `one_way` sends
    around a ring in one direction only; `in_network` lets switches add where they can (SHARP, NVLS); `filled` is the
    part of an AllToAll's pieces that are not empty (a ragged AllToAll)."""

    exact: bool = False
    one_way: bool = False
    in_network: bool = False
    filled: Number = 1.0


BOOK = Options()
"""To first order, as the book counts."""
EXACT = Options(exact=True)
"""A true lower bound."""


def collective_time(kind: str, volume: Number, group: Group, options: Options = BOOK) -> Seconds:
    """The cost of one collective over a group.

    >>> from dragonscale.physics.collectives.group import Ring
    >>> ring = Rings((Ring(16),), link=45e9, hop=1e-6)
    >>> collective_time("all_gather", 90e6, ring).lower
    0.001
    >>> collective_time("all_to_all", 90e6, ring).bandwidth / collective_time("all_gather", 90e6, ring).bandwidth
    0.25
    """
    if kind not in KINDS:
        raise unknown("collective", kind, KINDS)
    if isinstance(group, Stacked):
        parts = [collective_time(what, size, on, options) * n for n, what, size, on in stages(kind, volume, group)]
        return sum(parts[1:], parts[0])
    formulas: Callable[..., Seconds] = {Rings: _on_rings, Switches: _under_switches, Wide: _over_dcn}[type(group)]
    cost = formulas(kind, volume, group, options)
    if is_symbolic(group.size):
        return cost
    alone = group.size <= 1
    return Seconds(where(alone, 0.0, cost.bandwidth), where(alone, 0.0, cost.latency))


def _on_rings(kind: str, volume: Number, group: Rings, options: Options) -> Seconds:
    size, axes = group.size, group.axes
    if kind == "permute":
        return Seconds(volume / group.link, group.hop)
    # One way round, the farthest piece crosses all links of a ring but one.
    hops = sum(axis.size - 1 for axis in axes) if options.one_way else group.hops
    if kind == "all_to_all":
        return Seconds(_all_to_all_on_rings(volume, group, options), group.hop * hops)
    if options.one_way:
        links: Number = len(axes)
        part = (size - 1) / size
    else:
        links = group.links
        part = (size - 1) / size if options.exact else 1 - (1 - product(axis.closed for axis in axes)) / size
    passes = 2 if kind == "all_reduce" else 1
    return Seconds(passes * volume * part / (group.link * positive(links)), passes * group.hop * hops)


def _all_to_all_on_rings(volume: Number, group: Rings, options: Options) -> Number:
    """The bisection of the worst axis: V/4 each way over the links that cross its middle."""
    filled = volume * options.filled
    if options.one_way:
        # Every piece travels d = 1 … N−1 links the same way: V/N² · N(N−1)/2 bytes over each link.
        return filled * (group.size - 1) / (2 * group.size * group.link)
    cost = [
        present(axis.size) * filled / 4 / (group.size / axis.size * positive(axis.links) * group.link)
        for axis in group.axes
    ]
    return maximum(*cost) if len(cost) > 1 else cost[0]


def _under_switches(kind: str, volume: Number, group: Switches, options: Options) -> Seconds:
    bandwidth: Number = 0.0
    latency: Number = 0.0
    for number, span in enumerate(group.spans):
        used = present(span.fan)
        adds = kind == "all_reduce" and options.in_network and span.level.reduces
        if adds or kind == "permute":
            part = used
        elif kind == "all_to_all":
            part = _leaving(span, number, options) * options.filled
        else:
            part = ((span.fan - 1) / span.fan if options.exact else used) * (2 if kind == "all_reduce" else 1)
        bandwidth = maximum(bandwidth, volume * part * span.sharing / span.rate(kind))
        steps = log2(span.fan) * (2 if kind == "all_reduce" and not adds else 1)
        latency = latency + span.level.latency * steps
    return Seconds(bandwidth, latency)


def _leaving(span: Span, number: int, options: Options) -> Number:
    """The part of an AllToAll's bytes that leaves one child: what is bound for the child's neighbours in a node, and on
    higher tiers for any other child. To first order, all that the child holds."""
    if not options.exact:
        return present(span.fan) / span.children
    return (span.fan - 1 if number == 0 else span.children - 1) / span.children**2


def _over_dcn(kind: str, volume: Number, group: Wide, options: Options) -> Seconds:
    crossed = (group.size - 1) / group.size if options.exact else 1
    if kind == "permute":
        return Seconds(volume / group.egress, group.latency)
    if kind == "all_to_all":
        return Seconds(volume * options.filled / group.size * crossed / group.egress, group.latency)
    passes = 2 if kind == "all_reduce" else 1
    return Seconds(passes * volume * crossed / group.egress, passes * group.latency)


def stages(kind: str, volume: Number, group: Stacked) -> list[tuple[int, str, Number, Group]]:
    """A collective over two wirings, hierarchically: how often, what, of how many bytes and over which; the outer
    wiring only ever carries one chip's part of the array."""
    inner, outer, part = group.inner, group.outer, volume / group.inner.size
    if kind == "all_reduce":
        return [(2, "reduce_scatter", volume, inner), (1, kind, part, outer)]
    if kind == "permute":
        return [(1, kind, volume, outer)]
    return [(1, kind, volume / outer.size if kind == "all_to_all" else volume, inner), (1, kind, part, outer)]


def wire_bytes(kind: str, volume: Number, size: Number) -> Number:
    """Bytes that each chip sends (and receives) with the best algorithm on any network: the compiler's measure.

    >>> wire_bytes("all_gather", 64, 8), wire_bytes("all_reduce", 64, 8), wire_bytes("all_to_all", 64, 8)
    (56.0, 112.0, 7.0)
    """
    part = (size - 1) / size
    gathered = dict.fromkeys(("all_gather", "reduce_scatter"), part)
    parts = gathered | {"all_reduce": 2 * part, "all_to_all": part / size, "permute": present(size)}
    if kind not in parts:
        raise unknown("collective", kind, parts)
    return volume * parts[kind]


def sent_bytes(kind: str, volume: Number, group: Group, options: Options = BOOK) -> Number:
    """The same for a group and a way to do it: switches that add take each chip's array once, where
    a ring sends almost two, and a ragged AllToAll sends only the pieces that are not empty."""
    adds = isinstance(group, Switches) and group.levels[0].reduces and options.in_network
    if kind == "all_reduce" and adds:
        return volume
    part = options.filled if kind == "all_to_all" else 1
    return wire_bytes(kind, volume, group.size) * part


def ragged_fill(picks: Number, shards: Number, random: bool = True) -> Number:
    """The part of an AllToAll's pieces that are not empty when each token goes to `picks` experts on `shards` chips.

    With `random` picks, some fall on the same chip: 1 − ((Z−1)/Z)^k of the shards are hit. The book's simpler estimate
    (`random=False`) is min(k/Z, 1).

    >>> ragged_fill(2, 8, random=False)
    0.25
    """
    return 1 - ((shards - 1) / shards) ** picks if random else minimum(picks / shards, 1)


def bus_bandwidth(kind: str, volume: Number, size: Number, seconds: Number) -> Number:
    """NCCL's "bus bandwidth": the wire bytes of each chip per second, comparable with a link's rate."""
    return wire_bytes(kind, volume, size) / seconds
