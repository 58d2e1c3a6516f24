"""The expected time of a collective: the bytes of its algorithm, at the rates that networks achieve.

`expected_time` has the same form on every network, with a handful of measured constants:

    T  =  launch + hop · steps  +  √(t · (t + 4·ramp))          t = bytes / (fraction · bandwidth)

`launch` is the time of an empty message, `hop` what each further step of the algorithm adds, `fraction` the fraction of
the datasheet's bandwidth that long messages reach. The square root is the price of pipelining: cut a message into k
chunks that pass s stages of latency α, and (k + s)(α + t/k) is least for k = √(s·t/α), where it is sα + t + 2√(sα·t).
Chunks stop growing at the size of a buffer, and from there the pipeline costs a constant; hence a root that begins as
2√(ramp·t) and ends as t + 2·ramp. One number, `ramp`, describes the whole range from latency to bandwidth. Bytes that
never leave the chip (its shard of an AllGather) still have to be copied, at `copy` bytes per second.

Libraries switch protocols as messages grow (NCCL: from LL and LL128 to Simple): from flags in every word, quick but
wasteful, to whole buffers handed over. Where a chip's shard is longer than `switch` bytes, each step of a ring waits at
least `stall` for its buffer, and (stall · steps)² stands under the root with the rest: a visible step in measured
curves, gone once the wires are slower. That is inside a node. Between nodes a step of a ring hands over a whole buffer
in `stall` or, where quicker, the bytes go with a flag beside every word, at a rate of `flags`: the smaller of the two
is added to the quick protocol's hops. Rings over hundreds of nodes, as those of ZeRO-3, wait for it; trees have few
steps.

The bytes are those of the algorithms that libraries use, never fewer than the bound's:

- *ring*: one flat ring through all chips. Each link, inside a node or between nodes, carries V(N−1)/N, twice for an
  AllReduce. Between M nodes the bound needs only V(M−1)/M: half as much for two nodes.
- *tree* (AllReduce between nodes): V up and V down at inner nodes, but only V for exactly two nodes, which is why
  benchmarks on two nodes flatter.
- *in_network* (NVLS): switches add and multicast, so a chip sends and receives V + V/N.
- *direct*: AllToAll and permute, every pair at once.
- *one_shot*, *two_shot*: AllReduce kernels of inference engines, in which every chip reads all others' arrays, or a
  ReduceScatter and an AllGather without the ring's steps.

An AllReduce takes the fastest of those allowed. On a torus the bound's own algorithm is what runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dragonscale.errors import unknown
from dragonscale.physics.collectives.cost import BOOK, KINDS, Options, collective_time, passes_of, stages
from dragonscale.physics.collectives.group import Group, Rings, Span, Stacked, Switches, Wide, present
from dragonscale.physics.hardware.chip import Level
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
        """Time of `steps` steps that send for `sending` seconds at full bandwidth, where `staying` bytes move only
        inside the chip."""
        moving = sending / self.fraction
        copied = staying / self.copy if self.copy else 0.0
        return self.launch + self.hop * steps + copied + sqrt(moving * (moving + 4 * self.ramp))


@dataclass(frozen=True)
class NetworkTier:
    """How one network performs: its algorithms by name. `egress` caps the bytes per second that the library gets out of
    one node; `halves` says whether an AllReduce over just two nodes sends every byte once, by a tree that its channels
    keep up with."""

    name: str
    title: str
    paths: Mapping[str, Path]
    implementations: Mapping[str, Mapping[str, Path]] = field(default_factory=dict)
    egress: Number | None = None
    halves: bool = True

    @property
    def is_generic(self) -> bool:
        """Whether this is the profile of networks that nobody has measured."""
        return self.name.startswith("generic")


@dataclass(frozen=True)
class NetworkProfile:
    """The tiers of one system: inside the node, between nodes (`rail` when only one chip of each node takes part),
    along a torus, and across the data centre; and whose kernels run (`nccl`, or an implementation with
    measurements)."""

    domain: NetworkTier
    fabric: NetworkTier
    rail: NetworkTier
    torus: NetworkTier
    wide: NetworkTier
    implementation: str = "nccl"

    def path(self, tier: NetworkTier, name: str) -> Path:
        """An algorithm's constants on a tier: those of this profile's implementation if it was measured, else
        NCCL's."""
        return tier.implementations.get(self.implementation, {}).get(name) or tier.paths[name]

    def custom_path(self, name: str) -> Path | None:
        """An algorithm inside a node as this profile's implementation has it; None where it has none of this name."""
        return self.domain.implementations.get(self.implementation, {}).get(name)


def expected_time(kind: str, volume: Number, group: Group, profile: NetworkProfile, options: Options = BOOK) -> Number:
    """The expected seconds of one collective.

    `volume`, `kind` and `options` are those of `collective_time`; the result is never below the bandwidth term that it
    gives with `Options(exact=True)`.
    """
    if kind not in KINDS:
        raise unknown("collective", kind, KINDS)
    if isinstance(group, Stacked):
        seconds: Number = 0
        for stage in stages(kind, volume, group):
            seconds = seconds + stage.times * expected_time(stage.kind, stage.volume, stage.group, profile, options)
        return seconds
    if isinstance(group, Switches):
        seconds = _under_switches(kind, volume, group, profile, options) + _unmeasured_latency(kind, group)
    else:
        seconds = _as_bound(kind, volume, group, profile, options)
    if is_symbolic(group.size):
        return seconds
    return where(group.size <= 1, 0.0, seconds)


def shared_profile(profile: NetworkProfile, group: Group) -> NetworkProfile:
    """The profile for groups side by side: one group leaves a large node through few of its NICs, each group through
    NICs of its own."""
    egress = profile.fabric.egress
    if egress is None or not isinstance(group, Switches):
        return profile
    side_by_side = minimum(group.stride, group.levels[0].degree)
    return replace(profile, fabric=replace(profile.fabric, egress=egress * side_by_side))


def _as_bound(kind: str, volume: Number, group: Rings | Wide, profile: NetworkProfile, options: Options) -> Number:
    """Tori and data-centre networks: the bound's algorithm and hops, at the bandwidth that is reached."""
    bound = collective_time(kind, volume, group, replace(options, exact=True))
    tier = profile.torus if isinstance(group, Rings) else profile.wide
    if kind in ("all_to_all", "permute"):
        algorithm = "direct"
    elif kind == "all_reduce" and "all_reduce" in tier.paths:
        algorithm = "all_reduce"
    else:
        algorithm = "ring"
    return profile.path(tier, algorithm).seconds(0, bound.bandwidth) + bound.latency


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
        if fabric == rail:
            return fabric
        return where(self.local > 1, fabric, rail)

    def link(self, tier: int, kind: str = "") -> Number:
        """Bytes per second of one child's link on a tier, as far as the group and the library can use it."""
        rate = self.spans[tier].rate(kind)
        if tier == 1 and self.fabric.egress is not None:
            return minimum(rate, self.fabric.egress)
        return rate

    def sending(self, inside: Number, between: Number, path: Path) -> Number:
        """Seconds that the slowest tier needs when each chip's link carries `inside` bytes and each node's `between`,
        at the fraction of the bandwidth that `path` reaches inside, and rings reach between nodes."""
        slowest: Number = 0.0
        for tier, span in enumerate(self.spans):
            if tier == 0:
                carried, fraction = inside, path.fraction
            else:
                carried, fraction = between, self.between("ring", "fraction")
            carried = _is_spanned(span.fan) * carried
            slowest = maximum(slowest, carried * span.sharing / (fraction * self.link(tier)))
        return slowest

    def total(self, path: Path, inner: Number, outer: Number, moving: Number, staying: Number = 0.0) -> Number:
        """Seconds of an algorithm with `inner` steps inside nodes and `outer` between them, whose slowest tier sends
        for `moving` seconds; `staying` bytes do not leave a chip. The module's formula, with the stall under the
        root."""
        across = self.across
        between = self.between("ring", "launch") + self.between("ring", "hop") * outer
        fixed = path.launch + path.hop * inner + across * between
        ramp = path.ramp + across * self.between("ring", "ramp")
        copied = staying / path.copy if path.copy else 0.0
        stalled: Number = 0.0
        if path.switch:  # the bytes from which the library hands over whole buffers
            stalled = where(staying > path.switch, (1 - across) * path.stall * inner, 0.0)
        return fixed + copied + sqrt(moving * (moving + 4 * ramp) + stalled**2)

    def handover(self, path: Path, inner: Number, outer: Number, carried: Number, moving: Number) -> Number:
        """Extra seconds of a ring between nodes by whole buffers, or by flags beside the words, whichever is
        quicker."""
        stall, flag_rate = self.between("ring", "stall"), self.fabric.paths["ring"].flags
        if flag_rate is None:
            return 0.0
        by_buffers = (stall - self.between("ring", "hop")) * outer + (path.stall - path.hop) * inner
        by_flags = maximum(carried / flag_rate - moving, 0.0)
        return where(stall > 0, self.across * minimum(maximum(by_buffers, 0.0), by_flags), 0.0)


def _is_spanned(fan: Number) -> Number:
    """1 where a tier has more than one child in the group: a `Piecewise` for symbols, whose tiers may be empty."""
    if is_symbolic(fan):
        return where(fan > 1, 1, 0)
    return present(fan)


def _layout(group: Switches, profile: NetworkProfile) -> _Layout:
    spans = group.spans
    nodes = spans[1].children if len(spans) > 1 else 1
    return _Layout(spans, group.size, nodes, group.size / nodes, profile.domain, profile.fabric, profile.rail)


def _algorithms(
    kind: str, volume: Number, group: Switches, layout: _Layout, profile: NetworkProfile, options: Options
) -> dict[str, Number]:
    """Seconds of each algorithm that a library chooses from."""
    seconds = {"ring": _ring(kind, volume, layout, profile)}
    if kind == "all_reduce" and len(layout.spans) > 1:
        seconds["tree"] = _tree(volume, layout, profile, "ring")
    if kind == "all_reduce" and options.in_network and _switches_add(group, profile):
        seconds["tree whose switches add (NVLS)"] = _tree(volume, layout, profile, "in_network")
    return seconds


def _switches_add(group: Switches, profile: NetworkProfile) -> bool:
    """Whether the switches of a node can add, and how fast they do so was measured."""
    return group.levels[0].reduces and "in_network" in profile.domain.paths


def expected_by(kind: str, volume: float, group: Group, profile: NetworkProfile, options: Options = BOOK) -> str:
    """The assumptions of `expected_time` in words: the algorithm, and the networks its constants were measured on."""
    if isinstance(group, Stacked):
        return "stage by stage, over each network as it was measured"
    if isinstance(group, Switches):
        layout = _layout(group, profile)
        algorithm = "every pair at once"
        if kind not in ("all_to_all", "permute"):
            seconds = _algorithms(kind, volume, group, layout, profile, options)
            algorithm = f"by a {min(seconds, key=lambda name: float(seconds[name]))}"
        if kind == "all_reduce" and _switches_add(group, profile) and not options.in_network:
            algorithm += " without NVLS"
        is_crossed = [float(span.fan) > 1 for span in layout.spans]
        tiers = [profile.domain] if is_crossed[0] else []
        if any(is_crossed[1:]):
            tiers.append(profile.fabric)
    else:
        algorithm = "the bound's own algorithm"
        tiers = [profile.torus if isinstance(group, Rings) else profile.wide]
    measured = [tier.title for tier in tiers if not tier.is_generic]
    if not measured:
        return f"{algorithm}, at the rates of networks like this one"
    return f"{algorithm}, at the rates measured on {' and '.join(measured)}"


def _under_switches(kind: str, volume: Number, group: Switches, profile: NetworkProfile, options: Options) -> Number:
    """Seconds under tiers of switches, by the fastest algorithm that the library has for the collective."""
    layout = _layout(group, profile)
    if kind in ("all_to_all", "permute"):
        return _direct(kind, volume, group, layout, profile, options)
    seconds = _algorithms(kind, volume, group, layout, profile, options)
    if kind != "all_reduce":
        return seconds["ring"]
    by_library = minimum(*seconds.values())
    overhead = profile.custom_path("library")  # of an engine around NCCL's call: its copy of the array
    if overhead:
        by_library = by_library + overhead.seconds(0, 0.0, volume)
    custom = []
    for name in ("one_shot", "two_shot"):
        if path := profile.custom_path(name):
            custom.append(_custom_all_reduce(name, path, volume, layout))
    if not custom:
        return by_library
    # engines' kernels read their peers' memory, which only chips of one node can
    return where(layout.nodes > 1, by_library, minimum(by_library, *custom))


# Tiers whose latencies profiles measure: node, leaf and spine.
_MEASURED_TIERS = 3


def _unmeasured_latency(kind: str, group: Switches) -> Number:
    """The bound's latency of the tiers that no profile has measured, such as a WAN between sites."""
    spans = group.spans[_MEASURED_TIERS:]
    return sum(passes_of(kind) * span.level.latency * log2(span.fan) for span in spans)


def _ring(kind: str, volume: Number, layout: _Layout, profile: NetworkProfile) -> Number:
    """One flat ring: N−1 steps for each pass, of which as many cross between nodes as there are nodes."""
    size, passes = layout.size, passes_of(kind)
    path = profile.path(layout.domain, "ring")
    carried = passes * volume * (size - 1) / size
    outer = passes * (size - 1) * layout.nodes / size
    inner = passes * (size - 1) - layout.across * outer
    moving = layout.sending(carried, carried, path)
    seconds = layout.total(path, inner, outer, moving, volume / size)
    return seconds + layout.handover(path, inner, outer, carried, moving)


def _tree(volume: Number, layout: _Layout, profile: NetworkProfile, name: str) -> Number:
    """Up and down a tree of nodes; inside a node along a chain, or (`in_network`) by its switches."""
    local = layout.local
    path = profile.path(layout.domain, name)
    if name == "in_network":
        inside, inner = volume * (1 + 1 / local), 0
    else:
        inside, inner = 2 * volume, 2 * (local - 1)
    # each node sends V up and V down; of two nodes each sends V once
    sent = minimum(layout.nodes - 1, 2) if layout.fabric.halves else 2
    moving = layout.sending(inside, volume * sent, path)
    seconds = layout.total(path, inner, 2 * log2(maximum(layout.nodes, 1)), moving)
    if name == "in_network":
        return seconds
    return where(layout.nodes > 1, seconds, _ring("all_reduce", volume, layout, profile))


def _custom_all_reduce(name: str, path: Path, volume: Number, layout: _Layout) -> Number:
    """An inference engine's AllReduce: `one_shot` reads N−1 whole arrays, `two_shot` their shards, twice."""
    size = layout.size
    sent = volume * (size - 1) if name == "one_shot" else 2 * volume * (size - 1) / size
    return path.seconds(size - 1, sent / layout.link(0), volume)


def _direct(
    kind: str, volume: Number, group: Switches, layout: _Layout, profile: NetworkProfile, options: Options
) -> Number:
    """Every pair at once: the bound on links of the bandwidth that is reached."""
    path = profile.path(layout.domain, "direct")
    between = profile.fabric.implementations.get(profile.implementation, {}).get("direct")
    outer_fraction = between.fraction if between else layout.between("ring", "fraction")
    # the same network with the bandwidths that messages reach
    levels: list[Level] = []
    for tier, level in enumerate(group.levels):
        fraction = path.fraction if tier == 0 else outer_fraction
        levels.append(replace(level, bandwidth=layout.link(tier, kind) * fraction, peers=0, bridge=0.0))
    reached = replace(group, levels=tuple(levels))
    moving = collective_time(kind, volume, reached, replace(options, exact=True)).bandwidth
    if kind == "all_to_all":
        steps, staying = layout.size - 1, volume * options.filled / group.size**2  # a chip keeps its own chunk
    else:
        steps, staying = 1, 0.0
    if between is None:
        return layout.total(path, steps, 1, moving, staying)
    # an implementation with constants of its own between nodes: one launch there, its fraction already in `moving`
    whole = replace(path, launch=path.launch + layout.across * between.launch, fraction=1.0)
    return whole.seconds(steps, moving, staying)
