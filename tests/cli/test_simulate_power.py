"""What a fleet draws while it serves."""

import itertools

import pytest

import dragonscale as ds
from dragonscale.simulation.fleet_sizing.power import chip_watts, decoding_watts


def test_a_gpu_draws_what_was_measured() -> None:
    """The fit as its authors print it: watts of an H100 by sequences that decode."""
    printed = {128: 583, 84: 570, 48: 540, 33: 510, 24: 479, 17: 442, 13: 413, 6: 350, 1: 304}
    for batch, watts in printed.items():
        assert decoding_watts(batch) == pytest.approx(watts, abs=2)
    assert chip_watts(0.0, 0.0, 64) == 80
    assert chip_watts(1.0, 1.0, 64) == 700


def test_tokens_of_a_joule_rise_with_the_load_and_watts_too() -> None:
    """The curve of power against latency: each rate a point."""
    runs = [ds.simulate("llama3-8b", on="h100:1", rate=f"{rate}/s", requests=300) for rate in (1, 4, 10)]
    for less, more in itertools.pairwise(runs):
        assert less.mean_watts < more.mean_watts < more.watts
        assert less.tokens_per_joule < more.tokens_per_joule
        assert less.latency["tpot_s"].mean < more.latency["tpot_s"].mean
    only = runs[0]
    tokens = sum(one.output_tokens for one in only.replicas) + only.requests.finished * 2048
    assert only.tokens_per_joule == pytest.approx(tokens / (only.mean_watts * only.simulated_s), rel=0.02)
    assert "W of 1.26kW at most" in str(only.sheet() if hasattr(only, "sheet") else only)


def test_where_only_the_limit_is_known_it_says_at_most() -> None:
    assert ds.simulate("llama3-8b", on="h100+power=400W:1", rate="4/s", requests=50).mean_watts is None
    run = ds.simulate("llama3-8b", on="b200:1", rate="4/s", requests=200)
    assert run.mean_watts is None
    rates = run.rates
    assert run.tokens_per_joule == pytest.approx((rates.input_tokens_per_s + rates.output_tokens_per_s) / run.watts)
