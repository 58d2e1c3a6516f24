"""Messages that are not collectives of equals: from one chip of a torus to another, and from all chips to one.

The bandwidth term spreads the bytes over every way that can be used at once; the latency term is the hops of the first
byte. For one message the two follow each other, so its time is `upper`, their sum (book, chapter 2, question 5); for a
gather of many pieces they overlap.

Inside a ring collective: how many hops it takes, and what each hop carries.

An AllGather of V bytes over N chips starts with V/N on each. Passing pieces on in one direction, every chip needs N−1
hops of V/N to see all of them. With both directions at once, pieces come from the left and from the right: half as many
hops, each carrying two pieces. Each hop takes as long as its bytes or one link's latency, whichever is longer, so small
arrays are bound by latency. A ReduceScatter is the same backwards.

An AllToAll cuts the array into N² pieces of V/N², one for each pair of chips, and a piece for a chip d links away is
passed on d times.
"""

from dragonscale.physics.collectives.cost import Seconds
from dragonscale.physics.hardware import Slice, Torus, hops, links_of
from dragonscale.physics.hardware.paths import check_position, disjoint_paths, eccentricity
from dragonscale.physics.numbers import Number, floor, maximum


def transfer_time(volume: Number, piece: Slice, source: tuple[int, ...], target: tuple[int, ...]) -> Seconds:
    """One chip sends `volume` bytes to another, over every way that shares no link.

    >>> from dragonscale.physics.hardware import parse_slice
    >>> cost = transfer_time(9e6, parse_slice("v5e:4x4"), (0, 0), (3, 3))
    >>> cost.bandwidth, cost.latency
    (0.0001, 6e-06)
    """
    paths = disjoint_paths(piece, source, target)
    network = _torus(piece)
    return Seconds(volume / (paths * network.link), hops(piece, source, target) * network.hop_latency)


def gather_time(volume: Number, piece: Slice, root: tuple[int, ...], exact: bool = True) -> Seconds:
    """One chip receives an array of `volume` bytes of which every chip of the slice holds an equal part.

    A lower bound, since everything must come in through the links of `root`. It also bounds an AllGather, with the
    worst placed chip (a corner) as `root`. `exact=False` counts the part that `root` has already as if it came in too.

    >>> from dragonscale.physics.hardware import parse_slice
    >>> gather_time(16e9, parse_slice("v5e:4x4"), (0, 0)).bandwidth
    0.16666666666666666
    """
    check_position(piece, root)
    network = _torus(piece)
    chips = piece.chips // piece.pods
    missing = volume * (chips - 1) / chips if exact else volume
    links = max(links_of(piece, root), 1)
    return Seconds(missing / (links * network.link), eccentricity(piece, root) * network.hop_latency)


def _torus(piece: Slice) -> Torus:
    assert isinstance(piece.chip.network, Torus)
    return piece.chip.network


def ring_hops(size: Number, one_way: bool = False) -> Number:
    """Hops of an AllGather (or ReduceScatter) around a ring.

    >>> ring_hops(8, one_way=True), ring_hops(8)
    (7, 4)
    """
    return size - 1 if one_way else floor(size / 2)


def hop_bytes(volume: Number, size: Number, one_way: bool = False) -> Number:
    """Bytes that a chip sends in one hop of an AllGather of `volume` bytes: over both links, unless `one_way`.

    >>> hop_bytes(8e6, 8, one_way=True), hop_bytes(8e6, 8)
    (1000000.0, 2000000.0)
    """
    return volume / size * (1 if one_way else 2)


def hop_seconds(volume: Number, size: Number, link: Number, hop: Number = 0.0) -> Number:
    """Time of one hop: each link carries V/N one way, and no hop is faster than the latency `hop`.

    >>> hop_seconds(90e6, 16, link=45e9), hop_seconds(90e3, 16, link=45e9, hop=1e-6)
    (0.000125, 1e-06)
    """
    return maximum(hop, volume / size / link)


def all_to_all_piece(volume: Number, size: Number) -> Number:
    """Bytes of one piece of an AllToAll: what one chip sends to one other."""
    return volume / (size * size)


def all_to_all_sends(size: Number, one_way: bool = False) -> Number:
    """Pieces that each chip puts on its links during an AllToAll, those it passes on for others included.

    One way round, pieces travel 1, 2, … N−1 links. The shorter way round, none travels more than N/2: the distances
    min(d, N−d) add up to N²/4.

    >>> all_to_all_sends(8, one_way=True), sum(range(1, 8))
    (28.0, 28)
    >>> all_to_all_sends(8), sum(min(d, 8 - d) for d in range(8))
    (16, 16)
    """
    return size * (size - 1) / 2 if one_way else floor(size * size / 4)


def shard_held(chip: int, step: int, size: int) -> int:
    """Whose shard a chip multiplies at a step when shards travel left.

    >>> [shard_held(1, step, 4) for step in range(4)]
    [1, 2, 3, 0]
    """
    return (chip + step) % size
