"""What would change nothing is refused, what is taken for something else is said, and a prompt as long as the context
leaves room for its output."""

import pytest

import dragonscale as ds
from dragonscale.commands.questions.serve import ServeQuestion
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.serve.serve_question import read_question
from dragonscale.commands.simulate.simulate_question import read_question as read_simulation
from dragonscale.errors import Infeasible, InputError
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.hardware.changes import check_effect
from dragonscale.serving.advice.refusals import job_refusal
from dragonscale.serving.engine.plan import parse_serving_plan
from dragonscale.serving.space.legal import stored_note
from dragonscale.training.plan.plan import Plan
from dragonscale.training.search.allowed_space import other_format


def test_changes_without_effect_are_refused() -> None:
    power = "--set power=350W would change nothing here"
    with pytest.raises(InputError, match=power):
        read_question(ServeQuestion("llama3-8b", "h100:1", set="power=350W"))
    with pytest.raises(InputError, match=power):
        read_simulation(SimulateQuestion("llama3-8b", on="h100:1", rate="1/s", set="hbm=2x,power=350W"))
    for ask in (
        lambda: ds.collective("all-reduce", "1GB", on="h100:8", set="power=350W"),
        lambda: ds.roofline("X[B,D] * W[D,F] -> Y[B,F]", on="h100", sizes="B=8,D=64,F=64", set="power=350W"),
        lambda: ds.shard("X[B,D_X] * W[D_X,F] -> Y[B,F]", on="h100:8", mesh="X=8", set="power=350W"),
    ):
        with pytest.raises(InputError, match="would change nothing here"):
            ask()
    for change in ("memory.l2.bandwidth=2x", "structure.clock=2x", "host.memory=2x"):
        with pytest.raises(InputError, match="would change nothing"):
            read_question(ServeQuestion("llama3-8b", "h100:1", set=change))
    with pytest.raises(InputError, match="would change nothing"):
        check_effect("latency=2x", "serving", kind="gpu")
    check_effect("latency=2x", "serving", kind="tpu")
    check_effect("power=350W", "training")  # whose clocks follow it
    assert read_question(ServeQuestion("llama3-8b", "h100:1", set="hbm=2x")).targets[0][0].name == "h100+hbm=2x"


def test_training_follows_the_hosts_memory() -> None:
    job = {"on": "h100:8", "batch": "64seq", "seq": 4096, "alone": True, "plan": "fsdp8 z3 block offload=optimizer"}
    assert ds.train("llama3-8b", set="host.memory=8TB", **job).exit_code == 0
    assert ds.train("llama3-8b", set="host.memory=8GB", **job).exit_code == 3


def test_other_chips_are_said_to_be_tried_in_the_formats_asked_for_alone() -> None:
    job = {"prompt": "128", "output": "8", "batch": 1, "engine": "vllm", "dtype": "bf16", "tpot": "1us"}
    found = ds.serve("qwen3-0.6b", "h100:1", plan="tp1", **job)
    assert "No other chip with a price does, in the formats that were asked for: ask for less." in found.notes


def test_rl_follows_what_its_training_follows() -> None:
    step = {"on": "h100:8", "stack": "nemo-rl", "mode": "colocated", "output": "1k"}
    slow = ds.rl("qwen3-0.6b", set="power=350W", **step).best
    usual = ds.rl("qwen3-0.6b", **step).best
    assert slow is not None
    assert usual is not None
    assert slow.step_s > usual.step_s
    with pytest.raises(InputError, match="would change nothing"):
        check_effect("power=350W", "wires", "kernels")


def test_a_prompt_as_long_as_the_context_is_shortened_by_the_output() -> None:
    for text in ("128k", "128K"):
        asked = read_question(ServeQuestion("llama3.1-8b", "h100:1", prompt=text, output="1k"))
        assert (asked.ask.prompt, asked.ask.output) == (130048, 1024)
        assert any("prompts of 130,048 are taken" in note for note in asked.notes)
        run = read_simulation(SimulateQuestion("llama3.1-8b", on="h100:1", prompt=text, output="1k", rate="0.01/s"))
        assert run.job.traffic.prompt == 130048
        assert any("prompts of 130,048 are taken" in note for note in run.notes)
    for text in ("131072", "129k"):
        asked = read_question(ServeQuestion("llama3.1-8b", "h100:1", prompt=text, output="1k"))
        assert "has a context of 131,072 tokens" in job_refusal(asked)
        with pytest.raises(Infeasible, match="has a context of 131,072 tokens"):
            read_simulation(SimulateQuestion("llama3.1-8b", on="h100:1", prompt=text, output="1k", rate="0.01/s"))
    short = read_question(ServeQuestion("llama3.1-8b", "h100:1", prompt="64k", output="1k"))
    assert short.ask.prompt == 65536
    assert not any("are taken" in note for note in short.notes)


def test_no_engine_stands_for_another() -> None:
    asked = read_question(ServeQuestion("llama3-8b", "m3ultra:1", engine="llama-server"))
    assert asked.engine == "llama.cpp"
    assert asked.engine_on(asked.targets[0][0]).described_release.startswith("llama.cpp b")
    question = SimulateQuestion("llama3-8b", on="m3ultra:1", engine="llama.cpp", rate="0.1/s")
    for notes in (asked.notes, read_simulation(question).notes):
        assert not any("idealised engine" in note for note in notes)


def test_a_format_that_the_chip_does_not_multiply_is_said() -> None:
    mi355x, h100, v100 = map(load_chip, ("mi355x", "h100", "v100"))
    plan = parse_serving_plan("weights=nvfp4,kv=fp8")
    assert "has no nvfp4 matmul: weights are stored in nvfp4" in stored_note(mi355x, plan)
    assert "2,517 TFLOP/s" in stored_note(mi355x, plan)
    assert not stored_note(mi355x, parse_serving_plan("weights=mxfp4,compute=mxfp4"))
    assert not stored_note(h100, parse_serving_plan("weights=fp8,compute=fp8"))
    question = SimulateQuestion("llama3.3-70b", on="mi355x:1", plan="tp1 weights=nvfp4 compute=bf16", rate="0.1/s")
    assert any("has no nvfp4 matmul" in note for note in read_simulation(question).notes)
    with pytest.raises(Infeasible, match="neither multiplies nor stores bf16"):
        read_simulation(SimulateQuestion("llama3-8b", on="v100:1", plan="weights=bf16 compute=bf16", rate="0.1/s"))
    usual = Plan()
    assert "has no bf16 matmul" in other_format(v100, usual, Plan(dtype="fp16"))[0]
    assert other_format(h100, usual, Plan(dtype="fp16")) == []
