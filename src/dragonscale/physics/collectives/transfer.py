"""Messages that are not collectives of equals: from one chip of a torus to another, and from all chips to one.

The bandwidth term spreads the bytes over every way that can be used at once; the latency term is the hops of the first
byte. For one message the two follow each other, so its time is `upper`, their sum (book, chapter 2, question 5); for a
gather of many pieces they overlap.
"""

from dragonscale.physics.collectives.cost import Seconds
from dragonscale.physics.hardware import Slice, Torus, hops, links_of
from dragonscale.physics.hardware.paths import check_position, disjoint_paths, eccentricity
from dragonscale.physics.numbers import Number


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
