"""What a run is counted with: histograms, series over time, pages as sequences grow, speculation's draws."""

import math
import random
import statistics

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonscale.serving.steady.speculation import tokens_per_loop
from dragonscale.simulation import (
    Fixed,
    Fleet,
    Histogram,
    LinearTimes,
    OpenLoop,
    Poisson,
    Pool,
    SimulatedRequest,
    simulate,
)
from dragonscale.simulation.batch import EvenGrowth, UnevenGrowth, verify_steps
from dragonscale.simulation.request import Sequence
from dragonscale.simulation.series import BINS, Series


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=400))
def test_percentiles_are_right_to_half_a_percent(values: list[float]) -> None:
    times = Histogram()
    for value in values:
        times.add(value)
    for share in (0.5, 0.9, 0.95, 0.99):
        exact = numpy.quantile(values, share, method="inverted_cdf")
        assert times.percentile(share) == pytest.approx(exact, rel=0.00501)
    assert times.mean == pytest.approx(numpy.mean(values))
    assert times.count == len(values)


def test_a_histogram_stays_small_and_keeps_its_batches_even() -> None:
    random, times = numpy.random.default_rng(0), Histogram()
    for value in random.lognormal(0, 2, 50_000).tolist():
        times.add(value)
    assert 16 <= len(times._batches) < 32
    weights = [batch[0] for batch in times._batches]
    assert max(weights) == min(weights)
    summary = times.summary()
    assert summary.count == 50_000
    assert summary.mean.low < float(numpy.exp(2)) < summary.mean.high
    assert summary.p50.low < 1.0 < summary.p50.high


def test_weights_are_as_many_values() -> None:
    one, many = Histogram(), Histogram()
    for value in (1.0, 5.0, 5.0, 5.0):
        one.add(value)
    many.add(1.0)
    many.add(5.0, 3)
    assert (one.mean, one.percentile(0.5), one.count) == (many.mean, many.percentile(0.5), many.count)


def test_a_curve_ends_at_one() -> None:
    times = Histogram()
    for value in (0.0, 0.0, 1.0, 2.0):
        times.add(value)
    curve = times.curve()
    assert curve[0] == (0.0, 0.5)
    assert curve[-1][1] == 1.0
    assert Histogram().curve() == []


def test_few_values_have_no_interval() -> None:
    times = Histogram()
    times.add(3.0)
    estimate = times.summary().mean
    assert (estimate.value, estimate.low, estimate.high, estimate.known) == (3.0, 3.0, 3.0, False)


@given(st.lists(st.tuples(st.floats(0, 1000), st.floats(0, 50), st.floats(0, 9)), max_size=40))
def test_areas_are_kept_however_long_the_run(segments: list[tuple[float, float, float]]) -> None:
    one, busy = Series(("load",)), Series(("busy", "running", "pages"))
    for start, length, value in segments:
        one.add("load", start, start + length, value)
    if segments:
        start, length, value = numpy.array(segments).T
        busy.spread(start, start + length, busy=numpy.ones_like(start), running=value, pages=2 * value)
    area = sum(length * value for _, length, value in segments)
    assert one.area("load") == pytest.approx(area, abs=1e-6)
    assert busy.area("busy") == pytest.approx(sum(length for _, length, _ in segments), abs=1e-6)
    assert (busy.area("running"), busy.area("pages")) == pytest.approx((area, 2 * area), abs=1e-6)
    assert len(one.areas["load"]) == BINS


def test_means_follow_a_ramp() -> None:
    series = Series(("load",))
    for second in range(10_000):
        series.add("load", second, second + 1, second)
    points = series.means("load", 10_000)
    assert 256 <= len(points) <= BINS
    for time, value in points[1:-1]:
        assert value == pytest.approx(time, abs=1.0)


@st.composite
def grown(draw, uneven: bool):
    """A few sequences that joined at different steps, and the step now."""
    now = draw(st.integers(50, 80))
    found = []
    for order in range(draw(st.integers(1, 6))):
        sequence = Sequence(SimulatedRequest(order, 0.0, 1, 1000))
        sequence.order, sequence.joined = order, draw(st.integers(0, 50))
        sequence.base = draw(st.integers(1, 60))
        sequence.steps = draw(st.integers(100, 300))
        sequence.left = draw(st.integers(sequence.steps, 4 * sequence.steps)) if uneven else sequence.steps
        found.append(sequence)
    return now, found


def held(sequences: list[Sequence], step: int, page: int) -> int:
    """Pages, counted one by one."""
    return sum(-(-(each.base + each.grown(step)) // page) for each in sequences)


@pytest.mark.parametrize("uneven", [False, True])
@given(st.data(), st.sampled_from([1, 4, 16]), st.integers(0, 40))
def test_growth_is_what_counting_every_sequence_gives(uneven: bool, data, page: int, steps: int) -> None:
    now, sequences = data.draw(grown(uneven))
    growth = UnevenGrowth(page) if uneven else EvenGrowth(page)
    for sequence in sequences:
        growth.add(sequence)
    growth.advance(0, now)
    need = held(sequences, now + steps, page) - held(sequences, now, page)
    assert growth.pages(now, steps) == need
    assert growth.pages(now, 1) == held(sequences, now + 1, page) - held(sequences, now, page)
    room = data.draw(st.integers(0, 60))
    most = growth.steps(now, room, 20)
    assert held(sequences, now + most, page) - held(sequences, now, page) <= room
    assert most == 20 or held(sequences, now + most + 1, page) - held(sequences, now, page) > room
    gone = sequences.pop()
    growth.remove(gone)
    assert growth.pages(now, steps) == held(sequences, now + steps, page) - held(sequences, now, page)


@pytest.mark.parametrize(("draft", "acceptance"), [(1, 0.3), (4, 0.7), (7, 0.9)])
def test_verify_steps_have_their_mean_and_are_repeatable(draft: int, acceptance: float) -> None:
    drawn = [verify_steps(200, draft, acceptance, 5, number) for number in range(500)]
    assert drawn == [verify_steps(200, draft, acceptance, 5, number) for number in range(500)]
    steps, tokens = (sum(column) for column in zip(*drawn, strict=True))
    assert tokens / steps == pytest.approx(tokens_per_loop(acceptance, draft), rel=0.01)
    assert all(200 <= produced < 200 + draft + 1 for _, produced in drawn)


def test_one_token_has_no_time_per_token() -> None:
    fleet = Fleet(Pool(LinearTimes(0.02), 100_000))
    result = simulate(fleet, OpenLoop(Poisson(2.0), 50, Fixed(100), Fixed(1)))
    assert (result.latency["ttft_s"].count, result.latency["tpot_s"].count) == (50, 0)


def test_an_interval_is_the_error_of_the_mean() -> None:
    """Its half-width is about 2.04 standard errors of the values (Student's t of some thirty batches), not of a
    batch."""
    values = random.Random(1).choices(range(1, 1001), k=20_000)
    times = Histogram()
    for value in values:
        times.add(float(value))
    mean = times.summary().mean
    standard_error = statistics.stdev(values) / math.sqrt(len(values))
    assert 1.2 * standard_error < (mean.high - mean.low) / 2 < 3.5 * standard_error
