"""LoRAs served beside a model: each answers as the model with its product added to the weights does, in one batch."""

import json
import math
from pathlib import Path
from typing import Any

import numpy
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from msgspec.structs import replace as but  # noqa: E402

from dragonscale.errors import InputError  # noqa: E402
from dragonscale.runtime.checkpoint import load_weights, save_weights  # noqa: E402
from dragonscale.runtime.lora_folder import LoraStack, read_lora  # noqa: E402
from dragonscale.runtime.packed_weights import reader_of  # noqa: E402
from dragonscale.runtime.safetensors import write_safetensors  # noqa: E402
from dragonscale.runtime.serve.engine import ServingEngine  # noqa: E402
from dragonscale.runtime.serve.requests import GenerateRequest  # noqa: E402
from tests.runtime.serve.test_served import Served, run  # noqa: E402

MODULES = {"self_attn.q_proj": (64, 64), "self_attn.v_proj": (32, 64), "self_attn.o_proj": (64, 64)}
MLP = {"mlp.gate_proj": (96, 64), "mlp.up_proj": (96, 64), "mlp.down_proj": (64, 96)}


def written(folder: Path, rank: int, modules: dict[str, tuple[int, int]], seed: int, **settings: Any) -> Path:
    """A folder as PEFT writes it, of random matrices that change what a tiny model says."""
    deal, tensors = numpy.random.default_rng(seed), {}
    for layer in range(2):
        for module, (made, read) in modules.items():
            start = f"base_model.model.model.layers.{layer}.{module}.lora_"
            tensors |= {f"{start}A.weight": deal.standard_normal((rank, read)).astype("f4") / 8}
            tensors |= {f"{start}B.weight": deal.standard_normal((made, rank)).astype("f4") / 4}
    folder.mkdir(parents=True)
    write_safetensors(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "target_modules": sorted(modules)} | settings
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def with_added(model: Served, folder: Path, scale: float) -> dict[str, Any]:
    """The model's weights with an adapter's product added, by PEFT's rule."""
    tensors = save_weights(model.weights, model.program, "llama")
    found = read_lora("x", str(folder)).tensors
    for name in (one for one in found if ".lora_A." in one):
        down, up = (numpy.asarray(found[name.replace(".lora_A.", f".lora_{half}.")]) for half in "AB")
        base = name.removeprefix("base_model.model.").replace(".lora_A.", ".")
        tensors[base] = tensors[base] + scale * (up @ down)
    return load_weights(tensors, model.program, jnp.float32)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    path = tmp_path_factory.mktemp("adapters")
    return [
        written(path / "attention", 4, MODULES, 1),
        written(path / "all", 2, MODULES | MLP, 2, use_rslora=True, alpha_pattern={"layers.1.mlp.up_proj": 8}),
    ]


def adapted(model: Served, folders: list[Path]) -> Served:
    stack = LoraStack(model.program, [read_lora(one.name, str(one)) for one in folders])
    model.weights, model.program = stack.reader(reader_of(model.weights)), stack.adapted
    return model


@pytest.fixture(scope="module")
def wanted(folders: list[Path]) -> list[list[list[int]]]:
    """Greedy answers of the model, and of it with each adapter."""
    model = Served("llama")
    first, second = (with_added(model, *one) for one in zip(folders, (2.0, 4 / math.sqrt(2)), strict=True))
    own, base = (each["block"]["Wu"] for each in (second, model.weights))
    own[1] += own[1] - base[1]  # alpha is 8 there, not 4
    answers = []
    for weights in (model.weights, first, second):
        model.weights = weights
        answers.append(model.greedy())
    return answers


def asked(model: Served) -> list[GenerateRequest]:
    """Every prompt of every adapter and of none."""
    return [but(one, id=f"{one.id}/{own}", adapter=own) for one in model.requests() for own in range(3)]


@pytest.fixture(scope="module")
def engine(folders: list[Path]) -> ServingEngine:
    return adapted(Served("llama"), folders).engine(adapters=2, tokens=16, fresh=False)


def test_each_adapter_answers_as_merged_weights_do(wanted: list[list[list[int]]], engine: ServingEngine) -> None:
    assert wanted[0] != wanted[1] != wanted[2] != wanted[0]
    said = run(engine, asked(Served("llama")))
    assert [said[own::3] for own in range(3)] == wanted
    assert engine.scheduler.hits > 0  # prompts begin alike, and pages are found again by their own adapter's


@pytest.mark.slow
def test_adapters_on_a_mesh_stay_wide_beside_rounded_weights(
    folders: list[Path], wanted: list[list[list[int]]], eight: list[Any]
) -> None:
    engine = adapted(Served("llama"), folders).engine("tensor=2,weights=int8", devices=eight, adapters=2)
    said = run(engine, asked(Served("llama")))
    alike = [one == two for own in range(3) for one, two in zip(said[own::3], wanted[own], strict=True)]
    assert sum(alike) > len(alike) / 2  # rounded weights say a little else
    assert engine.runner.weights["layers"][0]["Wq_a+Wv_a"].dtype == jnp.float32


def test_what_is_no_adapter_of_the_model_is_refused(engine: ServingEngine, tmp_path: Path) -> None:
    program = Served("llama").program
    with pytest.raises(InputError, match="has no adapter_config"):
        read_lora("x", str(tmp_path))
    for name, settings, said in (
        ("dora", {"use_dora": True}, "DoRA"),
        ("ia3", {"peft_type": "IA3"}, "is no LoRA"),
        ("whole", {"modules_to_save": ["lm_head"]}, "whole modules"),
    ):
        with pytest.raises(InputError, match=said):
            read_lora(name, str(written(tmp_path / name, 2, MODULES, 3, **settings)))
    other = written(tmp_path / "other", 2, {"mlp.router": (4, 64)}, 3)
    with pytest.raises(InputError, match="which is no matrix beside an attention or MLP matmul"):
        LoraStack(program, [read_lora("other", str(other))])
    wide = written(tmp_path / "wide", 2, {"self_attn.q_proj": (64, 48)}, 3)
    stack = LoraStack(program, [read_lora("wide", str(wide))])
    with pytest.raises(InputError, match="not that of this model"):
        stack.reader(lambda *_: None)("block", "Wq_a", 0)
    with pytest.raises(InputError, match="no adapter 3 among the 2"):
        engine.add(but(Served("llama").requests()[0], adapter=3))
