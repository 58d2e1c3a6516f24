"""How long answers are: a lognormal by its mean and spread, or measured lengths, truncated at a cap.

The mean is that of the answers as they come out, truncated ones included, as frameworks report it. Of n answers the
i-th shortest is the (i - 1/2)/n quantile, so that a batch is the same each time and its longest grows with n.

>>> answers = AnswerLengths(mean=1000, cap=4096)
>>> drawn = answers.draw(512)
>>> round(drawn.mean()), round(drawn.max()), round(answers.draw(8).max())
(1000, 4096, 2428)
"""

import functools
import math
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy

from dragonscale.errors import InputError

SPREAD = 0.75
"""Standard deviation of the logarithm: with it 3% of answers are more than four times the median. verl's
partial-rollout recipe has about 3% of samples "far longer"; that far means four times is read into it."""
MEAN_QUANTILES = 512
"""Quantiles over which a mean is computed."""


@dataclass(frozen=True)
class AnswerLengths:
    """Output tokens of answers: their `mean`, the `cap` that truncates them, the `spread` of a lognormal; or `measured`
    ones, which determine everything."""

    mean: float
    cap: int
    spread: float = SPREAD
    measured: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.mean <= self.cap:
            raise InputError(
                f"Answers of {self.mean:,.0f} tokens on average do not fit a cap of {self.cap:,}; the mean is at least "
                "1 and at most --output."
            )

    @cached_property
    def median(self) -> float:
        """The median of the lognormal before it is truncated."""
        low, high = math.log(self.mean) - 2 * self.spread**2, math.log(self.cap) + 8 * self.spread
        for _ in range(60):  # bisection: the mean of truncated answers grows with the median
            middle = (low + high) / 2
            quantiles = numpy.exp(middle + self.spread * _normal(MEAN_QUANTILES))
            if float(numpy.minimum(quantiles, self.cap).mean()) < self.mean:
                low = middle
            else:
                high = middle
        return math.exp(low)

    def draw(self, count: int) -> numpy.ndarray:
        """The lengths of so many answers, ascending: (count,)."""
        if self.measured:
            places = (numpy.arange(count) + 0.5) / count
            return numpy.minimum(numpy.quantile(numpy.array(self.measured), places), self.cap)
        plain = self.median * numpy.exp(self.spread * _normal(count))
        return numpy.maximum(numpy.minimum(plain, self.cap), 1.0)


def measured_lengths(lengths: list[float], cap: int) -> AnswerLengths:
    """Answers as they were measured, truncated at a cap.

    >>> measured_lengths([100, 300, 5000], cap=1024).mean
    474.6666666666667
    """
    cut = numpy.minimum(numpy.array(lengths, float), cap)
    return AnswerLengths(float(cut.mean()), cap, measured=tuple(cut.tolist()))


@functools.lru_cache(64)
def _normal(count: int) -> numpy.ndarray:
    """Quantiles of the standard normal distribution, (count,)."""
    normal = NormalDist()
    return numpy.array([normal.inv_cdf((rank + 0.5) / count) for rank in range(count)])
