"""A model's loss and gradients through a pipeline, mixed with other axes, are those of one device."""

import math
from typing import Any

import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax.ad_checkpoint import checkpoint_name  # noqa: E402

from dragonscale.errors import InputError  # noqa: E402
from dragonscale.models.huggingface import load_config  # noqa: E402
from dragonscale.models.program import longest_run  # noqa: E402
from dragonscale.physics.hardware import parse_slice  # noqa: E402
from dragonscale.physics.numbers import first_number  # noqa: E402
from dragonscale.runtime.forward import forward, layer_weights, loss, through  # noqa: E402
from dragonscale.runtime.lines import PassSetting  # noqa: E402
from dragonscale.runtime.numerics import read_numerics  # noqa: E402
from dragonscale.runtime.parameters import initialise  # noqa: E402
from dragonscale.runtime.pipeline import Pipeline, pipelined_layers  # noqa: E402
from dragonscale.runtime.place import mesh_of  # noqa: E402
from dragonscale.runtime.pullback import Pullback, halves_of  # noqa: E402
from dragonscale.runtime.train.gradients import remat_of, step_gradients  # noqa: E402
from dragonscale.runtime.train.settings import Order, RunSettings  # noqa: E402
from dragonscale.training.cost.evaluation import judge_one, make_job  # noqa: E402
from dragonscale.training.plan.plan_file import parse_plan  # noqa: E402
from tests.runtime.tiny import CONFIGS  # noqa: E402

slow = pytest.mark.slow
MIXES = [
    pytest.param("llama", "pipe=2,data=2,tensor=2", marks=slow),
    pytest.param("tied", "pipe=2,fsdp=2,context=2,virtual=2,schedule=interleaved", marks=slow),
    pytest.param("gemma2", "pipe=2,fsdp=4,schedule=gpipe", marks=slow),
    pytest.param("deepseek-v3", "pipe=2,data=2,expert=2", marks=slow),
    pytest.param("llama", "pipe=2,fsdp=2,tensor=2,layout=1-3,zero=1", marks=slow),
    ("llama", "pipe=4,fsdp=2,schedule=zb-h1,remat=selective"),
    pytest.param("llama", "pipe=2,fsdp=2,tensor=2,schedule=zb-h1,remat=block", marks=slow),
    pytest.param("gemma2", "pipe=2,context=2,data=2,schedule=zb-h1,zero=1", marks=slow),
    pytest.param("deepseek-v3", "pipe=2,data=2,expert=2,schedule=zb-h1,remat=matmuls", marks=slow),
]


@pytest.mark.parametrize(("name", "text"), MIXES)
def test_loss_and_gradients_are_those_of_one_device(name: str, text: str, eight: list[Any]) -> None:
    config, plan = CONFIGS[name], parse_plan(text)
    program, numerics = load_config(config).program(), read_numerics(config)
    params = initialise(program, jax.random.key(0))
    tokens = jax.random.randint(jax.random.key(1), (8, 17), 0, 128)
    given = tokens[:, :-1], tokens[:, 1:]
    order = Order(name, "", plan, RunSettings(steps=1, batch=8, seq=16, dtype="fp32"))
    gradients = step_gradients(order, program, numerics, mesh_of(plan, eight))
    value, found = jax.jit(gradients)(params, given[0][None], given[1][None])

    def plain(params: Any) -> jax.Array:
        return loss(forward(params, program, given[0], PassSetting(numerics)), given[1])

    wanted_value, wanted = jax.jit(jax.value_and_grad(plain))(params)
    assert abs(value["loss"] - wanted_value) < 1e-5
    for got, right in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert jnp.abs(got - right).max() < 1e-4


def test_layers_of_another_kind_run_before_the_pipeline(eight: list[Any]) -> None:
    """One dense layer and three with experts, over two chips: the three are dealt."""
    program = load_config(CONFIGS["deepseek-v3"]).program()
    two, four = (Pipeline(mesh_of(parse_plan(f"pipe={size}"), eight)) for size in (2, 4))
    parts = pipelined_layers(program, two)
    assert [(each.pattern, each.times) for each in parts.before] == [(("block0",), 1)]
    assert (parts.inside.pattern, parts.inside.times, parts.sizes) == (("block1",), 3, (2, 1))
    assert parts.after == ()
    with pytest.raises(InputError, match="too few for pipe times virtual = 4 chunks"):
        pipelined_layers(program, four)


def matmuls(eqns: list[Any]) -> list[int]:
    """FLOPs of each matmul of a program."""
    found = []
    for eqn in eqns:
        if eqn.primitive.name == "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            shape = eqn.invars[0].aval.shape
            found.append(2 * eqn.outvars[0].aval.size * math.prod(shape[dim] for dim in contracted))
        found += matmuls(eqn.params["jaxpr"].eqns) if "jaxpr" in eqn.params else []
    return found


@pytest.mark.parametrize("policy", ["none", "selective", "block"])
def test_a_backward_pass_is_cut_at_the_matmuls_of_weights(policy: str) -> None:
    """Later come seven matmuls, one for each weight, and nothing that was made before; what waits for them is what the
    planner counts."""
    model, tokens = load_config(CONFIGS["llama"]), 2 * 16
    program = model.program()
    run = longest_run(program.order)[1]
    params = jax.eval_shape(lambda key: initialise(program, key), jax.random.key(0))
    weights = jax.eval_shape(lambda tree: jax.tree.map(lambda leaf: leaf[0], layer_weights(tree, run)), params)
    setting = PassSetting(read_numerics(CONFIGS["llama"]), jnp.bfloat16, note=checkpoint_name)
    layer = through(program, run, setting, jnp.arange(16)[None], remat_of(program, policy))
    given = jax.ShapeDtypeStruct((2, 16, 64), jnp.bfloat16)
    pullback = Pullback.of(lambda own, x: layer(x, own)[0], weights, given)
    halves = halves_of(pullback, weights, given)
    kept = list(pullback.kept)
    now, later, whole = (
        matmuls(jax.make_jaxpr(function)(*arguments).jaxpr.eqns)
        for function, arguments in (
            (halves.now, (kept, weights, given)),
            (halves.later, (kept, weights, list(halves.late))),
            (pullback, (kept, weights, given)),
        )
    )
    sizes = [leaf.size for leaf in jax.tree.leaves(weights) if leaf.ndim > 1]
    assert sorted(later) == sorted(2 * tokens * size for size in sizes)
    assert sorted(now + later) == sorted(whole)
    job = make_job(model, parse_slice("h100:2"), 2, 16, "dragonscale")
    plan = parse_plan(f"pipe=2,microbatch=2,schedule=zb-h1,remat={policy}")
    held = judge_one(job, plan).ledger.memory
    layers = len(program.order) // 2
    assert first_number(held["put off"]) == layers * sum(leaf.size * leaf.dtype.itemsize for leaf in halves.late)
