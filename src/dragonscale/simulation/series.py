"""Averages over time, in a fixed number of bins.

A quantity that holds between two times is added as value x seconds to the bins it crosses. When time runs past the last
bin, bins are joined in pairs and become twice as wide: any length of run fits, at a resolution of at least 1/256 of it.
"""

import numpy

BINS = 512
FIRST_WIDTH_S = 1e-3
FRESH = 8192
"""Numbers that are kept until they are counted together."""


class Series:
    """Several named quantities over the same bins."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.width = FIRST_WIDTH_S
        self.areas = {name: numpy.zeros(BINS) for name in names}
        self.busy: list[float] = []  # from start to end so many requests and this part of the cache; the next …
        self._fresh: dict[str, list[float]] = {name: [] for name in names}  # start, end, value; start, end, …

    def add(self, name: str, start: float, end: float, value: float) -> None:
        """A quantity held this value from start to end."""
        if end > start and value != 0:
            fresh = self._fresh[name]
            fresh += (start, end, value)
            if len(fresh) > FRESH:
                self.settle()

    def settle(self) -> None:
        """Put what was added since the last time into bins."""
        if self.busy:
            start, end, running, pages = numpy.array(self.busy).reshape(-1, 4).T
            self.busy.clear()
            for name, value in (("busy", numpy.ones_like(start)), ("running", running), ("pages", pages)):
                self._spread(name, start, end, value)
        for name, fresh in self._fresh.items():
            if fresh:
                self._spread(name, *numpy.array(fresh).reshape(-1, 3).T)
                fresh.clear()

    def _spread(self, name: str, start: numpy.ndarray, end: numpy.ndarray, value: numpy.ndarray) -> None:
        while end.max() > self.width * BINS:
            for each, bins in self.areas.items():
                self.areas[each] = numpy.append(bins.reshape(-1, 2).sum(1), numpy.zeros(BINS // 2))
            self.width *= 2
        bins, width = self.areas[name], self.width
        last = numpy.minimum((end / width).astype(int), BINS - 1)
        first = numpy.minimum((start / width).astype(int), last)
        bins += numpy.bincount(last, value * (end - numpy.maximum(start, last * width)), BINS)
        cut = first < last
        bins += numpy.bincount(first[cut], (value * ((first + 1) * width - start))[cut], BINS)
        for place in numpy.flatnonzero(last > first + 1):
            bins[first[place] + 1 : last[place]] += value[place] * width

    def area(self, name: str) -> float:
        """Value x seconds over the whole run."""
        self.settle()
        return float(self.areas[name].sum())

    def means(self, name: str, until: float, over: str = "") -> list[tuple[float, float]]:
        """Middle and mean value of each bin up to a time, per unit of another quantity if one is named."""
        self.settle()
        areas = {each: bins.tolist() for each, bins in self.areas.items()}
        points = []
        for place in range(min(BINS, int(until / self.width) + 1)):
            start = place * self.width
            length = min(self.width, until - start)
            below = areas[over][place] if over else length
            if length > 0 and below > 0:
                points.append((start + length / 2, areas[name][place] / below))
        return points
