"""Wave quantisation: the rounds in which tiles of work are handed out to the cores."""

from dragonscale.physics.numbers import Number, ceil


def waves(per_core: Number, quantum: Number) -> Number:
    """Rounds that `per_core` tiles per core take. In the last one some cores are idle; `quantum` is the fraction of
    that idle time which is lost: 1 counts whole rounds, 0 shares the work perfectly.

    >>> waves(1.25, 1.0), waves(1.25, 0.5), waves(1.25, 0.0)
    (2.0, 1.625, 1.25)
    """
    return ceil(per_core) * quantum + per_core * (1 - quantum)
