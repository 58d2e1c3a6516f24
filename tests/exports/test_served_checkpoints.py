"""The checkpoints that exports name: those for chat, published quantised ones, and what has to be made first."""

from typing import Any

import pytest

import dragonscale as ds
from dragonscale.exports.engines.checkpoints import ServedCheckpoint, checkpoint_for, plain_name
from dragonscale.exports.model_names import hub_id, served_id
from dragonscale.models import load_model, model_names
from dragonscale.models.served_checkpoints import instruct_repository
from dragonscale.physics.hardware import load_chip
from dragonscale.serving.engine.checkpoint import narrower_formats
from dragonscale.serving.engine.plan import ServingPlan


def served(model: str, quantize: str, engine: str = "vllm", chip: str = "b200") -> ServedCheckpoint:
    """The checkpoint for a model as it is quantised when `--quantize` asks for that."""
    found, on = load_model(model), load_chip(chip)
    formats: dict[str, Any] = vars(narrower_formats(engine, on, found, quantize)[0])
    return checkpoint_for(engine, on, found, model, ServingPlan(**formats), {})


@pytest.mark.parametrize(
    ("model", "chat"),
    [
        ("llama3.1-8b", "meta-llama/Llama-3.1-8B-Instruct"),
        ("llama4-maverick", "meta-llama/Llama-4-Maverick-17B-128E-Instruct"),
        ("qwen2.5-7b", "Qwen/Qwen2.5-7B-Instruct"),
        ("mixtral-8x7b", "mistralai/Mixtral-8x7B-Instruct-v0.1"),
        ("gemma3-27b", "google/gemma-3-27b-it"),
        ("qwen3-32b", "Qwen/Qwen3-32B"),
        ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
        ("llama3.1-8b-base", "meta-llama/Llama-3.1-8B"),
    ],
)
def test_a_served_model_is_the_one_for_chat(model: str, chat: str) -> None:
    assert served_id(model) == chat


def test_checkpoints_for_chat_are_read_back_as_their_presets() -> None:
    for name in model_names():
        assert hub_id(plain_name(served_id(name))) == hub_id(name)
        assert instruct_repository(served_id(name)) == served_id(name)


def test_exports_serve_the_model_for_chat() -> None:
    for to in ("vllm", "sglang", "trtllm"):
        text = "".join(ds.export("tp1", model="llama3.1-8b", on="h100:1", to=to).files.values())
        assert "meta-llama/Llama-3.1-8B-Instruct" in text
    text = "".join(ds.export("tp1", model="meta-llama/Llama-3.1-8B", on="h100:1", to="vllm").files.values())
    assert "meta-llama/Llama-3.1-8B " in text


def test_a_prompt_as_long_as_the_context_leaves_room_for_the_output() -> None:
    made = ds.export("tp1", model="llama3.1-8b", on="h100:1", to="vllm", prompt="128k", output="1k", batch="2")
    assert "--max-model-len 131072" in "".join(made.files.values())


@pytest.mark.parametrize(
    ("model", "quantize", "chip", "word"),
    [
        ("qwen3-235b-a22b", "fp8", "h100", "Qwen/Qwen3-235B-A22B-FP8"),
        ("qwen3-32b", "nvfp4", "b200", "nvidia/Qwen3-32B-NVFP4"),
        ("kimi-k2", "nvfp4", "b200", "nvidia/Kimi-K2-Instruct-NVFP4"),
        ("deepseek-r1", "nvfp4", "b200", "nvidia/DeepSeek-R1-NVFP4"),
        ("llama3.3-70b", "int4", "h100", "RedHatAI/Llama-3.3-70B-Instruct-quantized.w4a16"),
        ("qwen2.5-72b", "int4", "a100", "Qwen/Qwen2.5-72B-Instruct-AWQ"),
    ],
)
def test_published_checkpoints_are_named(model: str, quantize: str, chip: str, word: str) -> None:
    found = served(model, quantize, chip=chip)
    assert (found.word, found.notes) == (word, ())


def test_what_nobody_publishes_has_to_be_made() -> None:
    found = served("glm-4.5", "nvfp4")
    assert found.word == "./GLM-4.5-NVFP4"
    assert "is to be made" in found.notes[0]


def test_latent_attention_stays_wide_in_nvfp4() -> None:
    b200 = load_chip("b200")
    kept = {
        model: narrower_formats("sglang", b200, load_model(model), "nvfp4")[0].attention
        for model in ("deepseek-r1", "kimi-k2", "qwen3-32b", "qwen3-235b-a22b")
    }
    assert kept == {"deepseek-r1": "bf16", "kimi-k2": "bf16", "qwen3-32b": "", "qwen3-235b-a22b": ""}
