"""GRPO by our own program on virtual devices: rewards rise, and the loss is the one that is written in the papers."""

import json
from dataclasses import replace
from pathlib import Path

import numpy
import pytest

from dragonscale.runtime.train.settings import Order, RunSettings
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.training.plan.plan import Plan
from tests.runtime.tiny import CONFIGS

jax = pytest.importorskip("jax")


def order(folder: Path):
    from dragonscale.runtime.rl.grpo import GrpoOrder

    path = folder / "config.json"
    path.write_text(json.dumps({**CONFIGS["llama"], "num_hidden_layers": 1}))
    run = RunSettings(steps=8, batch=16, seq=16, learning_rate=0.02, dtype="fp32", weight_decay=0.0, capacity=0.0)
    made = GrpoOrder(
        Order(str(path), "", Plan(microbatch=8), run),
        ServingPlan(),
        prompts=4,
        samples=8,
        prompt=4,
        output=12,
    )
    return replace(made, updates=2, kl=0.01, together=8)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    from dragonscale.runtime.rl.grpo import grpo, prepare

    parts = prepare(order(tmp_path_factory.mktemp("grpo")))
    return parts, grpo(parts)


@pytest.mark.slow
def test_rewards_of_a_rule_rise(run):
    first, *_, last = run[1]
    assert first.reward < 0.6
    assert last.reward > first.reward + 0.2
    assert first.length == 12
    assert set(first.phases) == {"generation", "reward", "logprob", "reference", "update", "weight transfer"}


@pytest.mark.slow
def test_the_policy_leaves_its_reference(run):
    first, *_, last = run[1]
    assert first.kl == pytest.approx(0.0, abs=1e-6)
    assert last.kl > 1e-3


@pytest.mark.slow
def test_the_engine_draws_from_the_trainers_weights(run):
    """After all updates the engine's own log-probabilities of an answer are those that the trainer reads."""
    from dragonscale.runtime.rl.answers import rows_of
    from dragonscale.runtime.serve.requests import GenerateRequest, Sampling

    parts, engine, prompt = run[0], run[0].answerer.engine, [5, 9, 2, 7]
    engine.add(GenerateRequest(id="a", prompt=prompt, length=12, sampling=Sampling(logprobs=0)))
    told = [one for _ in range(20) for said in engine.step() for one in said.logprobs]
    tokens, targets = rows_of([prompt], [[one.token for one in told]], 1, 16)
    tokens, targets = (parts.put(numpy.repeat(one, 16, 0)) for one in (tokens, targets))
    read = parts.read(parts.state["params"], tokens, targets)[0, 0, 3:15]
    assert numpy.allclose(read, [one.logprob for one in told], atol=1e-3)


@pytest.mark.parametrize(
    ("where", "answers", "size"), [("", 256, 64), ("h200:1", 256, 64), ("h200:1", 24, 24), ("h200:1", 202, 2)]
)
def test_a_microbatch_without_a_word_fills_a_chip(where, answers, size):
    """8,192 tokens in rows of 128; fewer where that does not divide the answers."""
    from dragonscale.commands.run.run_rl import filled
    from dragonscale.runtime.rl.grpo import GrpoOrder

    run = RunSettings(steps=8, batch=answers, seq=128, dtype="bf16")
    asked = GrpoOrder(Order("qwen2.5-1.5b", "", Plan(), run), ServingPlan(), 2, answers // 2, 64, 64)
    assert filled(asked, where).train.plan == Plan(microbatch=size)


def test_a_microbatch_without_a_word_leaves_room_for_the_engine():
    from dragonscale.commands.run.run_rl import filled, planned_step
    from dragonscale.runtime.rl.grpo import GrpoOrder

    run = RunSettings(steps=8, batch=64, seq=1024, dtype="bf16")
    asked = GrpoOrder(Order("qwen2.5-1.5b", "", Plan(), run), ServingPlan(), 8, 8, 512, 512)
    found = filled(asked, "rtx-6000-ada:1")
    step = planned_step(found, "rtx-6000-ada:1", [512.0])
    assert 1 <= found.train.plan.microbatch < 8
    assert step.train_bytes + step.generation.hbm_bytes < step.plan.job.slice.chip.visible


def test_an_objective_is_clipped_and_held_to_its_reference():
    from dragonscale.runtime.train.rewarded import Rewarded

    old = numpy.log(numpy.array([0.5, 0.5, 0.5, 0.5]))
    now = numpy.log(numpy.array([0.8, 0.8, 0.55, 0.5]))
    given = Rewarded(numpy.array([1, 1, 1, -1]), numpy.array([1.0, -1.0, 2.0, 1.0]), old, old, clip=0.2, kl=0.0)
    assert numpy.allclose(given.objective(-now), [-1.2, 1.6, -2.2, 0.0])
    held = replace(given, kl=0.5).objective(-now)
    assert held[0] - given.objective(-now)[0] == pytest.approx(0.5 * (0.625 + numpy.log(1.6) - 1), rel=1e-4)
    assert held[3] == 0
