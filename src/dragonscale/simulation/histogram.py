"""Distributions of unbounded streams in bounded memory, with confidence intervals.

Values fall into buckets whose bounds grow by one percent, so a percentile is within half a percent and a mean is exact.
Waiting times of neighbouring requests are correlated, so the error of a mean does not follow from their variance.
The stream is therefore cut into 16 to 32 batches of equal weight (at 32 they are joined in pairs); batches are nearly
independent, and the variance of their means and percentiles gives the intervals (batch means, Student's t, 95%). A
percentile's interval is centred on the whole stream's value.

>>> times = Histogram()
>>> for value in (1.0, 2.0, 3.0, 4.0):
...     times.add(value)
>>> times.mean, round(times.percentile(0.5), 1)
(2.5, 2.0)
"""

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy

WIDTH = 0.01
"""Relative width of a bucket."""
MAX_BATCHES = 32
"""Most batches; after joining, half as many."""
FRESH = 8192
"""Numbers (values and their weights) that are buffered until they are counted together."""
_SCALE = 1 / math.log1p(WIDTH)
_ZERO = -(10**9)  # the bucket of values that are not positive
_Z = 1.959963984540054
"""Standard normal quantile for a two-sided 95% interval."""

Batch = tuple[float, float, dict[int, float]]
"""Weight, sum, weights by bucket."""


def student_t(freedom: int) -> float:
    """Two-sided 95% quantile of Student's t, by the Cornish-Fisher series (Abramowitz & Stegun 26.7.5).

    >>> round(student_t(15), 3), round(student_t(31), 3)
    (2.131, 2.04)
    """
    z, n = _Z, freedom
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )


def columns(rows: list[float], count: int) -> numpy.ndarray:
    """The columns of rows that were buffered as one flat list, (count, rows); the list is emptied.

    (NumPy itself takes a third longer to read a list.)
    """
    table = numpy.frombuffer(struct.pack(f"{len(rows)}d", *rows)).reshape(-1, count).T
    rows.clear()
    return table


def _quantile(counts: dict[int, float], weight: float, share: float) -> float:
    """The middle of the bucket at or below which a fraction of the weight lies."""
    need = share * weight * (1 - 1e-12)
    below = 0.0
    bucket = _ZERO
    for bucket in sorted(counts):
        below += counts[bucket]
        if below >= need:
            break
    if bucket == _ZERO:
        return 0.0
    return math.exp((bucket + 0.5) / _SCALE)


def _by_bucket(buckets: numpy.ndarray, weights: numpy.ndarray) -> Iterator[tuple[int, float]]:
    """The weight in each bucket, in order."""
    least = int(buckets.min())
    if least == _ZERO:
        used, places = numpy.unique(buckets, return_inverse=True)
        return zip(used.tolist(), numpy.bincount(places, weights).tolist(), strict=True)
    places = buckets - least  # a narrow range: counting is faster than sorting
    used = numpy.flatnonzero(numpy.bincount(places))
    return zip((used + least).tolist(), numpy.bincount(places, weights)[used].tolist(), strict=True)


def _joined(first: Batch, second: Batch) -> Batch:
    counts = dict(first[2])
    for bucket, weight in second[2].items():
        counts[bucket] = counts.get(bucket, 0) + weight
    return first[0] + second[0], first[1] + second[1], counts


@dataclass(frozen=True)
class Estimate:
    """A value and its 95% interval; without enough batches the interval is the value itself and `known` is False."""

    value: float
    low: float
    high: float
    known: bool


@dataclass(frozen=True)
class Summary:
    """A distribution in a few numbers."""

    count: int
    mean: Estimate
    p50: Estimate
    p90: Estimate
    p95: Estimate
    p99: Estimate
    least: float
    most: float


class Histogram:
    """Add values; ask for the mean, percentiles and their intervals."""

    def __init__(self) -> None:
        self.fresh: list[float] = []  # buffered pairs of a value and its weight
        self._batches: list[Batch] = []
        self._size = 1.0
        self._weight = self._sum = 0.0
        self._counts: dict[int, float] = {}
        self.least, self.most = math.inf, -math.inf

    def add(self, value: float, weight: float = 1) -> None:
        """Add a value with a weight."""
        self.fresh += (value, weight)
        if len(self.fresh) >= FRESH:
            self.settle()

    def settle(self) -> None:
        """Put what is buffered into buckets."""
        if self.fresh:
            self.add_all(*columns(self.fresh, 2))

    def add_all(self, values: numpy.ndarray, weights: numpy.ndarray) -> None:
        """Add many values with their weights, (values,), cut into batches of equal weight."""
        if not len(values):
            return
        self.least, self.most = min(self.least, float(values.min())), max(self.most, float(values.max()))
        logs = numpy.log(values, out=numpy.zeros_like(values), where=values > 0)
        buckets = numpy.where(values > 0, numpy.floor(logs * _SCALE), _ZERO).astype(int)
        total_weight, begin = numpy.cumsum(weights), 0
        while begin < len(values):
            before = total_weight[begin - 1] if begin else 0.0
            # up to and including the value that fills the batch
            end = int(numpy.searchsorted(total_weight, before + self._size - self._weight)) + 1
            batch = slice(begin, end)
            for bucket, weight in _by_bucket(buckets[batch], weights[batch]):
                self._counts[bucket] = self._counts.get(bucket, 0) + weight
            self._weight += float(weights[batch].sum())
            self._sum += float(values[batch] @ weights[batch])
            if self._weight >= self._size:
                self._close()
            begin = end

    def _close(self) -> None:
        batches = self._batches
        batches.append((self._weight, self._sum, self._counts))
        self._counts, self._weight, self._sum = {}, 0.0, 0.0
        if len(batches) == MAX_BATCHES:
            self._batches = [_joined(batches[i], batches[i + 1]) for i in range(0, MAX_BATCHES, 2)]
            self._size = sum(batch[0] for batch in self._batches) / len(self._batches)

    @property
    def whole(self) -> Batch:
        """The stream as one batch."""
        self.settle()
        total: Batch = (self._weight, self._sum, dict(self._counts))
        for batch in self._batches:
            total = _joined(total, batch)
        return total

    @property
    def count(self) -> float:
        """Weight of all values."""
        self.settle()
        return self._weight + sum(batch[0] for batch in self._batches)

    @property
    def mean(self) -> float:
        """The exact mean; 0 if there are no values."""
        weight, total, _ = self.whole
        return total / weight if weight else 0.0

    def percentile(self, share: float) -> float:
        """The value that a fraction of the stream does not exceed."""
        weight, _, counts = self.whole
        if not weight:
            return 0.0
        return min(max(_quantile(counts, weight, share), self.least), self.most)

    def curve(self) -> list[tuple[float, float]]:
        """The distribution function: upper bounds of buckets, and the fraction of the stream below each."""
        weight, _, counts = self.whole
        points, below = [], 0.0
        for bucket in sorted(counts):
            below += counts[bucket]
            points.append((0.0 if bucket == _ZERO else math.exp((bucket + 1) / _SCALE), below / weight))
        return points

    def _estimate(self, value: float, of_batches: list[float]) -> Estimate:
        count = len(of_batches)
        if count < MAX_BATCHES // 2:
            return Estimate(value, value, value, False)
        # Student's t with the variance of the batches' values
        middle = sum(of_batches) / count
        spread = math.sqrt(sum((each - middle) ** 2 for each in of_batches) / (count - 1) / count)
        reach = student_t(count - 1) * spread
        return Estimate(value, max(value - reach, 0.0), value + reach, True)

    def summary(self) -> Summary:
        """Mean, percentiles and intervals."""
        self.settle()
        whole = [batch for batch in self._batches if batch[0]]
        p50, p90, p95, p99 = (
            self._estimate(self.percentile(share), [_quantile(b[2], b[0], share) for b in whole])
            for share in (0.5, 0.9, 0.95, 0.99)
        )
        mean = self._estimate(self.mean, [b[1] / b[0] for b in whole])
        smallest, largest = (self.least, self.most) if self.count else (0.0, 0.0)
        return Summary(round(self.count), mean, p50, p90, p95, p99, smallest, largest)
