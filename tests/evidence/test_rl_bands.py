"""Bands of frameworks: middles of their own, widths as for a source that nobody saw."""

import pytest

from dragonscale.evidence.rl_bands import FEW, StepRatio, bands, covered


def rows(framework, **sources):
    return [StepRatio(framework, name, ratio) for name, ratios in sources.items() for ratio in ratios]


FAST = rows("fast", a=(0.9, 1.0, 1.1), b=(0.95, 1.0, 1.05))
SLOW = rows("slow", c=(1.5,) * FEW, d=(1.5,))


def test_a_framework_has_the_median_of_its_own_steps():
    found = bands(FAST + SLOW)
    assert (found["fast"].middle, found["slow"].middle) == (1.0, 1.5)
    assert (found["fast"].runs, found["slow"].runs, found["others"].runs) == (6, 6, 12)


def test_few_steps_make_no_band_of_their_own_and_others_are_as_wide_as_all():
    found = bands(FAST + rows("rare", e=(2.0, 2.1)))
    assert set(found) == {"fast", "others"}
    both = bands(FAST + SLOW)
    assert both["others"].low == min(one.low for one in both.values())
    assert both["others"].high == max(one.high for one in both.values())


def test_a_source_that_is_unlike_the_others_widens_the_band():
    """Within each source there is no spread at all; what one source says of another is what counts."""
    alike = bands(rows("one", a=(1.0,) * 5, b=(1.0,) * 5))["one"]
    apart = bands(rows("one", a=(1.0,) * 5, b=(1.4,) * 5))["one"]
    assert (alike.low, alike.high) == (1.0, 1.0)
    assert apart.high >= 1.2 * 1.4 - 1e-9
    assert apart.low <= 1.2 / 1.4 + 1e-9


def test_what_is_covered_is_judged_by_the_other_sources():
    assert covered(rows("one", a=(1.0,) * 5, b=(1.0,) * 5)) == 1.0
    assert covered(rows("one", a=(0.5,) * 5, b=(2.0,) * 5)) == 0.0
    assert covered(FAST) == pytest.approx(4 / 6)


def test_a_band_holds_what_was_expected():
    band = bands(rows("slow", a=(1.4, 1.45, 1.5, 1.5, 1.55), b=(1.5,) * 5))["slow"]
    assert band.low == 1.0 < band.middle < band.high
