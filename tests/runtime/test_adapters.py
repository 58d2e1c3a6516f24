"""Adapters in our own program: what they compute, what is trained, what is kept, and the folder that PEFT reads."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("optax")

import jax.numpy as jnp  # noqa: E402

from dragonscale.errors import InputError  # noqa: E402
from dragonscale.models import load_model  # noqa: E402
from dragonscale.physics.hardware import parse_slice  # noqa: E402
from dragonscale.physics.numbers import first_number  # noqa: E402
from dragonscale.runtime.checkpoint import save_adapters, save_weights  # noqa: E402
from dragonscale.runtime.forward import forward, loss  # noqa: E402
from dragonscale.runtime.lines import PassSetting  # noqa: E402
from dragonscale.runtime.numerics import numerics_of  # noqa: E402
from dragonscale.runtime.packed import Packed, packed  # noqa: E402
from dragonscale.runtime.parameters import merged  # noqa: E402
from dragonscale.runtime.place import mesh_of  # noqa: E402
from dragonscale.runtime.safetensors import SafeTensors  # noqa: E402
from dragonscale.runtime.train.loop import train  # noqa: E402
from dragonscale.runtime.train.settings import Order, RunSettings, check, read_order  # noqa: E402
from dragonscale.runtime.train.step import Trainer, make_trainer  # noqa: E402
from dragonscale.training.cost.evaluation import judge_one, make_job, tuned  # noqa: E402
from dragonscale.training.plan.plan_file import parse_plan  # noqa: E402
from dragonscale.training.plan.tuning import read_tuning  # noqa: E402
from tests.runtime.tiny import CONFIGS  # noqa: E402

BATCH, SEQ = 4, 16


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("tiny") / "config.json"
    path.write_text(
        json.dumps(
            CONFIGS["llama"] | {"hidden_size": 128, "intermediate_size": 256, "head_dim": 64, "num_hidden_layers": 2}
        )
    )
    return str(path)


def ordered(model: str, plan: str = "fsdp=1", **words: Any) -> Order:
    split = parse_plan(plan)
    run = RunSettings(("-",), 4, max(BATCH, split.replicas), SEQ, dtype="fp32", lora_alpha=12.0, clip=0.0)
    split = replace(split, microbatch=max(BATCH // split.replicas, 1))
    return Order(model, "", split, run, read_tuning(load_model(model), rank=4, **{"method": "lora"} | words))


def made(order: Order, devices: list[Any]) -> Trainer:
    program = order.tuned().program()
    return make_trainer(order, program, numerics_of(order.model), mesh_of(order.plan, devices[: order.plan.chips]))


def stepped(trainer: Trainer, state: Any, times: int = 1) -> tuple[Any, list[float]]:
    tokens = numpy.random.default_rng(1).integers(0, 128, (1, BATCH, SEQ + 1), numpy.int32)
    given = [jax.device_put(part, trainer.batch) for part in (tokens[..., :-1], tokens[..., 1:])]
    flags = jax.device_put(numpy.zeros(trainer.mesh.size, numpy.int32), trainer.flags)
    losses = []
    for _ in range(times):
        state, found = trainer.step(state, *given, jnp.float32(0.01), flags)
        losses.append(float(found["loss"]))
    return state, losses


def joined(state: Any, scale: float) -> Any:
    """Weights with what their adapters add, whatever the dims of each."""
    whole = {name: dict(weights) for name, weights in state["frozen"].items()}
    for name, weights in state["params"].items():
        for own in (one for one in weights if one.endswith("_a")):
            down, up = weights[own], weights[own.removesuffix("a") + "b"]
            more = jnp.einsum("lxr,lry->lxy", down.reshape(len(down), -1, 4), up.reshape(len(up), 4, -1))
            base = whole[name][own.removesuffix("_a")]
            whole[name][own.removesuffix("_a")] = base.astype(jnp.float32) + scale * more.reshape(base.shape)
    return whole


def test_adapters_add_their_product_times_alpha_over_rank(model: str, eight: list[Any]) -> None:
    order = ordered(model)
    trainer = made(order, eight)
    start = trainer.start(0)
    before = jax.tree.map(numpy.asarray, start["frozen"])
    assert not any(
        numpy.asarray(value).any() for own in start["params"].values() for n, value in own.items() if n[-1] == "b"
    )
    state, losses = stepped(trainer, start, 5)
    assert losses[-1] < losses[0]
    jax.tree.map(numpy.testing.assert_array_equal, before, state["frozen"])  # no step changes them
    assert {one[-2:] for weights in state["params"].values() for one in weights} == {"_a", "_b"}
    tokens = numpy.random.default_rng(1).integers(0, 128, (1, BATCH, SEQ + 1), numpy.int32)[0]
    plain, setting = load_model(model).program(), PassSetting(numerics_of(model))
    weights = jax.tree.map(lambda one: one.astype(jnp.float32), joined(state, 12.0 / 4))
    own = float(trainer.evaluate(state, tokens[None, :, :-1], tokens[None, :, 1:]))
    assert own == pytest.approx(float(loss(forward(weights, plain, tokens[:, :-1], setting), tokens[:, 1:])), rel=1e-5)


@pytest.mark.parametrize("plan", ["fsdp=2,tensor=2,remat=block", "data=2,zero=1"])
def test_losses_are_those_of_one_device(model: str, plan: str, eight: list[Any]) -> None:
    one, many = ordered(model, frozen="int8"), ordered(model, plan, frozen="int8")
    alone, split = made(one, eight), made(many, eight)
    assert stepped(split, split.start(0), 3)[1] == pytest.approx(stepped(alone, alone.start(0), 3)[1], rel=2e-5)


@pytest.mark.parametrize(("kind", "error"), [("nf4", 0.12), ("int8", 0.01), ("fp8", 0.03)])
def test_few_bits_are_close(kind: str, error: float) -> None:
    value = jax.random.normal(jax.random.key(0), (8, 128))
    small = packed(value, kind)
    wide = small.widened(jnp.float32)
    assert float(jnp.abs(wide - value).mean() / jnp.abs(value).mean()) < error
    assert small.scale.shape == (8, 2)
    again = packed(wide, kind).widened(jnp.float32)  # what is on a level stays there
    assert float(jnp.abs(again - wide).max()) < 1e-2


@pytest.mark.parametrize(("words", "plan"), [({"method": "lora"}, "fsdp=8"), ({"method": "qlora"}, "fsdp=1")])
def test_the_state_weighs_what_the_planner_counts(words: dict[str, str], plan: str, eight: list[Any]) -> None:
    name = "llama3-8b"
    order = replace(ordered(name, plan, **words), slice="h100:8")
    shape = made(order, eight).shape
    job = tuned(make_job(load_model(name), parse_slice("h100:8"), 8, SEQ, "dragonscale"), order.tuning)
    memory = judge_one(job, order.plan).ledger.memory

    def held(part: Any) -> float:
        return sum(
            float(numpy.prod(leaf.sharding.shard_shape(leaf.shape)))
            * (0.5 if leaf.dtype == jnp.uint4 else leaf.dtype.itemsize)
            for leaf in jax.tree.leaves(part)
        )

    kept = {name: part for name, part in shape.items() if name != "frozen"}
    assert held(kept) == pytest.approx(first_number(memory["weights and optimizer"]), rel=2e-3)
    # Scales in bf16, a 32nd of a byte a weight, where the table of formats has those of the papers.
    assert held(shape["frozen"]) == pytest.approx(first_number(memory["frozen weights"]), rel=0.04)
    layers = jax.tree.leaves(shape["frozen"]["block"], is_leaf=lambda one: isinstance(one, Packed))
    assert any(isinstance(one, Packed) for one in layers) == (order.tuning.frozen != "bf16")


def test_a_run_goes_on_and_its_adapters_are_a_folder_of_peft(model: str, tmp_path: Path) -> None:
    pytest.importorskip("orbax.checkpoint")
    given: dict[str, Any] = {
        "data": "synthetic",
        "batch": "4",
        "seq": "16",
        "dtype": "fp32",
        "every": 2,
        "steps": 4,
        "final": 1.0,
    }
    asked = {"method": "qlora", "lora_rank": 4, "lora_targets": "attention"}
    whole = train(read_order("fsdp=1", model, "", given, asked))
    places = {"checkpoints": str(tmp_path / "runs"), "save_weights": str(tmp_path / "adapters")}
    train(read_order("fsdp=1", model, "", given | places | {"steps": 2}, asked))
    again = train(read_order("fsdp=1", model, "", given | places, asked))
    assert again.first_step == 2
    assert again.loss == pytest.approx(whole.loss, rel=1e-6)
    config = json.loads((tmp_path / "adapters" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"]) == (4, 8.0)
    assert config["target_modules"] == ["k_proj", "o_proj", "q_proj", "v_proj"]
    tensors = SafeTensors(str(tmp_path / "adapters" / "adapter_model.safetensors"))
    start = "base_model.model.model.layers.1.self_attn."
    assert numpy.asarray(tensors[f"{start}q_proj.lora_A.weight"]).shape == (4, 128)
    assert numpy.asarray(tensors[f"{start}k_proj.lora_B.weight"]).shape == (2 * 64, 4)
    with pytest.raises(InputError, match="of a run with"):
        train(read_order("fsdp=1", model, "", given | places, asked | {"frozen": "bf16"}))


def test_matrices_of_a_folder_add_up_to_what_the_program_multiplies(
    model: str, tmp_path: Path, eight: list[Any]
) -> None:
    """Of every target: B·A of the folder, in a checkpoint's own rows and columns."""
    order = ordered(model)
    trainer = made(order, eight)
    state, _ = stepped(trainer, trainer.start(0), 2)
    program, plain = order.tuned().program(), load_model(model).program()
    save_adapters(tmp_path, model, jax.tree.map(numpy.asarray, state["params"]), program, 4, 3.0)
    tensors = SafeTensors(str(tmp_path / "adapter_model.safetensors"))
    before = save_weights(jax.tree.map(lambda one: numpy.asarray(one, numpy.float32), state["frozen"]), plain, "llama")
    after = save_weights(jax.tree.map(numpy.asarray, merged(state["frozen"], joined(state, 3.0))), plain, "llama")
    names = [name.removesuffix(".lora_A.weight") for name in tensors if name.endswith("lora_A.weight")]
    assert len(names) == 7 * 2
    for name in names:
        down, up = (numpy.asarray(tensors[f"{name}.lora_{half}.weight"]) for half in "AB")
        place = name.removeprefix("base_model.model.") + ".weight"
        numpy.testing.assert_allclose(after[place] - before[place], 3.0 * up @ down, atol=2e-6)


def test_what_the_program_does_not_train_is_refused(model: str) -> None:
    run = RunSettings(("-",), 1, 4, 16, dtype="fp32")
    for plan, words, told in (
        ("fsdp=1", {"method": "dpo"}, "planned, not run"),
        ("pipe=2,microbatch=1", {"method": "lora"}, "without pipeline stages"),
        ("optimizer=muon", {"method": "lora"}, "take optimizer=adam"),
    ):
        with pytest.raises(InputError, match=told):
            check(Order(model, "", parse_plan(plan), run, read_tuning(load_model(model), **words)))
