"""How far measured steps are from what was expected of them, by framework, each source left out in turn.

A framework's middle is the median of measured over expected; where few of its steps are known, that of all. How wide
a band is around a middle comes from rows whose source that middle has not seen, so it is as wide as for a new source.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy

FEW = 5
"""Rows below which a framework has no middle of its own."""
NOMINAL = 0.8


@dataclass(frozen=True)
class StepRatio:
    """Measured over expected seconds of a step, its framework, and the release or page that it was published with."""

    framework: str
    source: str
    ratio: float


@dataclass(frozen=True)
class StepBand:
    """Where four of five steps of a framework lie, and half of them below, as parts of what was expected, which a band
    holds too."""

    low: float
    middle: float
    high: float
    runs: int


def bands(rows: Sequence[StepRatio]) -> dict[str, StepBand]:
    """The bands of frameworks; `others` is of those of which too little is known, as wide as all together.

    >>> rows = [StepRatio("a", name, ratio) for name, ratio in zip("pqrst", (1.0, 1.1, 1.2, 1.3, 1.4))]
    >>> bands(rows)["a"].middle
    1.2
    """
    own = {name: [one for one in rows if one.framework == name] for name in sorted({one.framework for one in rows})}
    around = [one.ratio / _middle([other for other in rows if other.source != one.source] or rows, one) for one in rows]
    low, high = (float(numpy.quantile(around, part)) for part in ((1 - NOMINAL) / 2, (1 + NOMINAL) / 2))
    found = {
        name: StepBand(min(low * middle, 1.0), middle, max(high * middle, 1.0), len(some))
        for name, some in own.items()
        if len(some) >= FEW and (middle := _middle(rows, some[0]))
    }
    middle = statistics.median(one.ratio for one in rows)
    lows, highs = [low * middle, *(one.low for one in found.values())], [one.high for one in found.values()]
    return found | {"others": StepBand(min(lows), middle, max([high * middle, *highs]), len(rows))}


def _middle(rows: Sequence[StepRatio], like: StepRatio) -> float:
    own = [one.ratio for one in rows if one.framework == like.framework]
    return statistics.median(own if len(own) >= FEW else [one.ratio for one in rows])


def covered(rows: Sequence[StepRatio]) -> float:
    """The part of the rows in the band that the other sources give their framework."""
    inside = 0
    for one in rows:
        others = bands([other for other in rows if other.source != one.source] or rows)
        band = others.get(one.framework, others["others"])
        inside += band.low <= one.ratio <= band.high
    return inside / len(rows)
