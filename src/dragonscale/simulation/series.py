"""Averages over time, in a fixed number of bins.

A quantity that holds between two times is added as value x seconds to the bins it crosses. When time runs past the last
bin, bins are joined in pairs and become twice as wide: any length of run fits, at a resolution of at least 1/256 of it.
"""

import numpy

from dragonscale.simulation.histogram import columns

BINS = 512
FIRST_WIDTH_S = 1e-3
FRESH = 8192
"""Numbers that are buffered until they are added together."""


class Series:
    """Several named quantities over the same bins."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.width = FIRST_WIDTH_S
        self.areas = {name: numpy.zeros(BINS) for name in names}
        self._fresh: dict[str, list[float]] = {name: [] for name in names}  # start, end, value; start, end, …

    def add(self, name: str, start: float, end: float, value: float) -> None:
        """A quantity held this value from start to end."""
        if end > start and value != 0:
            fresh = self._fresh[name]
            fresh += (start, end, value)
            if len(fresh) > FRESH:
                self.settle()

    def settle(self) -> None:
        """Add what is buffered to the bins."""
        for name, fresh in self._fresh.items():
            if fresh:
                start, end, value = columns(fresh, 3)
                self.spread(start, end, **{name: value})

    def spread(self, start: numpy.ndarray, end: numpy.ndarray, **values: numpy.ndarray) -> None:
        """Add quantities that had these values from start to end, all of shape (rows,)."""
        # join bins in pairs until time fits
        while end.max() > self.width * BINS:
            for each, bins in self.areas.items():
                self.areas[each] = numpy.append(bins.reshape(-1, 2).sum(1), numpy.zeros(BINS // 2))
            self.width *= 2
        width = self.width
        last = numpy.minimum((end / width).astype(int), BINS - 1)
        first = numpy.minimum((start / width).astype(int), last)
        # a row lies in one bin, is cut by an edge, or crosses whole bins as well
        cut, across = first < last, numpy.flatnonzero(last > first + 1)
        in_first, in_last = ((first + 1) * width - start)[cut], end - numpy.maximum(start, last * width)
        for name, value in values.items():
            bins = self.areas[name]
            bins += numpy.bincount(last, value * in_last, BINS)
            bins += numpy.bincount(first[cut], value[cut] * in_first, BINS)
            for row in across:
                bins[first[row] + 1 : last[row]] += value[row] * width

    def area(self, name: str) -> float:
        """Value x seconds over the whole run."""
        self.settle()
        return float(self.areas[name].sum())

    def means(self, name: str, until: float, over: str = "") -> list[tuple[float, float]]:
        """Middle and mean value of each bin up to a time, per unit of another quantity (`over`) if one is named."""
        self.settle()
        areas = {each: bins.tolist() for each, bins in self.areas.items()}
        points = []
        for index in range(min(BINS, int(until / self.width) + 1)):
            start = index * self.width
            length = min(self.width, until - start)
            below = areas[over][index] if over else length
            if length > 0 and below > 0:
                points.append((start + length / 2, areas[name][index] / below))
        return points
