"""What `dscale serve` recommends is what `dscale simulate` finds: the command that an answer prints is run, and its
numbers are the answer's."""

from dataclasses import replace

import pytest

from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.simulate.simulate_question import read_question
from dragonscale.serving.iteration.deployment import deploy
from dragonscale.serving.space.frontier import Ask, Config, judge
from dragonscale.serving.space.ranking import load_for, loaded, place_wait
from dragonscale.serving.space.space import Formats, Lot, stack
from dragonscale.serving.steady.speculation import Draft
from dragonscale.simulation import ClosedLoop
from tools import confirm_serving
from tools.confirm_serving import APART, Comparison, Confirmation, confirm, questions, simulated, table

SAMPLE = [
    "llama3.1-8b --on h100:1 --prompt 2048 --output 512",
    "llama3.1-70b --on h100:8 --plan tensor=8 --batch 32 --prompt 2048 --output 256 --engine sglang",
    "llama3.1-8b --on l40s:1 --prompt 1024 --output 256 --rate 6/s --ttft 2s",
    "llama3.1-70b --on h100:8 --prompt 2048 --output 256 --rate 12/s --tpot 60ms",
    "gpt-oss-120b --on b200:4 --prompt 8192 --output 256 --rate 4/s",
    "llama3.1-8b --on h200:1 --prompt 1024 --output 256 --accept 0.7 --drafts 1",
    "gemma3-27b --on l40s:4 --prompt 128 --output 128 --accept 0.7 --drafts 3",
    "deepseek-v3 --on h100:32 --plan data=16,tensor=2,expert=32 --batch 512 --prompt 1024 --output 256 --cached 0.8",
    "deepseek-v2-lite --on l40s:1 --prompt 2048 --output 256 --token-budget 2048 --batch 24",
    "mixtral-8x7b --on a100:8 --plan data=8,expert=8 --batch 200 --prompt 512 --output 256",
    "llama3.1-70b --on h200:4 --prompt 2048 --output 256 --disaggregate",
    "gemma3-27b --on h100:2 --prompt 128 --output 128 --disaggregate",
    "llama3.1-70b --on h100:8 --prompt 2048 --output 256 --e2e p95:12s --itl p90:200ms",
]


@pytest.mark.parametrize("question", SAMPLE)
def test_a_recommendation_is_what_its_own_command_simulates(question):
    found = confirm(question, requests=1500)
    assert found.read, found.refused
    assert not found.read.faults, (found.read.command, found.read.faults)


@pytest.mark.slow
def test_nearly_all_recommendations_of_the_grid_are_confirmed():
    made = [one for one in map(confirm, questions()) if one.read]
    assert len(made) >= 300
    wrong = [f"{one.question}: {'; '.join(one.read.faults)}" for one in made if one.read.faults]
    assert len(wrong) <= 0.03 * len(made), "\n".join(wrong)


def test_what_is_apart_is_told_with_both_numbers():
    one = Comparison("c", {"tpot": 0.0113, "ttft": 0.2}, {"tpot": 0.01, "ttft": 0.2 / (1 + APART / 2)})
    assert one.faults == ["TPOT 0.0113, simulated 0.01 (+13%)"]
    assert replace(one, verdicts=(True, False)).faults[1] == "targets met: True, simulated False"
    right = replace(one, answer=one.simulated)
    row = table([Confirmation("q", one, one), Confirmation("q", right, one)]).splitlines()[-1]
    assert row.startswith("| all | 2 | 1 (50%) |")
    assert row.endswith("| 0 (0%) |")
    late = replace(one, answer={"e2e p95": 1.2}, simulated={"e2e p95": 1.0})
    assert late.faults == ["e2e p95 1.2, simulated 1 (+20%)"]


def test_the_run_has_other_random_numbers_and_formulas_are_compared_too(monkeypatch):
    """What an answer took from its own run is not compared with that run, and formulas with what corrected them."""
    question = "llama3.1-8b --on h100:1 --prompt 1024 --output 256 --tpot p95:25ms --e2e 12s"
    found = confirm(question, requests=600)
    assert {"tpot p95", "e2e mean"} <= set(found.read.apart)
    assert found.read.apart["tpot p95"] != 0
    assert "tpot p95" not in found.formulas.apart
    assert found.formulas.command != found.read.command  # means ask for a larger batch than percentiles
    monkeypatch.setattr(confirm_serving, "answered", lambda run: (simulated(run), False))
    assert confirm(question, requests=600).read.faults[-1] == "targets met: True, simulated False"


def judged(model: str, on: str, plan: str, engine: str, ask: Ask, batches: list[int], draft: Draft | None = None):
    one = deploy(model, on, plan, engine)
    formats = Formats(one.plan.weights, one.plan.compute, one.plan.kv, one.plan.attention)
    return judge(
        one.model, Lot((one.piece,), stack([one.plan], formats, one.plan.spread)), one.engine, ask, batches, draft
    )


@pytest.fixture(scope="module")
def batches() -> list[Config]:
    return judged("llama3.1-8b", "h100:1", "", "vllm", Ask(1024, 256, rate=1.0), [1, 2, 4, 8, 16, 32, 64])


def test_a_replica_at_a_rate_is_the_batch_that_comes_to_it(batches):
    largest = batches[-1]
    for one in batches[2:-1]:
        alone = loaded(largest, batches, one.state.requests * (1 - 1 / one.batch), 1)
        assert alone[1] == pytest.approx(one.state.tpot)  # a random arrival meets as many others as there are
        many = loaded(largest, batches, one.state.requests, 1000)
        assert many[1] == pytest.approx(one.state.tpot, rel=0.01)  # dealt out evenly, only its share
        assert many[0] <= loaded(largest, batches, one.state.requests, 1)[0]
    assert loaded(largest, batches, 0.0, 1)[1] == pytest.approx(batches[0].state.tpot)


def test_a_full_batch_is_waited_for(batches):
    largest, rate = batches[-1], batches[-1].state.requests
    assert place_wait(largest, 0.5, 0.5) < 1e-3
    assert place_wait(largest, 0.95, 0.95) > 10 * place_wait(largest, 0.8, 0.8)
    assert place_wait(largest, 0.9, 0.9, 4) < place_wait(largest, 0.9, 0.9) / 4
    near = loaded(largest, batches, 0.97 * rate, 1)[0]
    assert near > 2 * loaded(largest, batches, 0.7 * rate, 1)[0]
    tight, loose = (load_for(largest, Ask(1024, 256, ttft=largest.state.ttft + room)) for room in (0.001, 2.0))
    assert 0.5 < tight < loose


def test_random_arrivals_wait_for_half_a_step_and_followers_for_what_is_left():
    """sglang-ep has no time before the engine: a request that follows another comes as a step begins."""
    ask, batch = Ask(1024, 256), [512]
    plan = "data=16,tensor=2,expert=32,weights=fp8,compute=fp8_block"
    closed = judged("deepseek-v3", "h100:32", plan, "sglang-ep", ask, batch)[0].state
    open_ = judged("deepseek-v3", "h100:32", plan, "sglang-ep", replace(ask, rate=1.0), batch)[0].state
    assert closed.under_way + closed.waiting > 0.95 * closed.decode
    assert open_.under_way < 0.6 * open_.decode


def test_drafts_lengthen_the_iteration_that_a_request_waits_for():
    ask, places = Ask(1024, 256), ("llama3.1-8b", "h200:1", "", "vllm")
    plain = judged(*places, ask, [64])[0].state
    drafted = judged(*places, ask, [64], Draft(0.7, None, 0.05, (3,)))[0].state
    assert drafted.tpot < plain.tpot
    assert drafted.under_way > 1.1 * plain.under_way
    assert drafted.prefill > plain.prefill  # the tokens to verify are beside the prompt
    assert drafted.output == plain.output
    assert drafted.latency * drafted.requests == pytest.approx(drafted.batch, rel=0.01)


def test_a_run_is_as_long_as_what_is_in_flight_needs():
    many = read_question(SimulateQuestion("llama3.1-8b", on="h100:1", replicas=64, clients=64 * 128, output="256"))
    assert many.job.source.requests >= 5 * 64 * 128
    assert (many.job.options.warmup, many.job.options.cooldown) == pytest.approx((0.3, 0.2), abs=0.01)
    few = read_question(SimulateQuestion("llama3.1-8b", on="h100:1", rate="4/s", output="256"))
    assert few.job.source.requests == 10_000
    assert 0 < few.job.options.cooldown < 0.01
    slow = read_question(SimulateQuestion("llama3.1-8b", on="h100:1", rate="4/s", output="2048", requests="200"))
    assert slow.job.source.requests == 200  # as asked for
    assert slow.job.options.cooldown > 0.1


def test_clients_begin_over_the_time_of_one_request_where_prompts_share_iterations():
    words = {"plan": "data=8,expert=8", "prompt": "128", "output": "128", "clients": 1536}
    source = read_question(SimulateQuestion("glm-4.5-air", on="h100:8", **words)).job.source
    assert isinstance(source, ClosedLoop)
    assert 3 < source.ramp_s < 12
