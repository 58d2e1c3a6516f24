"""What replicas did, activity by activity: rows that are buffered until thousands are counted together.

A row costs a replica one call; sums by replica, averages over time and gaps between tokens are computed in NumPy.
"""

from typing import NamedTuple

import numpy

from dragonscale.simulation.histogram import columns
from dragonscale.simulation.result import Tally
from dragonscale.simulation.series import Series

COLUMNS = 10
"""Of a row: replica, start, end, decode steps, whether prompts ran, sequences that decoded, running requests, the used
fraction of the cache, the end of the last decode step before, and sequences that decoded for the first time."""
FRESH = 4096 * COLUMNS
"""Numbers that are buffered until they are counted together."""


class ReplicaSums(NamedTuple):
    """Sums over one replica's activities: busy seconds, those of iterations with prompts, the number of these, places
    taken in all iterations, and the used fraction of the cache times seconds."""

    busy_s: float = 0.0
    prompt_s: float = 0.0
    prompt_iterations: float = 0.0
    places: float = 0.0
    cache_s: float = 0.0


class ActivityLog:
    """Rows of all replicas of a run; `sums` has the fields of `ReplicaSums` by replica, (5, replicas)."""

    def __init__(self, tally: Tally, series: Series) -> None:
        self.tally, self.series = tally, series
        self.rows: list[float] = []
        self.queues: list[float] = []  # rows of start, end, requests that waited in a replica
        self.sums = numpy.zeros((len(ReplicaSums._fields), 1))

    def settle(self) -> None:
        """Count the buffered rows."""
        if self.queues:
            start, end, waiting = columns(self.queues, 3)
            self.series.spread(start, end, waiting=waiting)
        if not self.rows:
            return
        index, began, end, steps, prompts, live, running, pages, since, joined = columns(self.rows, COLUMNS)
        seconds = end - began
        self.series.spread(began, end, busy=numpy.ones_like(began), running=running, pages=pages)
        replica, width = index.astype(int), self.sums.shape[1]
        count = max(int(replica.max()) + 1, width)
        self.sums = numpy.pad(self.sums, ((0, 0), (0, count - width)))
        # sequences that wait while prompts run alone keep their places
        places = numpy.maximum(steps, 1) * running
        sums = ReplicaSums(seconds, seconds * prompts, prompts, places, pages * seconds)
        for row, values in enumerate(sums):
            self.sums[row] += numpy.bincount(replica, values, count)
        gap = seconds / numpy.maximum(steps, 1)
        # The first gap of a run of steps counts from each member's last token, the others are equal. Sequences that
        # just joined count theirs themselves.
        first = (steps > 0) & ((joined > 0) | (since != began))
        weights = numpy.stack((first * (live - joined), live * (steps - first))).T.ravel()
        gaps = numpy.stack((began - since + gap, gap)).T.ravel()
        self.tally.count_gaps(gaps[weights > 0], weights[weights > 0])

    def of(self, replica: int) -> ReplicaSums:
        """The sums of one replica."""
        if replica >= self.sums.shape[1]:
            return ReplicaSums()
        return ReplicaSums(*self.sums[:, replica].tolist())
