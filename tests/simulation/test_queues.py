"""The simulator against queueing theory: limits that are known exactly."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy
import pytest

from dragonscale.simulation import (
    AtOnce,
    Diurnal,
    Fixed,
    Fleet,
    Gamma,
    LinearTimes,
    Lognormal,
    OpenLoop,
    Poisson,
    Pool,
    Prefixes,
    Scheduler,
    SimulationOptions,
    Uniform,
    simulate,
)
from tests.simulation.fleets import finished_run


@dataclass(frozen=True)
class Geometric:
    """Lengths whose time is nearly exponential, for Markovian service."""

    mean: float

    def draw(self, random: numpy.random.Generator) -> Iterator[int]:
        while True:
            yield from random.geometric(1 / self.mean, 4096).tolist()


def one_at_a_time(seconds: float) -> Fleet:
    """A server that takes one request after the other, always for the same time."""
    return Fleet(Pool(LinearTimes(seconds), 1000, Scheduler("continuous", sequences=1)))


def erlang_c_wait(servers: int, rate: float, service_s: float) -> float:
    """Mean wait in M/M/c."""
    offered = rate * service_s
    terms = [offered**k / math.factorial(k) for k in range(servers)]
    last = offered**servers / math.factorial(servers) * servers / (servers - offered)
    return last / (sum(terms) + last) / (servers / service_s - rate)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_one_server_with_constant_service_waits_as_m_d_1(load: float) -> None:
    result = simulate(one_at_a_time(1.0), OpenLoop(Poisson(load), 40_000, Fixed(10), Fixed(1)))
    wait = result.latency["queue_s"].mean
    theory = load / (2 * (1 - load))
    assert wait.value == pytest.approx(theory, rel=0.05)
    assert wait.low <= theory <= wait.high
    assert result.utilisation == pytest.approx(load, rel=0.02)
    assert result.latency["e2e_s"].mean.value == pytest.approx(wait.value + 1)


@pytest.mark.parametrize(("spread", "requests"), [(0.5, 20_000), pytest.param(1.0, 80_000, marks=pytest.mark.slow)])
def test_one_server_with_any_service_waits_as_pollaczek_and_khinchine_say(spread: float, requests: int) -> None:
    """M/G/1: rate * E[S^2] / 2 / (1 - load), where a prompt takes as long as it is."""
    prompts = Lognormal(1000, spread, 100_000)
    drawn = prompts.draw(numpy.random.default_rng(5))
    service = numpy.array([next(drawn) for _ in range(100_000)]) / 1000
    rate = 0.6 / service.mean()
    server = Fleet(Pool(LinearTimes(0.0, prompt_s=1e-3), 200_000, Scheduler("continuous", sequences=1)))
    result = simulate(server, OpenLoop(Poisson(rate), requests, prompts, Fixed(1)))
    theory = rate * (service**2).mean() / 2 / (1 - rate * service.mean())
    assert result.latency["queue_s"].mean.value == pytest.approx(theory, rel=0.08)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.6), (4, 0.8), pytest.param(16, 0.9, marks=pytest.mark.slow)])
def test_slots_with_exponential_service_wait_as_m_m_c(servers: int, load: float) -> None:
    """Slots of a batch whose steps take the same time whatever is in them are servers with one queue."""
    step_s, steps = 2.0**-10, 1000
    rate = load * servers / (step_s * steps)
    fleet = Fleet(Pool(LinearTimes(step_s), 10_000_000, Scheduler("chunked", sequences=servers)))
    result = simulate(fleet, OpenLoop(Poisson(rate), 30_000, Fixed(1), Geometric(steps)))
    theory = erlang_c_wait(servers, rate, step_s * steps)
    assert result.latency["queue_s"].mean.value == pytest.approx(theory, rel=0.1)
    assert result.mean_running == pytest.approx(load * servers, rel=0.03)


@pytest.mark.parametrize("kind", ["continuous", "chunked"])
def test_littles_law(kind: str) -> None:
    """Requests in the system, summed over time by activities, are the requests' times in the system, summed by
    requests."""
    times = LinearTimes(0.02, 2e-5, 1e-8, 5e-5)
    fleet = Fleet(Pool(times, 16_000, Scheduler(kind, sequences=24), replicas=3))
    run = finished_run(fleet, OpenLoop(Gamma(9.0, 3.0), 3000, Lognormal(1000, 1.0, 8000), Uniform(1, 300)))
    areas = run.series.area("running") + run.series.area("waiting")
    assert areas == pytest.approx(run.tally.all_e2e_s)
    assert run.tally.preempted > 0


@pytest.mark.slow
def test_intervals_hold_the_truth() -> None:
    """Batch means of a loaded queue cover the true mean nearly as often as they say."""
    theory, held, runs = 0.7 / (2 * 0.3), 0, 40
    for seed in range(runs):
        traffic = OpenLoop(Poisson(0.7), 2000, Fixed(10), Fixed(1))
        wait = simulate(one_at_a_time(1.0), traffic, SimulationOptions(seed=seed)).latency["queue_s"].mean
        held += wait.low <= theory <= wait.high
    assert held / runs > 0.85


def test_steady_state_of_a_full_batch_is_the_formula() -> None:
    """Saturated decoding: throughput is batch over step time, with prompts' share of the time taken off."""
    times = LinearTimes(0.02, 0.0, 0.0, 1e-5)
    fleet = Fleet(Pool(times, 1_000_000, Scheduler("chunked", sequences=32, tokens=8192)))
    traffic = OpenLoop(AtOnce(), 3200, Fixed(500), Uniform(100, 300))
    result = simulate(fleet, traffic, SimulationOptions(warmup=0.1, cooldown=0.2))
    seconds_per_request = 200 * 0.02 / 32 + 500 * 1e-5
    assert simulate(fleet, traffic).throughput.requests_per_s == pytest.approx(1 / seconds_per_request, rel=0.02)
    assert result.outcome.finished == 3200
    assert result.mean_batch == pytest.approx(32, rel=0.02)


def test_a_batch_is_the_sequences_that_have_a_place() -> None:
    """While prompts run alone, those who decode keep theirs; replicas that only prefill have none to decode in."""
    times = LinearTimes(0.02, 0.0, 0.0, 1e-5)
    pool = Pool(times, 1_000_000, Scheduler("continuous", sequences=32, tokens=8192))
    traffic = OpenLoop(AtOnce(), 1600, Fixed(500), Uniform(10, 30))
    alone = simulate(Fleet(pool), traffic)
    assert alone.use["serve"].prompt_share > 0.2
    assert alone.mean_batch == pytest.approx(32, rel=0.05)
    assert alone.use["serve"].places_share == pytest.approx(1, rel=0.05)
    apart = simulate(Fleet(pool, prefill=pool), traffic)
    assert apart.mean_batch == pytest.approx(32 * apart.use["serve"].places_share)


@pytest.mark.parametrize(
    ("arrivals", "cv"),
    [(Poisson(5.0), 1.0), (Gamma(5.0, 3.0), 3.0), (Gamma(5.0, 0.3), 0.3), (Diurnal(5.0, 0.8, 50.0), None)],
)
def test_arrivals_have_their_rate_and_burstiness(arrivals, cv: float | None) -> None:
    requests, _ = OpenLoop(arrivals, 40_000, Fixed(1), Fixed(1)).start(3)
    times = numpy.array([request.arrival_s for request in requests])
    gaps = numpy.diff(times)
    assert gaps.min() >= 0
    assert 1 / gaps.mean() == pytest.approx(5.0, rel=0.06)
    if cv is None:
        phase = times % 50.0
        day = ((phase > 5) & (phase < 20)).sum() / ((phase > 30) & (phase < 45)).sum()
        mean = numpy.sin(2 * numpy.pi * numpy.linspace(5, 20, 1000) / 50).mean()
        assert day == pytest.approx((1 + 0.8 * mean) / (1 - 0.8 * mean), rel=0.1)
    else:
        assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)


def test_lengths_have_their_moments() -> None:
    traffic = OpenLoop(AtOnce(), 20_000, Lognormal(1000, 1.5), Uniform.below(200, 0.5), Prefixes(4, 64, 0.5, 1.0))
    requests = list(traffic.start(1)[0])
    inputs = numpy.array([request.input_tokens for request in requests])
    outputs = [request.output_tokens for request in requests]
    assert inputs.mean() == pytest.approx(1000, rel=0.05)
    assert inputs.std() / inputs.mean() == pytest.approx(1.5, rel=0.15)
    assert (min(outputs), max(outputs)) == (100, 200)
    groups = [request.blocks[0] for request in requests if request.blocks]
    assert len(groups) == pytest.approx(10_000, rel=0.05)
    assert groups.count(0) / len(groups) == pytest.approx(1 / (1 + 1 / 2 + 1 / 3 + 1 / 4), rel=0.05)
