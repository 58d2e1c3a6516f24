"""What a collective really takes: the bytes of the bound, sent through what networks achieve.

`expected_time` has the same shape on every network, with a handful of measured constants:

    T  =  launch + hop · steps  +  √(t · (t + 4·ramp))          t = bytes / (fraction · bandwidth)

`launch` is what an empty message costs, `hop` what each further step of the algorithm adds, `fraction` the part of the
datasheet's bandwidth that long messages reach. The square root is the price of pipelining: cut a message into k pieces
that pass s stages of latency α, and (k + s)(α + t/k) is least for k = √(s·t/α), where it is sα + t + 2√(sα·t). Pieces
stop growing at the size of a buffer, and from there the pipeline costs a constant; hence a root that begins as
2√(ramp·t) and ends as t + 2·ramp. One number, `ramp`, describes the whole way from latency to bandwidth. Bytes that
never leave the chip (its own part of an AllGather) still have to be copied, at `copy` bytes per second.

Libraries change protocol on the way: from flags in every word, quick but wasteful, to whole buffers handed over. Where
a chip's part is longer than `switch` bytes, each step of a ring waits at least `stall` for its buffer, and (stall ·
steps)² stands under the root with the rest: a visible step in measured curves, gone once the wires are the slower.
That is inside a node; between them a step of a ring hands over a whole buffer in `stall`, or, where quicker, the
bytes go with a flag beside every word, at a rate of `flags`: the least of the two, in addition to the quick protocol's
hops. Rings over hundreds of nodes, as those of ZeRO-3, wait for it; trees have few steps.

The bytes are those of the algorithms that libraries use, never fewer than the bound's:

- *ring*: one flat ring through all chips. Each link, inside a node or between nodes, carries V(N−1)/N, twice for an
  AllReduce. Between M nodes the bound needs only V(M−1)/M: half as much for two nodes.
- *tree* (AllReduce between nodes): V up and V down at inner nodes, but only V for exactly two nodes, which is why
  results
  on two nodes flatter.
- *in_network* (NVLS): switches add and multicast, so a chip sends and receives V + V/N.
- *direct*: AllToAll and permute, every pair at once.
- *one_shot*, *two_shot*: the kernels of inference engines, in which every chip reads all others' arrays, or a
  ReduceScatter and an AllGather without the ring's steps.

An AllReduce takes the fastest of those allowed. On a torus the bound's own algorithm is what runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dragonscale.errors import unknown
from dragonscale.physics.collectives.cost import BOOK, KINDS, Options, collective_time, stages
from dragonscale.physics.collectives.group import Group, Rings, Span, Stacked, Switches, Wide, present
from dragonscale.physics.numbers import Number, is_symbolic, log2, maximum, minimum, sqrt, where


@dataclass(frozen=True)
class Path:
    """One algorithm on one kind of wire: seconds, bytes per second, and a fraction of the datasheet's bandwidth."""

    launch: Number = 0.0
    hop: Number = 0.0
    fraction: Number = 1.0
    ramp: Number = 0.0
    copy: Number | None = None
    stall: Number = 0.0
    switch: Number = 0.0
    flags: Number | None = None

    def seconds(self, steps: Number, sending: Number, staying: Number = 0.0) -> Number:
        """`sending` is the seconds at full bandwidth, `staying` the bytes that only move inside the chip."""
        moving = sending / self.fraction
        copied = staying / self.copy if self.copy else 0.0
        return self.launch + self.hop * steps + copied + sqrt(moving * (moving + 4 * self.ramp))


@dataclass(frozen=True)
class NetworkTier:
    """How one network performs: its algorithms by name. `egress` caps what the library gets out of one node, bytes/s;
    `halves` says whether an AllReduce over just two nodes sends every byte once, by a tree that its channels keep up
    with."""

    name: str
    title: str
    paths: Mapping[str, Path]
    implementations: Mapping[str, Mapping[str, Path]] = field(default_factory=dict)
    egress: Number | None = None
    halves: bool = True


@dataclass(frozen=True)
class NetworkProfile:
    """The tiers of one system: inside the node, between nodes (`rail` when only one chip of each node takes part),
    along a torus, and across the data centre; and whose kernels run (`nccl`, or an implementation some tier knows)."""

    domain: NetworkTier
    fabric: NetworkTier
    rail: NetworkTier
    torus: NetworkTier
    wide: NetworkTier
    implementation: str = "nccl"

    def path(self, tier: NetworkTier, name: str) -> Path:
        """An algorithm of a tier, as this profile's implementation does it where it has its own."""
        return tier.implementations.get(self.implementation, {}).get(name) or tier.paths[name]

    def own(self, name: str) -> Path | None:
        """An algorithm that only this profile's implementation has, inside a node."""
        return self.domain.implementations.get(self.implementation, {}).get(name)


def expected_time(kind: str, volume: Number, group: Group, profile: NetworkProfile, options: Options = BOOK) -> Number:
    """Seconds that one collective is expected to take.

    `volume`, `kind` and `options` mean what they mean for `collective_time`; the result is never below the bandwidth
    term that it gives with `Options(exact=True)`.
    """
    if kind not in KINDS:
        raise unknown("collective", kind, KINDS)
    if isinstance(group, Stacked):
        parts = stages(kind, volume, group)
        return sum(times * expected_time(what, size, on, profile, options) for times, what, size, on in parts)
    if isinstance(group, Switches):
        seconds = _under_switches(kind, volume, group, profile, options) + _far(kind, group)
    else:
        seconds = _as_bound(kind, volume, group, profile, options)
    return seconds if is_symbolic(group.size) else where(group.size <= 1, 0.0, seconds)


def shared_profile(profile: NetworkProfile, group: Group) -> NetworkProfile:
    """A library leaves a large node through few of its cards for one group; groups side by side each use their own."""
    egress = profile.fabric.egress
    if egress is None or not isinstance(group, Switches):
        return profile
    side_by_side = minimum(group.stride, group.levels[0].degree)
    return replace(profile, fabric=replace(profile.fabric, egress=egress * side_by_side))


def _as_bound(kind: str, volume: Number, group: Rings | Wide, profile: NetworkProfile, options: Options) -> Number:
    """Tori and data-centre networks: the bound's algorithm and hops, at the bandwidth that is reached."""
    bound = collective_time(kind, volume, group, replace(options, exact=True))
    tier = profile.torus if isinstance(group, Rings) else profile.wide
    ring = "all_reduce" if kind == "all_reduce" and "all_reduce" in tier.paths else "ring"
    path = profile.path(tier, "direct" if kind in ("all_to_all", "permute") else ring)
    return path.seconds(0, bound.bandwidth) + bound.latency


@dataclass(frozen=True)
class _Layout:
    """A group under switches: `size` chips in `nodes` nodes, `local` of them in each."""

    spans: list[Span]
    size: Number
    nodes: Number
    local: Number
    domain: NetworkTier
    fabric: NetworkTier
    rail: NetworkTier

    @property
    def across(self) -> Number:
        """1 where the group spans several nodes, else 0."""
        return where(self.nodes > 1, 1, 0)

    def between(self, name: str, quantity: str) -> Number:
        """A constant of the network between nodes: the rail's where only one chip of each node takes part."""
        fabric, rail = getattr(self.fabric.paths[name], quantity), getattr(self.rail.paths[name], quantity)
        return fabric if fabric == rail else where(self.local > 1, fabric, rail)

    def link(self, place: int, kind: str = "") -> Number:
        """Bytes per second of one child's link on a tier, as far as the group and the library can use it."""
        rate = self.spans[place].rate(kind)
        return minimum(rate, self.fabric.egress) if place == 1 and self.fabric.egress is not None else rate

    def sending(self, inside: Number, between: Number, path: Path, across: str = "ring") -> Number:
        """Seconds that the slowest tier needs when each chip's link carries `inside` bytes and each node's `between`;
        over the fraction of `path` inside, and of the network's `across` between nodes."""
        slowest: Number = 0.0
        for place, span in enumerate(self.spans):
            fraction = path.fraction if place == 0 else self.between(across, "fraction")
            carried = _spanned(span.fan) * (inside if place == 0 else between)
            slowest = maximum(slowest, carried * span.sharing / (fraction * self.link(place)))
        return slowest

    def total(self, path: Path, inner: Number, outer: Number, moving: Number, part: Number = 0.0) -> Number:
        """Seconds for `inner` steps inside nodes and `outer` between them; `part` is the bytes that stay on a chip."""
        across = self.across
        between = self.between("ring", "launch") + self.between("ring", "hop") * outer
        lead = path.launch + path.hop * inner + across * between
        ramp = path.ramp + across * self.between("ring", "ramp")
        copied = part / path.copy if path.copy else 0.0
        stalled = where(part > path.switch, (1 - across) * path.stall * inner, 0.0) if path.switch else 0.0
        return lead + copied + sqrt(moving * (moving + 4 * ramp) + stalled**2)

    def handed_over(self, path: Path, inner: Number, outer: Number, carried: Number, moving: Number) -> Number:
        """What a ring between nodes takes longer by whole buffers, or by flags in the wires, whichever is quicker."""
        stall, rate = self.between("ring", "stall"), self.fabric.paths["ring"].flags
        if rate is None:
            return 0.0
        buffers = (stall - self.between("ring", "hop")) * outer + (path.stall - path.hop) * inner
        flags = maximum(carried / rate - moving, 0.0)
        return where(stall > 0, self.across * minimum(maximum(buffers, 0.0), flags), 0.0)


def _spanned(fan: Number) -> Number:
    """1 where a tier has more than one child in the group: a `Piecewise` for symbols, whose tiers may be empty."""
    return where(fan > 1, 1, 0) if is_symbolic(fan) else present(fan)


def _layout(group: Switches, profile: NetworkProfile) -> _Layout:
    spans = group.spans
    nodes = spans[1].children if len(spans) > 1 else 1
    return _Layout(spans, group.size, nodes, group.size / nodes, profile.domain, profile.fabric, profile.rail)


def _ways(
    kind: str, volume: Number, group: Switches, layout: _Layout, profile: NetworkProfile, options: Options
) -> dict[str, Number]:
    """Seconds of each algorithm that a library chooses from."""
    ways = {"ring": _ring(kind, volume, layout, profile)}
    if kind == "all_reduce" and len(layout.spans) > 1:
        ways["tree"] = _tree(volume, layout, profile, "ring")
    if kind == "all_reduce" and options.in_network and group.levels[0].reduces and "in_network" in profile.domain.paths:
        ways["tree whose switches add (NVLS)"] = _tree(volume, layout, profile, "in_network")
    return ways


def expected_by(kind: str, volume: float, group: Group, profile: NetworkProfile, options: Options = BOOK) -> str:
    """What `expected_time` assumes: the algorithm, and on which wires its constants were measured."""
    way, tiers = "the bound's own algorithm", [profile.torus if isinstance(group, Rings) else profile.wide]
    if isinstance(group, Stacked):
        return "stage by stage, over each network as it was measured"
    if isinstance(group, Switches):
        layout = _layout(group, profile)
        ways = _ways(kind, volume, group, layout, profile, options)
        pairs = kind in ("all_to_all", "permute")
        way = "every pair at once" if pairs else f"by a {min(ways, key=lambda name: float(ways[name]))}"
        adds = group.levels[0].reduces and "in_network" in profile.domain.paths
        way += " without NVLS" * (kind == "all_reduce" and adds and not options.in_network)
        crossed = [float(span.fan) > 1 for span in layout.spans]
        tiers = [*[profile.domain] * crossed[0], *[profile.fabric] * any(crossed[1:])]
    known = " and ".join(tier.title for tier in tiers if not tier.name.startswith("generic"))
    return f"{way}, at the rates measured on {known}" if known else f"{way}, at the rates of networks like this one"


def _under_switches(kind: str, volume: Number, group: Switches, profile: NetworkProfile, options: Options) -> Number:
    layout = _layout(group, profile)
    if kind in ("all_to_all", "permute"):
        return _direct(kind, volume, group, layout, profile, options)
    ways = _ways(kind, volume, group, layout, profile, options)
    if kind != "all_reduce":
        return ways["ring"]
    usual = minimum(*ways.values()) if len(ways) > 1 else ways["ring"]
    own = [_shot(name, volume, layout, profile) for name in ("one_shot", "two_shot") if profile.own(name)]
    extra = profile.own("library")
    usual = usual + extra.seconds(0, 0.0, volume) if extra else usual
    return where(layout.nodes > 1, usual, minimum(usual, *own)) if own else usual


_MEASURED = 3
"""Tiers that profiles know: node, leaf and spine."""


def _far(kind: str, group: Switches) -> Number:
    """Latency of the tiers that no profile has measured, a WAN between sites: that of the bound."""
    passes = 2 if kind == "all_reduce" else 1
    return sum(passes * span.level.latency * log2(span.fan) for span in group.spans[_MEASURED:])


def _ring(kind: str, volume: Number, layout: _Layout, profile: NetworkProfile) -> Number:
    size = layout.size
    passes = 2 if kind == "all_reduce" else 1
    path = profile.path(layout.domain, "ring")
    carried = passes * volume * (size - 1) / size
    outer = passes * (size - 1) * layout.nodes / size
    inner = passes * (size - 1) - layout.across * outer
    moving = layout.sending(carried, carried, path)
    seconds = layout.total(path, inner, outer, moving, volume / size)
    return seconds + layout.handed_over(path, inner, outer, carried, moving)


def _tree(volume: Number, layout: _Layout, profile: NetworkProfile, name: str) -> Number:
    """Up and down a tree of nodes; inside a node along a chain, or (`in_network`) by its switches."""
    local = layout.local
    path = profile.path(layout.domain, name)
    inside = volume * (1 + 1 / local) if name == "in_network" else 2 * volume
    inner = 0 if name == "in_network" else 2 * (local - 1)
    sent = minimum(layout.nodes - 1, 2) if layout.fabric.halves else 2
    moving = layout.sending(inside, volume * sent, path)
    seconds = layout.total(path, inner, 2 * log2(maximum(layout.nodes, 1)), moving)
    if name == "in_network":
        return seconds
    return where(layout.nodes > 1, seconds, _ring("all_reduce", volume, layout, profile))


def _shot(name: str, volume: Number, layout: _Layout, profile: NetworkProfile) -> Number:
    path = profile.own(name)
    assert path is not None
    size = layout.size
    sent = volume * (size - 1) if name == "one_shot" else 2 * volume * (size - 1) / size
    return path.seconds(size - 1, sent / layout.link(0), volume)


def _direct(
    kind: str, volume: Number, group: Switches, layout: _Layout, profile: NetworkProfile, options: Options
) -> Number:
    """Every pair at once: the bound on links of the bandwidth that is reached."""
    path = profile.path(layout.domain, "direct")
    between = profile.fabric.implementations.get(profile.implementation, {}).get("direct")
    outside = between.fraction if between else layout.between("ring", "fraction")
    fractions = [path.fraction, *[outside] * (len(group.levels) - 1)]
    levels = tuple(
        replace(level, bandwidth=layout.link(place, kind) * fractions[place], peers=0, bridge=0.0)
        for place, level in enumerate(group.levels)
    )
    moving = collective_time(kind, volume, replace(group, levels=levels), replace(options, exact=True)).bandwidth
    staying = volume * options.filled / group.size**2 if kind == "all_to_all" else 0.0
    inner = layout.size - 1 if kind == "all_to_all" else 1
    if between is None:
        return layout.total(path, inner, 1, moving, staying)
    whole = replace(path, launch=path.launch + layout.across * between.launch, fraction=1.0)
    return whole.seconds(inner, moving, staying)
