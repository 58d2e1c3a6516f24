"""What kernels of every kind share: rounds of tiles on the cores, and the overlap of compute with memory."""

from dragonscale.physics.numbers import Number, ceil, maximum, minimum


def waves(per_core: Number, quantum: Number) -> Number:
    """Rounds that `per_core` tiles per core take. In the last one some cores are idle; `quantum` is the fraction of
    that idle time which is lost: 1 counts whole rounds, 0 shares the work perfectly.

    >>> waves(1.25, 1.0), waves(1.25, 0.5), waves(1.25, 0.0)
    (2.0, 1.625, 1.25)
    """
    return ceil(per_core) * quantum + per_core * (1 - quantum)


def overlapped(compute: Number, memory: Number, unhidden: Number) -> Number:
    """Seconds of compute and of memory traffic together: the longer, and the fraction of the shorter that it does not
    hide.

    >>> overlapped(4.0, 2.0, 0.25)
    4.5
    """
    return maximum(compute, memory) + unhidden * minimum(compute, memory)
