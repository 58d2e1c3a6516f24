"""Iterations for which TensorRT-LLM was told to hold prompts back: to fill an iteration, or until every GPU has one."""

import functools

import numpy


def gathered(patience: float, others: float, gap: float) -> float:
    """Mean iterations for which prompts that come every `gap` iterations are held back (`batch_wait_timeout_iters`):
    the first until so many `others` have come or its patience ends, those others for what is left of that.

    >>> gathered(40, 4, 5), gathered(40, 16, 8)
    (10.0, 23.333333333333332)
    """
    held = min(patience, others * gap)
    come = held / gap
    return held * (1 + come / 2) / (1 + come) if held == patience else held / 2


@functools.cache
def balanced(
    patience: int, ranks: int, places: int, output: float, each: int, batching: int = 0, rounds: float = 4.0
) -> float:
    """Mean iterations for which prompts wait with data-parallel attention until every rank has one (`enable_balance`),
    or until that was not so for `timeout_iters`. Every rank has its own `places`, so a prompt comes to the rank on
    which a sequence has just ended; a rank takes at most `each` prompts at once. When all have one, more are waited for
    (`batching_wait_iters`). `output`: iterations that a sequence decodes.

    >>> 20 < balanced(60, 8, 8, 1024.0, 1) < 60, balanced(60, 1, 64, 1024.0, 1) < 1
    (True, True)
    """
    draw = numpy.random.default_rng(0)
    left = draw.integers(1, max(int(output), 2), (ranks, places))
    since = numpy.zeros((ranks, places), int)
    waits, served, count, more = 0, 0, 0, 0
    for now in range(int(rounds * output)):
        left -= 1
        since[left == 0] = now
        waiting = left <= 0
        ready = bool(waiting.any(axis=1).all())
        count, more = (0, more + 1) if ready else (count + 1, 0)
        if (ready and more > batching) or count >= patience:
            count, more = 0, 0
            for rank in numpy.flatnonzero(waiting.any(axis=1)):
                own = numpy.flatnonzero(waiting[rank])
                first = own[numpy.argsort(since[rank, own])[:each]]
                waits, served = waits + int((now - since[rank, first]).sum()), served + len(first)
                left[rank, first] = draw.integers(int(0.8 * output), max(int(output), 1) + 1, len(first)) + 1
    return waits / max(served, 1)
