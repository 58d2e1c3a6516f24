"""Prompts that share iterations: the chain's times against a run of the same queue, prompt by prompt."""

import random
from itertools import accumulate

import numpy
import pytest

from dragonscale.serving.steady.bulk import sojourn

ALONE, RANKS, MANY = ((1.0, 0.4),), ((1.0, 0.7), (8.0, 1.5)), ((1.0, 0.14), (8.0, 0.35), (32.0, 1.3))


def queued(packed: tuple[tuple[float, float], ...], load: float, turns: int) -> numpy.ndarray:
    """Seconds of each prompt: whoever waits when an iteration ends goes into the next, as far as there is room."""
    (counts, seconds), draw = zip(*packed, strict=True), random.Random(1)
    rate = load * counts[-1] / seconds[-1]
    come = list(accumulate(draw.gammavariate(turns, 1 / rate / turns) for _ in range(20_000)))
    found, now = list[float](), 0.0
    while len(found) < len(come):
        first = len(found)
        now, last = max(now, come[first]), first
        while last < len(come) and last - first < counts[-1] and come[last] <= now:
            last += 1
        now += float(numpy.interp(last - first, counts, seconds))
        found += [now - one for one in come[first:last]]
    return numpy.array(found[1000:])


@pytest.mark.parametrize("packed", [ALONE, RANKS, MANY])
@pytest.mark.parametrize("turns", [1, 3])
@pytest.mark.parametrize("load", [0.5, 0.85])
def test_times_are_those_of_a_run(packed, load, turns) -> None:
    assert sojourn(packed, load, turns) == pytest.approx(queued(packed, load, turns).mean(), rel=0.06)


def test_times_grow_with_the_load_and_random_arrivals() -> None:
    means = [sojourn(RANKS, load, 1) for load in (0.001, 0.2, 0.4, 0.6, 0.8, 0.9, 0.96, 0.99)]
    assert means == sorted(means)
    assert means[0] == pytest.approx(0.7, rel=0.02)
    assert sojourn(RANKS, 0.8, 4) < sojourn(RANKS, 0.8, 2) < sojourn(RANKS, 0.8, 1)
