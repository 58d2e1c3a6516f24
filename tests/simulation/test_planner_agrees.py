"""The simulator and the planner never disagree: step times are the same function, and a fleet at a steady load does what the
planner's steady state says."""

import pytest

from dragonscale.serving.deployment import Deployment, deploy
from dragonscale.serving.frontier import Ask, Config, judge
from dragonscale.serving.phases import Iteration, iteration_cost
from dragonscale.serving.space import Formats, Lot, stack
from dragonscale.serving.table import StepTable
from dragonscale.simulation import ClosedLoop, Fixed, Fleet, SimulationOptions, Uniform, simulate
from dragonscale.simulation.deployed import pool_for

FP8 = "weights=fp8,compute=fp8,kv=fp8"
SERVED = [
    ("llama3-70b", "h100:8", f"tensor=8,{FP8}", "vllm", 64, 1024, 512),
    ("llama3-70b", "h100:8", f"tensor=8,{FP8}", "sglang", 128, 512, 256),
    ("llama3-70b", "v5e:4x4", "weights=int8,kv=int8", "generic", 32, 2048, 256),
    ("deepseek-v3", "h200:8", "tensor=8,weights=fp8,compute=fp8_block", "vllm", 48, 1024, 512),
    ("gpt-oss-120b", "b200:1", "weights=mxfp4,attention=bf16", "trtllm", 64, 1024, 512),
]


def planned(deployment: Deployment, batch: int, prompt: int, output: int) -> Config:
    plan = deployment.plan
    lot = Lot(
        (deployment.piece,), stack([plan], Formats(plan.weights, plan.compute, plan.kv, plan.attention), plan.spread)
    )
    found = judge(deployment.model, lot, deployment.engine, Ask(prompt, output), (batch,))
    return next(one for one in found if one.batch == batch)


@pytest.mark.parametrize(("model", "on", "plan", "engine", "clients", "prompt", "output"), SERVED)
def test_a_steady_load_is_the_planners_steady_state(model, on, plan, engine, clients, prompt, output):
    deployment = deploy(model, on, plan, engine)
    pool = pool_for(deployment, prompt + 2 * output)
    ramp = 1.5 * output * pool.times.step(clients, clients * (prompt + output / 2))
    traffic = ClosedLoop(clients, clients * 20, Fixed(prompt), Uniform(output // 2, output + output // 2), ramp_s=ramp)
    result = simulate(Fleet(pool), traffic, SimulationOptions(seed=0, warmup=0.35, cooldown=0.35))
    one = planned(deployment, clients, prompt, output)
    assert result.throughput.output_tokens_per_s == pytest.approx(float(one.state.tokens), rel=0.03)
    assert result.latency["tpot_s"].mean.value == pytest.approx(float(one.state.tpot), rel=0.04)


@pytest.mark.parametrize(("model", "on", "plan", "engine"), [row[:4] for row in SERVED])
def test_a_tabulated_step_is_the_computed_step(model, on, plan, engine):
    deployment = deploy(model, on, plan, engine)
    table = StepTable(deployment)
    for decodes, keys, prompts, tokens, past in (
        (1, 100, 0, 0, 0), (37, 900, 0, 0, 0), (300, 5000, 0, 0, 0),
        (0, 0, 1, 700, 0), (0, 0, 3, 1000, 0), (0, 0, 1, 2048, 6000), (50, 1500, 1, 512, 512),
    ):  # fmt: skip
        wanted = iteration_cost(deployment, Iteration(decodes, keys, 1, prompts, tokens, past)).expected
        found = table.step(decodes, float(decodes * keys), [(tokens, past)] * prompts)
        assert found == pytest.approx(float(wanted[0]), rel=0.03), (decodes, keys, prompts, tokens, past)


def test_steps_in_one_go_are_steps_one_by_one():
    table = StepTable(deploy("llama3-8b", "h100:1", "", "vllm"))
    for decodes, cached, queries in ((1, 10.0, 1), (40, 4000.0, 1), (200, 300000.0, 1), (16, 9000.0, 4)):
        each = [table.step(decodes, cached + decodes * done, (), queries) for done in range(900)]
        assert table.run(decodes, cached, 900, queries) == pytest.approx(sum(each), rel=1e-9)
        seconds = sum(each[:500]) + each[500] / 2
        assert table.steps_within(decodes, cached, seconds, queries) == 500
