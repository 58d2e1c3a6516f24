"""A step as planned: its state lies and weighs as the planner counts, and a remat policy keeps what it says."""

import math
from dataclasses import replace
from typing import Any

import numpy
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("optax")

import jax.numpy as jnp  # noqa: E402
from jax.ad_checkpoint import checkpoint_name  # noqa: E402

from dragonscale.models import load_model  # noqa: E402
from dragonscale.models.activations import saved_tensors  # noqa: E402
from dragonscale.models.catalogue import model_names  # noqa: E402
from dragonscale.models.huggingface import load_config  # noqa: E402
from dragonscale.physics.hardware import parse_slice  # noqa: E402
from dragonscale.physics.numbers import first_number  # noqa: E402
from dragonscale.physics.sharding.mesh import Mesh as Axes  # noqa: E402
from dragonscale.plan.rules import undivided  # noqa: E402
from dragonscale.runtime.forward import forward, loss  # noqa: E402
from dragonscale.runtime.lines import PassSetting  # noqa: E402
from dragonscale.runtime.numerics import numerics_of, read_numerics  # noqa: E402
from dragonscale.runtime.parameters import abstract, initialise, shardings  # noqa: E402
from dragonscale.runtime.place import mesh_of, rules_of  # noqa: E402
from dragonscale.runtime.train.gradients import remat_of, remats_of  # noqa: E402
from dragonscale.runtime.train.settings import Order, RunSettings  # noqa: E402
from dragonscale.runtime.train.step import make_trainer  # noqa: E402
from dragonscale.training.cost.evaluation import judge_one, make_job  # noqa: E402
from dragonscale.training.memory.section_memory import weight_shares  # noqa: E402
from dragonscale.training.plan.plan import AXES, Plan  # noqa: E402
from dragonscale.training.plan.plan_file import parse_plan  # noqa: E402
from tests.runtime.tiny import CONFIGS  # noqa: E402


def held_bytes(shape: Any) -> int:
    """Bytes of a state on one device, from shapes alone."""
    return sum(
        int(numpy.prod(leaf.sharding.shard_shape(leaf.shape))) * leaf.dtype.itemsize for leaf in jax.tree.leaves(shape)
    )


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("llama3-8b", "fsdp=8"),
        ("llama3-8b", "fsdp=2,tensor=4"),
        ("llama3-8b", "data=2,fsdp=2,tensor=2,zero=1"),
        ("llama3-8b", "data=4,tensor=2,zero=0"),
        ("llama3-8b", "fsdp=4,context=2"),
        ("llama3-8b", "fsdp=8,optimizer=adam-bf16"),
        ("llama3-8b", "fsdp=8,optimizer=adam8"),
        ("llama3-8b", "fsdp=8,optimizer=sgd"),
        ("qwen2.5-7b", "fsdp=4,tensor=2"),
        ("mixtral-8x7b", "expert=8"),
        ("mixtral-8x7b", "fsdp=2,expert=4"),
        ("deepseek-v2-lite", "fsdp=2,expert=4"),
    ],
)
def test_the_state_weighs_what_the_planner_counts(name: str, plan: str, eight: list[Any]) -> None:
    model, settled = load_model(name), parse_plan(plan)
    order = Order(name, "h100:8", settled, RunSettings(steps=1, batch=8, seq=4096, dtype="bf16"))
    trainer = make_trainer(order, model.program(), numerics_of(name), mesh_of(settled, eight))
    verdict = judge_one(make_job(model, parse_slice("h100:8"), 8, 4096, "dragonscale"), settled)
    assert held_bytes(trainer.shape) == pytest.approx(
        first_number(verdict.ledger.memory["weights and optimizer"]), rel=2e-3
    )


def kept_bytes(config: dict[str, Any], policy: str, shape: tuple[int, int]) -> int:
    """Bytes that scanned layers hand from the forward to the backward pass, from the traced program."""
    program, numerics = load_config(config).program(), read_numerics(config)
    tokens = jnp.zeros(shape, jnp.int32)

    def cost(params: Any) -> jax.Array:
        setting = PassSetting(numerics, note=checkpoint_name)
        return loss(forward(params, program, tokens, setting, remats=((1.0, remat_of(program, policy)),)), tokens)

    params = jax.eval_shape(lambda: initialise(program, jax.random.key(0)))
    eqns = jax.make_jaxpr(jax.grad(cost))(params).jaxpr.eqns
    scan = next(eqn for eqn in eqns if eqn.primitive.name == "scan")
    stacked = scan.outvars[scan.params["num_carry"] :]
    return sum(var.aval.size * var.aval.dtype.itemsize for var in stacked if var.aval.dtype == jnp.float32)


@pytest.mark.parametrize("kind", ["llama", "mistral"])
@pytest.mark.parametrize("policy", ["block", "matmuls", "selective"])
def test_a_policy_keeps_what_the_planner_counts(kind: str, policy: str) -> None:
    """Of each layer its input, and the tensors that the planner names (in fp32 here)."""
    config = CONFIGS[kind]
    section = next(s for s in load_config(config).program().sections if s.name not in ("embed", "head"))
    names = {array.name: array for array in (*saved_tensors(section, "block"), *saved_tensors(section, policy))}
    wanted = sum(section.size(array, b=2, t=16, s=16) for array in names.values()) * section.repeat * 4
    if policy == "matmuls":
        wanted -= (
            section.size(names["M"], b=2, t=16, s=16) * section.repeat * 4
        )  # added to the residual: no gradient reads it
    if policy == "selective":
        wanted += section.size(names["R"], b=2, t=16, s=16) * section.repeat * 4  # the residual between the blocks
    assert kept_bytes(config, policy, (2, 16)) == wanted
    assert kept_bytes(config, "none", (2, 16)) > wanted


@pytest.mark.parametrize("name", model_names())
def test_every_presets_shardings_are_the_planners(name: str, eight: list[Any]) -> None:
    """Each device's share of every weight, against the planner's count of the parameters that a chip updates."""
    program, plan = load_model(name).program(), parse_plan("fsdp=2,tensor=2,expert=2")
    mesh, rules = mesh_of(plan, eight), rules_of(plan, program)
    placed = shardings(program, mesh, rules.optimizer_state)
    shapes = abstract(program)
    held = sum(
        math.prod(placed[section][own].shard_shape(leaf.shape))
        for section in shapes
        for own, leaf in shapes[section].items()
    )
    axes = Axes({axis: getattr(plan, axis) for axis in AXES})
    planned = 0.0
    for section in program.sections:
        arrays = [array for op in section.ops for array in op.weights]
        fitted = replace(rules, undivided=undivided(rules, arrays, section.dims, axes.axes))
        planned += section.repeat * sum(share.state for share in weight_shares(section, axes, fitted))
    assert held == pytest.approx(planned, rel=2e-3)


def test_some_layers_are_recomputed_and_gradients_stay() -> None:
    """`block:3` of four layers: three hand on their inputs alone, and the gradients are those without any."""
    config = CONFIGS["llama"]
    program, numerics = load_config(config).program(), read_numerics(config)
    params, tokens = initialise(program, jax.random.key(0)), jnp.arange(16)[None]

    def cost(policy: str) -> Any:
        setting = PassSetting(numerics, note=checkpoint_name)
        remats = remats_of(program, Plan(remat=policy))
        return lambda params: loss(forward(params, program, tokens, setting, remats=remats), tokens)

    scans = [
        eqn for eqn in jax.make_jaxpr(jax.grad(cost("block:3")))(params).jaxpr.eqns if eqn.primitive.name == "scan"
    ]
    assert [scan.params["length"] for scan in scans] == [3, 1, 1, 3]
    some, none = (jax.jit(jax.grad(cost(policy)))(params) for policy in ("block:3", "none"))
    assert all(
        jnp.abs(one - other).max() < 1e-5 for one, other in zip(*map(jax.tree.leaves, (some, none)), strict=True)
    )
