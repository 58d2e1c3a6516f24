"""Sentences of answers and refusals that name a reason or what to type instead."""

import re

import pytest

import dragonscale as ds
from dragonscale.blocks.terminal import text_of
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.simulate.fleet_flags import read_autoscale
from dragonscale.errors import InputError
from dragonscale.models import load_model
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.hardware.changes import check_effect
from dragonscale.serving.engine.auto import auto_choice


@pytest.mark.parametrize(
    ("flag", "instead"), [("replicas", "--autoscale"), ("prefill_replicas", "--prefill-autoscale")]
)
def test_a_range_of_replicas_names_the_flag_for_it(flag: str, instead: str) -> None:
    with pytest.raises(InputError) as refused:
        SimulateQuestion("llama3.1-8b", **{flag: "0..3"})  # pyright: ignore[reportArgumentType]
    suggested = re.search(rf"{instead} (\S+) scales between 0 and 3 replicas", str(refused.value))
    assert suggested is not None
    assert read_autoscale(suggested[1]).most == 3


@pytest.mark.parametrize(
    ("model", "recommended"), [("deepseek-v3", True), ("deepseek-v3.2", True), ("glm-5", False), ("kimi-k2", False)]
)
@pytest.mark.parametrize("chip", ["h200", "mi300x"])
def test_what_is_recommended_for_deepseek_is_said_of_its_models_alone(model: str, recommended: bool, chip: str) -> None:
    why = auto_choice(load_chip(chip), load_model(model), 8).why
    assert bool(re.search("for its models|for DeepSeek's models", why)) is recommended


def test_a_power_limit_is_refused_for_serving_times() -> None:
    with pytest.raises(InputError, match="serving times do not follow a power limit yet"):
        check_effect("power=350W", "serving")
    with pytest.raises(InputError, match="these times do not follow a power limit yet"):
        check_effect("power=350W", "kernels")


def test_sessions_are_not_said_to_share_one_prefix() -> None:
    share = "all requests share one"
    sessions = ds.serve("llama3.1-8b", on="h100:1", use_case="agent", rate="6/s").sheet()
    assert share not in " ".join(text_of(sessions).split())
    assert share in " ".join(text_of(ds.serve("llama3.1-8b", on="h100:1", prompt="4096", cached=0.5).sheet()).split())


def test_a_checkpoint_that_we_do_not_know_of_is_said_so() -> None:
    made = ds.export("tp1 weights=int4", to="vllm", model="gemma-3-27b-it", on="h100:1")
    text = " ".join(" ".join(made.files.values()).replace("#", " ").split()) + " ".join(str(made).split())
    assert "we know of no published checkpoint of" in text
