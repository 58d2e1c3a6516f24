"""Averages over time, in a fixed number of bins.

A quantity that holds between two times is added as value x seconds to the bins it crosses. When time runs past the last
bin, bins are joined in pairs and become twice as wide: any length of run fits, at a resolution of at least 1/256 of it.
"""

BINS = 512
FIRST_WIDTH_S = 1e-3


class Series:
    """Several named quantities over the same bins."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.width = FIRST_WIDTH_S
        self.areas: dict[str, list[float]] = {name: [0.0] * BINS for name in names}

    def add(self, name: str, start: float, end: float, value: float) -> None:
        """A quantity held this value from start to end."""
        if end <= start or value == 0:
            return
        while end > self.width * BINS:
            for bins in self.areas.values():
                bins[:] = [bins[i] + bins[i + 1] for i in range(0, BINS, 2)] + [0.0] * (BINS // 2)
            self.width *= 2
        bins, width = self.areas[name], self.width
        first, last = int(start / width), min(int(end / width), BINS - 1)
        if first >= last:
            bins[last] += value * (end - start)
            return
        bins[first] += value * ((first + 1) * width - start)
        for place in range(first + 1, last):
            bins[place] += value * width
        bins[last] += value * (end - last * width)

    def add_busy(self, start: float, end: float, running: float, pages: float) -> None:
        """A replica was busy from start to end, with so many requests and this part of its cache."""
        first, seconds = int(start / self.width), end - start
        if end < (first + 1) * self.width and first < BINS:  # within one bin, as nearly always
            areas = self.areas
            areas["busy"][first] += seconds
            areas["running"][first] += running * seconds
            areas["pages"][first] += pages * seconds
        else:
            for name, value in (("busy", 1), ("running", running), ("pages", pages)):
                self.add(name, start, end, value)

    def area(self, name: str) -> float:
        """Value x seconds over the whole run."""
        return sum(self.areas[name])

    def means(self, name: str, until: float, over: str = "") -> list[tuple[float, float]]:
        """Middle and mean value of each bin up to a time, per unit of another quantity if one is named."""
        points = []
        for place in range(min(BINS, int(until / self.width) + 1)):
            start = place * self.width
            length = min(self.width, until - start)
            below = self.areas[over][place] if over else length
            if length > 0 and below > 0:
                points.append((start + length / 2, self.areas[name][place] / below))
        return points
