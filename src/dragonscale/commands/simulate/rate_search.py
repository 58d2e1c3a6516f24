"""The largest rate at which runs are good, from few of them.

A latency over its target grows smoothly with the rate until the queue does, so the rate at which it is 1 is read off
between a run below it and one above (regula falsi in logarithms), a little to the side that has not been seen from near
yet. Where a queue grows there is nothing to read, and the middle is taken.
"""

import math
from collections.abc import Callable
from typing import Any

TOLERANCE = 1.03
"""The largest rate is known when one so much larger is not good."""
BESIDE = TOLERANCE ** (1 / 3)
"""How far beside the rate that is read off the next run is."""
FASTER = 1.25
"""The second rate over the first where that was good; its square the next, while none is bad."""
SLOWER, LEAST = 3.0, 1.15
"""A rate over the next where none was good, at most and at least."""


def largest_rate(run: Callable[[float], Any], rate: float, runs: int, top: float = math.inf) -> tuple[Any, Any]:
    """The good run at the largest rate, and the bad one at the smallest (None where there is none), from a first guess;
    `top` is a rate that is known to be too much. A run says its `rate`, whether it is `good`, and the `worst` of its
    latencies over their targets, infinite where the queue grows."""
    low = high = None
    faster = FASTER
    for _ in range(runs):
        one = run(rate)
        if one.good:
            low = one
        else:
            high, top = one, rate
        if low is not None and top / low.rate <= TOLERANCE:
            break
        rate = rate * faster if math.isinf(top) else _next(low, high, top, above=one.good)
        faster *= faster
    return low, high


def _next(low: Any, high: Any, top: float, above: bool) -> float:
    """The rate to try between those seen; `above` what is read off where the last run was below it."""
    if low is None:
        worst = high.worst if high is not None else SLOWER
        return top / min(max(worst, LEAST), SLOWER)
    middle = math.sqrt(low.rate * top)
    if high is None or math.isinf(high.worst) or not 0 < low.worst < high.worst or high.worst <= 1:
        return middle
    part = -math.log(low.worst) / math.log(high.worst / low.worst)
    rate = low.rate * (top / low.rate) ** min(max(part, 0.0), 1.0)
    rate = rate * BESIDE if above else rate / BESIDE
    width = (top / low.rate) ** 0.1  # keep clear of both ends, which are known
    return min(max(rate, low.rate * width), top / width)
