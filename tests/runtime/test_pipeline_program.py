"""A model's loss and gradients through a pipeline, mixed with other axes, are those of one device."""

from typing import Any

import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

from dragonscale.errors import InputError  # noqa: E402
from dragonscale.models.huggingface import load_config  # noqa: E402
from dragonscale.runtime.forward import forward, loss  # noqa: E402
from dragonscale.runtime.lines import PassSetting  # noqa: E402
from dragonscale.runtime.numerics import read_numerics  # noqa: E402
from dragonscale.runtime.parameters import initialise  # noqa: E402
from dragonscale.runtime.pipeline import Pipeline, pipelined_layers  # noqa: E402
from dragonscale.runtime.place import mesh_of  # noqa: E402
from dragonscale.runtime.train.gradients import step_gradients  # noqa: E402
from dragonscale.runtime.train.settings import Order, RunSettings  # noqa: E402
from dragonscale.training.plan_file import parse_plan  # noqa: E402
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
