"""How long one collective takes over mesh axes of a slice, whether bytes or hops decide, and what goes on inside.

The lower bound counts bytes exactly; the book's first-order figure, which drops the (N-1)/N, stands beside it. Inside a
ring the answer is hops and what each link carries; under switches it is a time for each tier.

One message over a torus: from a chip to another, or from all chips to one.
"""

import math
from dataclasses import replace
from typing import ClassVar

import msgspec

from dragonscale.commands.record import Record
from dragonscale.errors import InputError, unknown
from dragonscale.physics.collectives import Group, Rings, Seconds, Stacked, Switches, Wide, gather_time, transfer_time
from dragonscale.physics.collectives.cost import KINDS, Options, bus_bandwidth, collective_time, ragged_fill, sent_bytes
from dragonscale.physics.collectives.profile import expected_by, expected_time
from dragonscale.physics.collectives.profile_file import profile_for
from dragonscale.physics.collectives.ring_steps import (
    all_to_all_piece,
    all_to_all_sends,
    hop_bytes,
    hop_seconds,
    ring_hops,
)
from dragonscale.physics.collectives.tiers import switch_traffic, tier_seconds
from dragonscale.physics.hardware import Chip, Slice, Torus, disjoint_paths, eccentricity, hops, links_of
from dragonscale.physics.sharding.mesh import Mesh, make_mesh, natural_mesh
from dragonscale.physics.units import render

SHORT = {
    "ag": "all_gather",
    "rs": "reduce_scatter",
    "ar": "all_reduce",
    "psum": "all_reduce",
    "a2a": "all_to_all",
    "collectivepermute": "permute",
}

ONE_CHIP = "One chip: nothing travels."

# The first-order figure is told in the headline where it differs by more than print shows.
SAME_TIME = 5e-3


class RingFacts(msgspec.Struct):
    """Inside a collective over one axis of a torus: its hops, what a chip sends in each, and what a
    link carries one way. For an AllToAll a hop carries one piece for one other chip, and `sends`
    counts those passed on for others too."""

    wraps: bool
    hops: float
    hop_bytes: float
    hop_s: float
    link_bytes: float
    sends: float


class TierFacts(msgspec.Struct):
    """One tier of switches: how many of its children take part, its own time, and the bytes that
    enter and leave the switches of one group if they copy and add, each byte passing them once."""

    tier: str
    children: float
    link_bytes_per_s: float
    seconds: float
    ingress_bytes: float
    egress_bytes: float


class CollectiveReport(Record):
    """The bounds, the book's first-order time, what is expected, and what goes on inside."""

    CHARTS: ClassVar[tuple[str, ...]] = ("size",)

    collective: str
    on: str
    mesh: dict[str, int]
    axes: list[str]
    chips: int
    bytes: float
    filled: float
    in_network: bool
    wire_bytes_per_chip: float
    bandwidth_s: float
    latency_s: float
    lower_s: float
    upper_s: float
    book_s: float
    regime: str
    algorithm_bandwidth_bytes_per_s: float
    link_bytes_per_s: float
    bus_bandwidth_bytes_per_s: float
    latency_bound_below_bytes: float
    expected_s: float | None
    ring: RingFacts | None
    tiers: list[TierFacts]
    advice: str
    expected_by: str = ""
    """The algorithm and the measurements that the expected time is of."""
    expected_bus_bandwidth_bytes_per_s: float = 0.0
    ring_s: float | None = None
    """With `in_network`, the lower bound where the chips add and not the switches."""
    array: str = ""
    """The sharded array that the bytes are of, as it was written."""

    @property
    def book_drops(self) -> str:
        """What the book's time leaves out: on a ring or a tier the (N-1)/N, on a line or where hops bind nothing."""
        if math.isclose(self.book_s, self.lower_s, rel_tol=1e-9):
            return "equal here"
        return "without the (N-1)/N"

    def headline(self) -> str:
        size, axes = render(self.bytes, "bytes"), ", ".join(self.axes)
        return f"{self.collective} of {size} over {axes} on {self.on}: {render(self.lower_s, 's')} at best"


def find_kind(name: str) -> str:
    """The collective meant by a name such as `AllGather`, `all-gather` or `ag`."""
    flat = {kind.replace("_", ""): kind for kind in KINDS} | SHORT
    kind = flat.get(name.lower().replace("-", "").replace("_", ""))
    if kind is None:
        raise unknown("collective", name, KINDS)
    return kind


def collective_mesh(chip: Chip, slice_: Slice | None, axes: dict[str, int] | None) -> Mesh:
    """The mesh of a question: as given, or the slice's own axes."""
    if axes:
        return make_mesh(dict(axes), chip, slice_)
    if slice_ is None:
        example = f"{chip.name}:{chip.default_slice or '4x4'}"
        raise InputError(f"{chip.name} alone has no axes; name a slice such as {example}, or a --mesh.")
    return natural_mesh(slice_)


def read_options(size: float, one_way: bool, in_network: bool, filled: float, picks: int | None) -> Options:
    """How the collective is done; `picks` says how many experts each token picks among the `size` chips."""
    if not 0 < filled <= 1:
        raise InputError(f"--filled is {filled}; it is a part of the whole, above 0 and at most 1.")
    if picks is not None and picks < 1:
        raise InputError(f"--picks is {picks}; a token picks at least one expert.")
    part = filled if picks is None else float(ragged_fill(picks, size))
    return Options(exact=True, one_way=one_way, in_network=in_network, filled=part)


def check_options(kind: str, mesh: Mesh, options: Options) -> None:
    """Refuse options that a collective on such a network would ignore."""
    torus = mesh.chip is not None and isinstance(mesh.chip.network, Torus)
    if float(options.filled) < 1 and kind != "all_to_all":
        raise InputError(f"--filled and --picks are of an AllToAll's pieces; leave them out of {kind}.")
    if options.one_way and not torus:
        raise InputError(
            "--one-way is the direction around rings of a torus, and these chips are under switches; leave it out."
        )
    if options.in_network and (torus or kind != "all_reduce"):
        why = "a torus has no switches" if torus else f"{kind} adds nothing or leaves it in parts"
        raise InputError(f"--in-network lets switches add up an AllReduce, and {why}; leave it out.")


def collective_report(
    kind: str, volume: float, axes: tuple[str, ...], mesh: Mesh, options: Options, on: str
) -> CollectiveReport:
    """The exact bound, the book's first-order time, the expectation of an efficiency profile, and the inside."""
    assert mesh.chip is not None
    check_options(kind, mesh, options)
    group, size = mesh.group(axes), mesh.size(*axes)
    # with the (N-1)/N that the book's first-order time drops
    true = collective_time(kind, volume, group, replace(options, exact=True))
    lower, tiers = float(true.lower), _tier_facts(kind, volume, group, options)
    profile = profile_for(mesh.chip)
    expected = float(expected_time(kind, volume, group, profile, options))
    # the time if the chips added and not the switches
    ring_s = None
    if options.in_network:
        ring_s = float(collective_time(kind, volume, group, replace(options, in_network=False)).lower)
    report = CollectiveReport(
        collective=kind,
        on=on,
        mesh={name: int(length) for name, length in mesh.axes.items()},
        axes=list(axes),
        chips=int(size),
        bytes=volume,
        filled=float(options.filled),
        in_network=options.in_network,
        wire_bytes_per_chip=float(sent_bytes(kind, volume, group, options)),
        bandwidth_s=float(true.bandwidth),
        latency_s=float(true.latency),
        lower_s=lower,
        upper_s=float(true.upper),
        book_s=float(collective_time(kind, volume, group, replace(options, exact=False)).lower),
        regime=true.regime,
        algorithm_bandwidth_bytes_per_s=volume / lower if lower else 0.0,
        link_bytes_per_s=_link_rate(group, tiers, options),
        bus_bandwidth_bytes_per_s=float(bus_bandwidth(kind, volume, size, lower)) if lower else 0.0,
        # The bandwidth term grows with the bytes and the latency does not: here both are equal.
        latency_bound_below_bytes=float(true.latency * volume / true.bandwidth) if true.bandwidth else 0.0,
        expected_s=expected,
        ring=_ring_facts(kind, volume, group, true, options),
        tiers=tiers,
        advice="",
        expected_by=expected_by(kind, volume, group, profile, options),
        expected_bus_bandwidth_bytes_per_s=float(bus_bandwidth(kind, volume, size, expected)) if expected else 0.0,
        ring_s=ring_s,
    )
    report.advice = _advice(report)
    return report


def _link_rate(group: Group, tiers: list[TierFacts], options: Options) -> float:
    """What the wires into one chip carry together, or into one child of the tier that binds."""
    if isinstance(group, Stacked):
        return _link_rate(group.inner, tiers, options)
    if isinstance(group, Wide):
        return float(group.egress)
    if isinstance(group, Switches):
        return max(tiers, key=lambda tier: tier.seconds).link_bytes_per_s if tiers else 0.0
    # one link for each axis, or all that its ring or line has
    links = len(group.axes) if options.one_way else sum(ring.links for ring in group.axes)
    return float(group.link * links)


def _ring_facts(kind: str, volume: float, group: Group, cost: Seconds, options: Options) -> RingFacts | None:
    """Hops and link traffic, for a collective over one axis of a torus."""
    if not isinstance(group, Rings) or kind == "permute":
        return None
    rings = [ring for ring in group.axes if ring.size > 1]
    if len(rings) != 1:
        return None
    [ring] = rings
    # on a line there is no way round
    way, link = options.one_way or not ring.closed, group.link * ring.share
    count = ring_hops(ring.size, way)
    if kind == "all_reduce":  # a reduce-scatter, then an all-gather
        count *= 2
    if kind == "all_to_all":
        each, sends = all_to_all_piece(volume, ring.size), all_to_all_sends(ring.size, way)
        seconds = max(float(group.hop), float(each / link))
    else:
        each, sends = hop_bytes(volume, ring.size, way), count
        seconds = float(hop_seconds(volume, ring.size, link, group.hop))
    return RingFacts(bool(ring.closed), float(count), float(each), seconds, float(cost.bandwidth * link), float(sends))


def _tier_facts(kind: str, volume: float, group: Group, options: Options) -> list[TierFacts]:
    """Time and traffic of each tier of switches that the group crosses, from the inside out."""
    if not isinstance(group, Switches):
        return []
    seconds = tier_seconds(kind, volume, group, replace(options, exact=True))
    crossed = [span for span in group.spans if float(span.fan) > 1]
    fans = tuple(float(span.fan) for span in crossed)
    rows: list[TierFacts] = []
    for index, span in enumerate(crossed):
        passing, level = switch_traffic(kind, volume, fans, index), span.level
        traffic = float(seconds[level.name]), float(passing.ingress), float(passing.egress)
        rows.append(TierFacts(level.name, fans[index], float(level.bandwidth), *traffic))
    return rows


def _advice(report: CollectiveReport) -> str:
    """Whether bytes or hops decide, and from which size on the other would."""
    if report.chips == 1:
        return ONE_CHIP
    threshold = render(report.latency_bound_below_bytes, "bytes")
    at = f"{render(report.lower_s, 's')} at best"
    if abs(report.book_s - report.lower_s) > SAME_TIME * report.lower_s:
        at += f" ({render(report.book_s, 's')} by the book, to first order)"
    at += f", {render(report.expected_s or 0.0, 's')} expected"
    if report.regime == "latency":
        return f"Bound by latency: {at}; messages above {threshold} are bound by bandwidth."
    binding = max(report.tiers, key=lambda tier: tier.seconds, default=None)
    where = f"the {binding.tier} tier" if binding else ", ".join(report.axes)
    return f"Bound by the bandwidth of {where}: {at}; messages below {threshold} would be bound by latency."


def size_sweep(kind: str, axes: tuple[str, ...], mesh: Mesh, options: Options) -> dict[str, list[tuple[float, float]]]:
    """The time over message sizes from 1 kB to 10 GB (bytes, seconds): the two terms and their bound, for a chart; what
    takes no time has no curve."""
    import numpy

    volumes = numpy.logspace(3, 10, 57)  # eight to a decade
    cost = collective_time(kind, volumes, mesh.group(axes), options)
    # the latency does not depend on the size: one number for all of them
    terms = {"bound": cost.lower, "bandwidth": cost.bandwidth, "latency": cost.latency + 0 * volumes}
    curves: dict[str, list[tuple[float, float]]] = {}
    for name, term in terms.items():
        points = [(v, s) for v, s in zip(volumes.tolist(), term.tolist(), strict=True) if s > 0]
        if points:
            curves[name] = points
    return curves


class TransferReport(Record):
    """One message over a torus: from a chip to another over every way that shares no link, or from all chips to one."""

    kind: str
    on: str
    source: list[int]
    target: list[int]
    bytes: float
    paths: int
    hops: int
    bandwidth_s: float
    latency_s: float
    total_s: float

    def headline(self) -> str:
        return f"{self.kind} of {render(self.bytes, 'bytes')} on {self.on}: {render(self.total_s, 's')}"


def read_position(text: str, slice_: Slice, flag: str) -> tuple[int, ...]:
    """`0,3` as the place of a chip of a slice."""
    parts = list(map(str.strip, text.split(",")))
    if not all(part.isdecimal() for part in parts):
        example = ",".join("0" for _ in slice_.shape)
        raise InputError(f"{flag} is {text!r}; write the place of a chip of {slice_}, such as {example}.")
    return tuple(int(part[:9]) for part in parts)


def transfer_report(kind: str, volume: float, slice_: Slice | None, source: str, target: str) -> TransferReport:
    """`send` from a chip to another, or `gather` to one chip what all of a slice hold."""
    if slice_ is None or not isinstance(slice_.chip.network, Torus):
        raise InputError(f"A {kind} between chips needs a slice of a torus, such as --on v5e:4x4.")
    to = read_position(target, slice_, "--to-chip")
    if kind == "gather":
        cost, paths = gather_time(volume, slice_, to), links_of(slice_, to)
        start, farthest, total = to, eccentricity(slice_, to), cost.lower
    else:
        start = read_position(source, slice_, "--from-chip")
        cost = transfer_time(volume, slice_, start, to)
        paths, farthest, total = disjoint_paths(slice_, start, to), hops(slice_, start, to), cost.upper
    bandwidth, latency = float(cost.bandwidth), float(cost.latency)
    return TransferReport(
        kind, str(slice_), list(start), list(to), volume, paths, farthest, bandwidth, latency, float(total)
    )
