"""Which numbers of replicas are tried, which rates are on the frontier, and what a clock says."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from dragonscale.simulation import Autoscale
from dragonscale.simulation.fleet_sizing.capacity import _next_size  # pyright: ignore[reportPrivateUsage]
from dragonscale.simulation.fleet_sizing.sustained_rate import on_frontier


@pytest.mark.parametrize(
    ("low", "high", "size", "short", "expected"),
    [
        (0, math.inf, 7, False, 7),  # enough, and nothing known above
        (4, math.inf, 4, True, 5),
        (8, math.inf, 8, True, 10),  # a quarter more
        (4, 5.0, 5, False, 5),  # nothing between them
        (4, 8.0, 8, False, 7),
        (4, 16.0, 16, False, 14),  # a tenth fewer, rather than the middle
        (98, 100.0, 100, False, 99),  # the middle, above a tenth fewer
        (0, 10.0, 10, False, 8),
    ],
)
def test_the_next_size_of_a_pool(low: int, high: float, size: int, short: bool, expected: int) -> None:
    assert _next_size(low, high, size, short) == expected


def test_the_frontier_is_what_no_other_beats_in_tokens_and_latency() -> None:
    points = [(100.0, 0.02), (120.0, 0.03), (90.0, 0.03), (100.0, 0.02), (120.0, 0.04), (50.0, None)]
    sustained: Any = [
        SimpleNamespace(good_tokens_per_s_per_chip=tokens, tpot_s=tpot_s, requests_per_s=1.0)
        for tokens, tpot_s in points
    ]
    assert on_frontier(sustained) == [True, True, False, True, False, True]
    sustained[1].requests_per_s = None  # it holds no rate
    assert on_frontier(sustained)[1] is False


@pytest.mark.parametrize(
    ("hour", "replicas"), [(0.0, 2), (7.999, 2), (8.0, 9), (19.999, 9), (20.0, 2), (24.0, 2), (32.0, 9), (44.0, 2)]
)
def test_a_schedule_repeats_every_day(hour: float, replicas: int) -> None:
    rule = Autoscale(1, 9, 1.0, schedule=((8 * 3600.0, 9), (20 * 3600.0, 2)))
    assert rule.planned(hour * 3600.0) == replicas
