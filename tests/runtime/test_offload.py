"""What a plan keeps in the host's memory lies there, comes back, and changes no number."""

from typing import Any

import numpy
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("optax")

import jax.numpy as jnp  # noqa: E402
from jax.ad_checkpoint import checkpoint_name  # noqa: E402

from dragonscale.models import load_model  # noqa: E402
from dragonscale.models.huggingface import load_config  # noqa: E402
from dragonscale.physics.hardware import parse_slice  # noqa: E402
from dragonscale.physics.numbers import first_number  # noqa: E402
from dragonscale.runtime.forward import forward, loss  # noqa: E402
from dragonscale.runtime.lines import PassSetting  # noqa: E402
from dragonscale.runtime.numerics import numerics_of, read_numerics  # noqa: E402
from dragonscale.runtime.parameters import initialise  # noqa: E402
from dragonscale.runtime.place import mesh_of  # noqa: E402
from dragonscale.runtime.train.gradients import remats_of  # noqa: E402
from dragonscale.runtime.train.settings import Order, RunSettings  # noqa: E402
from dragonscale.runtime.train.step import Trainer, make_trainer  # noqa: E402
from dragonscale.training.cost.evaluation import judge_one, make_job  # noqa: E402
from dragonscale.training.plan.plan import Plan  # noqa: E402
from dragonscale.training.plan.plan_file import parse_plan  # noqa: E402
from dragonscale.training.search.legal import illegal, unrunnable  # noqa: E402
from tests.runtime.tiny import CONFIGS  # noqa: E402

LAYERS = CONFIGS["llama"]["num_hidden_layers"]
ENTRY = 16 * 64 * 4
"""Bytes of a layer's input here."""


def gradients(plan: Plan) -> tuple[Any, Any]:
    """A function of the weights that gives gradients, and weights."""
    program, numerics = load_config(CONFIGS["llama"]).program(), read_numerics(CONFIGS["llama"])
    tokens = jnp.arange(16)[None]

    def cost(params: Any) -> Any:
        setting = PassSetting(numerics, note=checkpoint_name)
        return loss(forward(params, program, tokens, setting, remats=remats_of(program, plan)), tokens)

    return jax.grad(cost), initialise(program, jax.random.key(0))


def stacked_bytes(function: Any, params: Any) -> tuple[int, int]:
    """Bytes of activations that scans over layers hand to the backward pass, on the chip and on the host."""
    scans = [eqn for eqn in jax.make_jaxpr(function)(params).jaxpr.eqns if eqn.primitive.name == "scan"]
    kept = [var.aval for scan in scans[: len(scans) // 2] for var in scan.outvars[scan.params["num_carry"] :]]
    kept = [aval for aval in kept if aval.ndim > 2 and aval.dtype == jnp.float32]
    away = [aval.memory_space == jax.memory.Space.Host for aval in kept]
    pairs = [(there, aval.size * 4) for there, aval in zip(away, kept, strict=True)]
    return sum(size for there, size in pairs if not there), sum(size for there, size in pairs if there)


def test_what_some_layers_keep_goes_to_the_host() -> None:
    """Of three of four layers all that they keep, their inputs too."""
    (here, away), (alone, nothing) = (
        stacked_bytes(*gradients(plan)) for plan in (Plan(offload="activations:3", remat="none"), Plan(remat="none"))
    )
    assert nothing == 0
    assert away == pytest.approx(3 * here)
    assert here == pytest.approx(alone / LAYERS)


def test_only_inputs_of_layers_go_to_the_host_under_remat_offload() -> None:
    assert stacked_bytes(*gradients(Plan(remat="offload"))) == (0, LAYERS * ENTRY)


@pytest.mark.parametrize("plan", [Plan(offload="activations:3", remat="none"), Plan(remat="offload")])
def test_gradients_stay(plan: Plan) -> None:
    (some, params), (none, _) = gradients(plan), gradients(Plan(remat="none"))
    pairs = zip(*(jax.tree.leaves(jax.jit(each)(params)) for each in (some, none)), strict=True)
    assert all(jnp.abs(one - other).max() < 1e-5 for one, other in pairs)


def trainer_of(plan: str, devices: list[Any], name: str) -> Trainer:
    settled = parse_plan(plan)
    run = RunSettings(steps=4, batch=8, seq=16, dtype="fp32", clip=0.5)
    program = load_config(CONFIGS["llama"]).program() if name == "tiny" else load_model(name).program()
    numerics = read_numerics(CONFIGS["llama"]) if name == "tiny" else numerics_of(name)
    return make_trainer(Order("llama3-8b", "", settled, run), program, numerics, mesh_of(settled, devices))


def after_steps(plan: str, devices: list[Any]) -> tuple[Any, list[float]]:
    trainer = trainer_of(plan, devices, "tiny")
    state, losses = trainer.start(0), []
    rng, flags = numpy.random.default_rng(0), numpy.zeros(len(devices), numpy.int32)
    for _ in range(3):
        tokens = rng.integers(0, 128, (1, 8, 17))
        state, found = trainer.step(state, tokens[..., :-1], tokens[..., 1:], 1e-2, flags)
        losses.append(float(found["loss"]))
    return state, [*losses, float(trainer.evaluate(state, tokens[..., :-1], tokens[..., 1:]))]


@pytest.mark.parametrize(
    "optimizer", ["adam", *(pytest.param(one, marks=pytest.mark.slow) for one in ("adam-bf16", "sgd"))]
)
def test_state_in_the_hosts_memory_changes_nothing(optimizer: str, eight: list[Any]) -> None:
    """Weights, counts and losses after three steps, clipped ones, and where the state lies then."""
    (state, losses), (same, wanted) = (
        after_steps(f"fsdp=4,tensor=2,optimizer={optimizer}{more}", eight) for more in (",offload=optimizer", "")
    )
    assert losses == pytest.approx(wanted, rel=1e-5)
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(same), strict=True):
        assert one.sharding.memory_kind == ("pinned_host" if one.ndim else other.sharding.memory_kind)
        assert other.sharding.memory_kind == "device"
        close = 2e-2 if one.dtype == jnp.bfloat16 else 1e-4
        assert numpy.allclose(numpy.asarray(one, "f4"), numpy.asarray(other, "f4"), rtol=close, atol=close / 10)


def test_the_host_holds_what_the_planner_counts(eight: list[Any]) -> None:
    plan = "fsdp=8,offload=optimizer"
    leaves = jax.tree.leaves(trainer_of(plan, eight, "llama3-8b").shape)
    away = [leaf for leaf in leaves if leaf.sharding.memory_kind == "pinned_host"]
    held = sum(int(numpy.prod(leaf.sharding.shard_shape(leaf.shape))) * leaf.dtype.itemsize for leaf in away)
    job = make_job(load_model("llama3-8b"), parse_slice("h100:8"), 8, 4096, "dragonscale")
    verdict = judge_one(job, parse_plan(plan))
    assert held == pytest.approx(first_number(verdict.ledger.host_bytes), rel=2e-3)
    assert "weights and optimizer" not in verdict.ledger.memory


def test_only_optimizers_that_go_layer_by_layer_are_offloaded() -> None:
    job = make_job(load_model("llama3-8b"), parse_slice("h200:8"), 16, 4096, "dragonscale")
    assert illegal(job, Plan(fsdp=8, offload="optimizer", optimizer="adam")) == []
    assert "updated layer by layer" in unrunnable(Plan(fsdp=8, offload="optimizer", optimizer="muon"))
    assert "pipeline stages keep" in unrunnable(Plan(pipe=2, fsdp=4, offload="optimizer"))
