"""What replicas did, activity by activity: rows that are kept until many are counted together.

A row costs a replica one call; sums by replica, averages over time and the gaps between tokens are taken of thousands
of rows at once.
"""

import numpy

from dragonscale.simulation.histogram import columns
from dragonscale.simulation.result import Tally
from dragonscale.simulation.series import Series

COLUMNS = 10
"""Replica, start, end, decode steps, whether prompts ran, sequences that decoded, requests under way, the used part of
the cache, when the last decode step before ended, and sequences that decoded for the first time."""
FRESH = 4096 * COLUMNS
"""Numbers that are kept until they are counted together."""


class ActivityLog:
    """Rows of all replicas of a run. `sums` has by replica: busy seconds, those of iterations with prompts, the number
    of these, places taken in all iterations, and the used part of the cache times seconds."""

    def __init__(self, tally: Tally, series: Series) -> None:
        self.tally, self.series = tally, series
        self.rows: list[float] = []
        self.queues: list[float] = []  # from when, until when so many waited in a replica; the next …
        self.sums = numpy.zeros((5, 1))

    def settle(self) -> None:
        """Count the rows."""
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
        # those who wait for prompts that run alone keep their places
        places = numpy.maximum(steps, 1) * running
        for row, each in enumerate((seconds, seconds * prompts, prompts, places, pages * seconds)):
            self.sums[row] += numpy.bincount(replica, each, count)
        gap = seconds / numpy.maximum(steps, 1)
        first = (steps > 0) & ((joined > 0) | (since != began))  # the first token comes after a pause
        weights = numpy.stack((first * (live - joined), live * (steps - first))).T.ravel()
        gaps = numpy.stack((began - since + gap, gap)).T.ravel()
        self.tally.count_gaps(gaps[weights > 0], weights[weights > 0])

    def of(self, replica: int) -> tuple[float, float, float, float, float]:
        """The sums of one replica."""
        return tuple(self.sums[:, replica].tolist()) if replica < self.sums.shape[1] else (0.0, 0.0, 0.0, 0.0, 0.0)
