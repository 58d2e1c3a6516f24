"""The largest rate at which runs are good, from few of them.

A latency over its target grows smoothly with the rate until the queue does, so the rate at which it is 1 is read off
between a run below it and one above (regula falsi in logarithms), a little to the side that has not been seen from near
yet. Where a queue grows there is nothing to read, and the middle is taken.
"""

import math
from collections.abc import Callable
from typing import Protocol, TypeVar

# The largest rate is known when one so much larger is not good.
RATE_TOLERANCE = 1.03

# How far beside the rate that is read off the next run is.
BESIDE_RATIO = RATE_TOLERANCE ** (1 / 3)

# The second rate over the first where that was good; its square the next, while none is bad.
FIRST_GROWTH = 1.25

# A rate over the next where none was good, at most and at least.
MAX_REDUCTION = 3.0
MIN_REDUCTION = 1.15

# Part of the way (in logarithms) between both ends that the next rate keeps clear of each, since they are known.
CLEARANCE = 0.1


class RatedRun(Protocol):
    """A run at a rate: whether it is good, and the worst of its latencies over their targets, infinite where the queue
    grows."""

    @property
    def rate(self) -> float: ...

    @property
    def good(self) -> bool: ...

    @property
    def worst(self) -> float: ...


Run = TypeVar("Run", bound=RatedRun)


def largest_rate(
    run: Callable[[float], Run], rate: float, runs: int, top: float = math.inf
) -> tuple[Run | None, Run | None]:
    """The good run at the largest rate and the bad one at the smallest (None where there is none), from a first guess
    and at most so many runs; `top` is a rate that is known to be too much."""
    low: Run | None = None
    high: Run | None = None
    growth = FIRST_GROWTH
    for _ in range(runs):
        trial = run(rate)
        if trial.good:
            low = trial
        else:
            high, top = trial, rate
        # invariant: the largest good rate lies between low.rate and top
        if low is not None and top / low.rate <= RATE_TOLERANCE:
            break
        rate = rate * growth if math.isinf(top) else _next_rate(low, high, top, last_was_good=trial.good)
        growth *= growth
    return low, high


def _next_rate(low: RatedRun | None, high: RatedRun | None, top: float, last_was_good: bool) -> float:
    """The rate to try between those seen: above what is read off where the last run was below it."""
    if low is None:
        worst = MAX_REDUCTION
        if high is not None:
            worst = high.worst
        return top / min(max(worst, MIN_REDUCTION), MAX_REDUCTION)
    middle = math.sqrt(low.rate * top)
    if high is None or math.isinf(high.worst) or not 0 < low.worst < high.worst or high.worst <= 1:
        return middle
    # where the worst ratio is 1 on the line between both runs, in logarithms of rates and ratios
    part = -math.log(low.worst) / math.log(high.worst / low.worst)
    rate = low.rate * (top / low.rate) ** min(max(part, 0.0), 1.0)
    rate = rate * BESIDE_RATIO if last_was_good else rate / BESIDE_RATIO
    clearance = (top / low.rate) ** CLEARANCE
    return min(max(rate, low.rate * clearance), top / clearance)
