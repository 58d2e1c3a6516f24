"""Messages on a torus that are not collectives of equals: from one chip to another, and from all chips to one.

The bandwidth term spreads the bytes over every path that can be used at once; the latency term is the hops of the first
byte. For one message the two follow each other, so its time is `upper`, their sum (book, chapter 2, question 5); for a
gather of many shards they overlap.
"""

from dragonscale.physics.collectives.cost import Seconds
from dragonscale.physics.hardware import Slice, Torus, hops, links_of
from dragonscale.physics.hardware.paths import check_position, disjoint_paths, eccentricity
from dragonscale.physics.numbers import Number


def transfer_time(volume: Number, slice_: Slice, source: tuple[int, ...], target: tuple[int, ...]) -> Seconds:
    """Time for one chip to send `volume` bytes to another, over all paths that share no link.

    >>> from dragonscale.physics.hardware import parse_slice
    >>> cost = transfer_time(9e6, parse_slice("v5e:4x4"), (0, 0), (3, 3))
    >>> cost.bandwidth, cost.latency
    (0.0001, 6e-06)
    """
    paths = disjoint_paths(slice_, source, target)
    network = _torus(slice_)
    return Seconds(volume / (paths * network.link), hops(slice_, source, target) * network.hop_latency)


def gather_time(volume: Number, slice_: Slice, root: tuple[int, ...], exact: bool = True) -> Seconds:
    """Time for one chip to receive an array of `volume` bytes of which every chip of the slice holds an equal shard.

    This is a lower bound, since everything must come in through the links of `root`. It also bounds an AllGather, with
    the worst placed chip (a corner) as `root`. `exact=False` counts the shard of `root` as if it came in too.

    >>> from dragonscale.physics.hardware import parse_slice
    >>> gather_time(16e9, parse_slice("v5e:4x4"), (0, 0)).bandwidth
    0.16666666666666666
    """
    check_position(slice_, root)
    network = _torus(slice_)
    chips = slice_.chips // slice_.pods  # of one pod
    received = volume * (chips - 1) / chips if exact else volume
    links = max(links_of(slice_, root), 1)  # a chip alone has none, and receives nothing
    return Seconds(received / (links * network.link), eccentricity(slice_, root) * network.hop_latency)


def _torus(slice_: Slice) -> Torus:
    assert isinstance(slice_.chip.network, Torus)
    return slice_.chip.network
