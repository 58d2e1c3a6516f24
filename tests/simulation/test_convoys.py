"""Requests that come together must not go on together: what a fleet is said to do does not depend on how long it is
watched."""

from dataclasses import replace

import pytest

from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.simulate.ask_simulate import run_simulation
from dragonscale.commands.simulate.simulate_question import read_question
from dragonscale.simulation import (
    Fixed,
    Fleet,
    LinearTimes,
    OpenLoop,
    Poisson,
    Pool,
    Scheduler,
    SimulationOptions,
    Uniform,
    simulate,
)
from dragonscale.simulation.replica import Replica
from dragonscale.simulation.replica_state import Shared
from dragonscale.simulation.request import Sequence, SimulatedRequest
from dragonscale.simulation.result import Tally
from dragonscale.simulation.series import Series

SERVER = LinearTimes(0.0127, 0.0, 0.0, 4.3e-5)
"""About llama3-70b on eight H100: a step, and 88 ms for a prompt of 2,048 tokens."""


def first_token(requests: int, router: str = "least_loaded", output: Fixed | Uniform | None = None) -> float:
    pool = Pool(SERVER, 1_000_000, replicas=8, router=router)
    traffic = OpenLoop(Poisson(40.0), requests, Fixed(2048), output or Fixed(256))
    return simulate(Fleet(pool), traffic, SimulationOptions(warmup=0.1)).latency["ttft_s"].mean.value


def test_equal_outputs_do_not_gather_on_a_replica_that_has_emptied() -> None:
    """By requests alone the mean is three times as high after 12,000 requests, and still rises."""
    soon, late = first_token(1500), first_token(12_000)
    assert late == pytest.approx(soon, rel=0.05)
    assert late < 1.1 * first_token(1500, "round_robin")


@pytest.mark.parametrize("router", ["least_loaded", "prefix_affinity", "slo_aware"])
def test_routers_that_look_at_replicas_agree_with_taking_turns_where_all_are_alike(router: str) -> None:
    assert first_token(2000, router, Uniform(128, 384)) < 1.1 * first_token(2000, "round_robin", Uniform(128, 384))


def test_a_cache_that_comes_from_a_prefill_pool_is_no_prompt_to_wait_for() -> None:
    sequence = Sequence(SimulatedRequest(0, 0.0, 2048, 16))
    assert sequence.unprefilled == 2048
    sequence.ready = True
    assert sequence.unprefilled == 0


ONE = SimulateQuestion("llama3.1-8b", on="h100:1", rate="10/s", requests="400", prompt="1000", output="200")


def outputs(question: SimulateQuestion) -> list[int]:
    asked = read_question(question)
    requests, _ = asked.job.source.start(0)
    return [request.output_tokens for request in requests]


def test_outputs_vary_unless_they_are_fixed() -> None:
    found = outputs(ONE)
    assert (min(found), max(found)) == pytest.approx((100, 300), abs=5)
    assert len(set(outputs(replace(ONE, rate="", clients=64)))) > 32
    assert set(outputs(replace(ONE, lengths="fixed"))) == {200}
    assert run_simulation(read_question(ONE))[0].traffic["lengths"] == "varied"


def test_varied_outputs_stay_within_the_context_where_the_mean_does() -> None:
    long = replace(ONE, model="llama3-8b", prompt="7900", output="250", requests="60")  # a context of 8,192
    found = outputs(long)
    assert max(found) <= 8192 - 7900
    assert min(found) >= 250 - (8192 - 7900 - 250)
    assert not run_simulation(read_question(long))[0].requests.refused


def test_what_requests_queue_for_is_named() -> None:
    """Places, where most are taken; prefill, where most of the time goes into prompts."""
    report = run_simulation(read_question(replace(ONE, rate="19.4/s", max_seqs=32, output="100", requests="4000")))[0]
    assert report.bound_by == "places in batches", report.advice
    assert "--max-seqs" in report.advice
    report = run_simulation(read_question(replace(ONE, rate="38/s", output="4", requests="4000")))[0]
    assert report.bound_by == "prefill", report.advice
    assert "prefill pool" in report.advice


class SlowestRank(LinearTimes):
    """Ranks compute their own prompts side by side: an iteration takes as long as its longest piece."""

    def step(self, decodes: int, cached: float, chunks=(), queries: int = 1) -> float:
        return super().step(decodes, cached, [max(chunks)] if chunks else (), queries)


def test_a_predicted_first_token_counts_on_every_rank() -> None:
    """What `slo_aware` routes by: the prompts ahead are shared by the ranks, not one piece of all their budgets."""
    scheduler = Scheduler(tokens=8 * 1024, ranks=8)
    pool, tally, series = Pool(SlowestRank(0.01, prompt_s=1e-4), 10**6, scheduler), Tally({}, 0, 1, False), Series(())
    replica = Replica(0, pool, Shared(tally, series, 0, True, lambda *_: None, lambda *_: None))
    assert replica.predict(8 * 1024, 0.0) == pytest.approx(0.01 + 1e-4 * 1024)
    assert replica.predict(16 * 1024, 0.0) == pytest.approx(2 * (0.01 + 1e-4 * 1024))


@pytest.mark.parametrize("router", ["round_robin", "least_loaded", "prefix_affinity", "slo_aware"])
@pytest.mark.parametrize("replicas", [1, 8])
def test_four_times_as_many_requests_give_the_same_answer(router: str, replicas: int) -> None:
    """Within the interval that the shorter run names, and within 5% of it where that is narrow; equal lengths too."""
    pool = Pool(SERVER, 1_000_000, replicas=replicas, router=router)
    short, long = (
        simulate(
            Fleet(pool), OpenLoop(Poisson(5.0 * replicas), count, Fixed(2048), Fixed(64)), SimulationOptions(warmup=0.1)
        ).latency["ttft_s"]
        for count in (800, 3200)
    )
    reach = max(short.mean.high - short.mean.value, 0.05 * short.mean.value)
    assert short.mean.known
    assert abs(long.mean.value - short.mean.value) <= reach
