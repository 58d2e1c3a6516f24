"""Engines that settle iterations ahead, or look for requests only now and then: what a request waits for."""

import pytest

from dragonscale.errors import InputError
from dragonscale.simulation import (
    ClosedLoop,
    Fixed,
    Fleet,
    LinearTimes,
    Pool,
    Scheduler,
    SimulationOptions,
    Uniform,
    simulate,
)

TIMES = LinearTimes(fixed_s=0.01, prompt_s=1e-5)


def first_token(overhead=0.001, **settings):
    """Mean seconds to the first token of requests that find the engine decoding, their own prefill apart."""
    scheduler = Scheduler("chunked", sequences=64, tokens=8192, **settings)
    result = simulate(
        Fleet(Pool(TIMES, 10**7, scheduler), overhead_s=overhead),
        ClosedLoop(8, 800, Fixed(100), Uniform(50, 150), ramp_s=0.53),
        SimulationOptions(warmup=0.1),
    )
    assert result.outcome.finished == 800
    return result.latency["ttft_s"].mean.value


def test_one_iteration_ahead_is_one_iteration_more():
    assert first_token(ahead=1) - first_token() == pytest.approx(0.01, abs=0.002)
    assert first_token(ahead=2) - first_token() == pytest.approx(0.02, abs=0.003)


def test_looking_now_and_then_costs_half_the_interval():
    assert first_token(poll=10) - first_token() == pytest.approx(0.045, abs=0.02)


def test_an_idle_engine_looks_at_once():
    def alone(**settings):
        scheduler = Scheduler("chunked", sequences=64, tokens=8192, **settings)
        load = ClosedLoop(1, 20, Fixed(100), Fixed(10))
        return simulate(Fleet(Pool(TIMES, 10**7, scheduler)), load, SimulationOptions()).latency["ttft_s"].mean.value

    assert alone(ahead=1, poll=30) == pytest.approx(alone())


def test_every_decode_step_an_event_gives_the_same():
    def run(leap):
        scheduler = Scheduler("chunked", sequences=64, tokens=8192, ahead=1, poll=7)
        load = ClosedLoop(8, 80, Fixed(100), Fixed(97), ramp_s=0.53)
        return simulate(
            Fleet(Pool(TIMES, 10**7, scheduler), overhead_s=0.001), load, SimulationOptions(leap=leap)
        ).latency

    assert run(True)["ttft_s"].mean.value == pytest.approx(run(False)["ttft_s"].mean.value, rel=1e-6)
    assert run(True)["tpot_s"].mean.value == pytest.approx(run(False)["tpot_s"].mean.value, rel=1e-6)


def test_nonsense_is_refused():
    with pytest.raises(InputError, match="ahead"):
        Scheduler("chunked", ahead=-1)
    with pytest.raises(InputError, match="poll"):
        Scheduler("chunked", poll=0)
