"""Bounds on the time of a collective: a bandwidth term and a latency term, from datasheet numbers alone.

`volume` is always V, the bytes of the whole array as one group sees it: what each chip holds after an AllGather, before
a ReduceScatter, before and after an AllReduce; for an AllToAll, the sum over the chips; for a permute, what each chip
sends. If other mesh axes split the array too, it is already divided by them.

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
    """How a collective is done and counted. `exact` keeps the (N−1)/N that the book drops to first order: with it the
    bandwidth term is a true lower bound, without it the book's figure (lines of a torus keep it either way). `one_way`
    sends around a ring in one direction only; `in_network` lets switches add where they can (SHARP, NVLS); `filled` is
    the fraction of an AllToAll's chunks that are not empty (a ragged AllToAll)."""

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
        parts = [collective_time(s.kind, s.volume, s.group, options) * s.times for s in stages(kind, volume, group)]
        return sum(parts[1:], parts[0])
    formulas: Callable[..., Seconds] = {Rings: _on_rings, Switches: _under_switches, Wide: _over_dcn}[type(group)]
    cost = formulas(kind, volume, group, options)
    if is_symbolic(group.size):
        return cost
    is_single = group.size <= 1  # a chip alone sends nothing
    return Seconds(where(is_single, 0.0, cost.bandwidth), where(is_single, 0.0, cost.latency))


def passes_of(kind: str) -> int:
    """How often the array crosses the network: an AllReduce is a ReduceScatter and an AllGather."""
    return 2 if kind == "all_reduce" else 1


def _on_rings(kind: str, volume: Number, group: Rings, options: Options) -> Seconds:
    """The book's ring formulas: V·(N−1)/N bytes through the links into one chip, all axes at once."""
    size, axes = group.size, group.axes
    if kind == "permute":
        return Seconds(volume / group.link, group.hop)
    # one way round, the farthest chunk crosses all links of a ring but one
    hops = sum(axis.size - 1 for axis in axes) if options.one_way else group.hops
    if kind == "all_to_all":
        return Seconds(_all_to_all_on_rings(volume, group, options), group.hop * hops)
    links: Number = len(axes) if options.one_way else group.links
    if options.one_way or options.exact:
        received = (size - 1) / size
    else:
        # to first order a ring receives all of V; a line keeps its (N−1)/N, as its end chips have one link
        received = 1 - (1 - product(axis.closed for axis in axes)) / size
    passes = passes_of(kind)
    return Seconds(passes * volume * received / (group.link * positive(links)), passes * group.hop * hops)


def _all_to_all_on_rings(volume: Number, group: Rings, options: Options) -> Number:
    """The bisection of the worst axis: V/4 each way over the links that cross its middle."""
    filled = volume * options.filled
    if options.one_way:
        # every chunk travels d = 1 … N−1 links the same way: V/N² · N(N−1)/2 bytes over each link
        return filled * (group.size - 1) / (2 * group.size * group.link)
    seconds: list[Number] = []
    for axis in group.axes:
        rows = group.size / axis.size  # lines of chips that run along the axis, each crossing its middle
        seconds.append(present(axis.size) * filled / 4 / (rows * positive(axis.links) * group.link))
    return maximum(*seconds)


def _under_switches(kind: str, volume: Number, group: Switches, options: Options) -> Seconds:
    """The slowest tier's bandwidth term, and the latencies of log2(fan) steps on every tier."""
    bandwidth: Number = 0.0
    latency: Number = 0.0
    for tier, span in enumerate(group.spans):
        is_used = present(span.fan)
        switches_add = kind == "all_reduce" and options.in_network and span.level.reduces
        passes = 1 if switches_add else passes_of(kind)
        # the fraction of V that crosses the link of one child
        if switches_add or kind == "permute":
            crossing = is_used
        elif kind == "all_to_all":
            crossing = _leaving(span, tier, options) * options.filled
        else:
            crossing = ((span.fan - 1) / span.fan if options.exact else is_used) * passes
        bandwidth = maximum(bandwidth, volume * crossing * span.sharing / span.rate(kind))
        latency = latency + span.level.latency * (log2(span.fan) * passes)
    return Seconds(bandwidth, latency)


def _leaving(span: Span, tier: int, options: Options) -> Number:
    """The fraction of an AllToAll's bytes that leaves one child: what is bound for the child's neighbours in a node,
    and on higher tiers for any other child. To first order, all that the child holds."""
    if not options.exact:
        return present(span.fan) / span.children
    others = span.fan - 1 if tier == 0 else span.children - 1
    return others / span.children**2


def _over_dcn(kind: str, volume: Number, group: Wide, options: Options) -> Seconds:
    crossing = (group.size - 1) / group.size if options.exact else 1
    if kind == "permute":
        return Seconds(volume / group.egress, group.latency)
    if kind == "all_to_all":
        return Seconds(volume * options.filled / group.size * crossing / group.egress, group.latency)
    passes = passes_of(kind)
    return Seconds(passes * volume * crossing / group.egress, passes * group.latency)


@dataclass(frozen=True)
class Stage:
    """One step of a hierarchical collective: `kind` over `group`, `times` times, on an array of `volume` bytes."""

    times: int
    kind: str
    volume: Number
    group: Group


def stages(kind: str, volume: Number, group: Stacked) -> list[Stage]:
    """A collective over two wirings, hierarchically; the outer wiring only ever carries one chip's shard."""
    inner, outer, shard = group.inner, group.outer, volume / group.inner.size
    if kind == "permute":
        return [Stage(1, kind, volume, outer)]
    if kind == "all_reduce":
        # scatter inside, reduce across, gather inside, which takes as long as the scatter
        return [Stage(2, "reduce_scatter", volume, inner), Stage(1, kind, shard, outer)]
    inside = volume / outer.size if kind == "all_to_all" else volume
    return [Stage(1, kind, inside, inner), Stage(1, kind, shard, outer)]


def wire_bytes(kind: str, volume: Number, size: Number) -> Number:
    """Bytes that each of `size` chips sends (and receives) with the best algorithm on any network, as compilers count.

    >>> wire_bytes("all_gather", 64, 8), wire_bytes("all_reduce", 64, 8), wire_bytes("all_to_all", 64, 8)
    (56.0, 112.0, 7.0)
    """
    others = (size - 1) / size  # the fraction of the array that other chips hold
    sent = {
        "all_gather": others,
        "reduce_scatter": others,
        "all_reduce": 2 * others,
        "all_to_all": others / size,
        "permute": present(size),
    }
    if kind not in sent:
        raise unknown("collective", kind, sent)
    return volume * sent[kind]


def sent_bytes(kind: str, volume: Number, group: Group, options: Options = BOOK) -> Number:
    """`wire_bytes` on a given network: switches that add take each chip's array once where a ring sends it almost
    twice, and a ragged AllToAll sends only the chunks that are not empty."""
    switches_add = isinstance(group, Switches) and group.levels[0].reduces and options.in_network
    if kind == "all_reduce" and switches_add:
        return volume
    filled = options.filled if kind == "all_to_all" else 1
    return wire_bytes(kind, volume, group.size) * filled


def ragged_fill(picks: Number, shards: Number, random: bool = True) -> Number:
    """The fraction of an AllToAll's chunks that are not empty when each token goes to `picks` experts on `shards`
    chips.

    Of `random` picks some fall on the same chip: 1 − ((Z−1)/Z)^k of the shards are hit. The book's simpler estimate
    (`random=False`) is min(k/Z, 1).

    >>> ragged_fill(2, 8, random=False)
    0.25
    """
    if random:
        return 1 - ((shards - 1) / shards) ** picks
    return minimum(picks / shards, 1)


def bus_bandwidth(kind: str, volume: Number, size: Number, seconds: Number) -> Number:
    """NCCL's "bus bandwidth": the wire bytes of each chip per second, comparable with a link's rate."""
    return wire_bytes(kind, volume, size) / seconds
