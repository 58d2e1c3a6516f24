"""Inside a ring collective: how many hops it takes, and what each hop carries.

An AllGather of V bytes over N chips starts with a shard of V/N on each. Passed on in one direction, every chip needs
N−1 hops of V/N to see all of them. With both directions at once, shards come from the left and from the right: half as
many hops, each carrying two shards. A hop takes as long as its bytes or one link's latency, whichever is longer, so
small arrays are bound by latency. A ReduceScatter is the same backwards.

An AllToAll cuts the array into N² chunks of V/N², one for each pair of chips, and a chunk for a chip d links away is
passed on d times.
"""

from dragonscale.physics.numbers import Number, floor, maximum


def ring_hops(size: Number, one_way: bool = False) -> Number:
    """Hops of an AllGather (or ReduceScatter) around a ring.

    >>> ring_hops(8, one_way=True), ring_hops(8)
    (7, 4)
    """
    if one_way:
        return size - 1
    return floor(size / 2)


def hop_bytes(volume: Number, size: Number, one_way: bool = False) -> Number:
    """Bytes that a chip sends in one hop of an AllGather of `volume` bytes: over both links, unless `one_way`.

    >>> hop_bytes(8e6, 8, one_way=True), hop_bytes(8e6, 8)
    (1000000.0, 2000000.0)
    """
    shards = 1 if one_way else 2
    return volume / size * shards


def hop_seconds(volume: Number, size: Number, link: Number, hop: Number = 0.0) -> Number:
    """Time of one hop: each link carries V/N one way, and no hop is faster than the latency `hop`.

    >>> hop_seconds(90e6, 16, link=45e9), hop_seconds(90e3, 16, link=45e9, hop=1e-6)
    (0.000125, 1e-06)
    """
    return maximum(hop, volume / size / link)


def all_to_all_piece(volume: Number, size: Number) -> Number:
    """Bytes of one chunk of an AllToAll: what one chip sends to one other."""
    return volume / (size * size)


def all_to_all_sends(size: Number, one_way: bool = False) -> Number:
    """Chunks that each chip puts on its links during an AllToAll, those it passes on for others included.

    One way round, chunks travel 1, 2, … N−1 links. The shorter way round, none travels more than N/2: the distances
    min(d, N−d) add up to N²/4.

    >>> all_to_all_sends(8, one_way=True), sum(range(1, 8))
    (28.0, 28)
    >>> all_to_all_sends(8), sum(min(d, 8 - d) for d in range(8))
    (16, 16)
    """
    if one_way:
        return size * (size - 1) / 2
    return floor(size * size / 4)


def shard_held(chip: int, step: int, size: int) -> int:
    """The chip whose shard a chip of a collective matmul multiplies at a step, when shards travel left.

    >>> [shard_held(1, step, 4) for step in range(4)]
    [1, 2, 3, 0]
    """
    return (chip + step) % size
