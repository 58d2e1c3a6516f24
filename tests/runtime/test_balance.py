"""A loss that balances experts: its gradient under any plan, and what is told of the experts' load."""

from typing import Any

import numpy
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("optax")
import jax.numpy as jnp  # noqa: E402

from dragonscale.errors import InputError  # noqa: E402
from dragonscale.models.huggingface import load_config  # noqa: E402
from dragonscale.runtime.experts import choose  # noqa: E402
from dragonscale.runtime.forward import forward, loss, unstacked  # noqa: E402
from dragonscale.runtime.lines import PassSetting  # noqa: E402
from dragonscale.runtime.numerics import read_numerics  # noqa: E402
from dragonscale.runtime.parameters import initialise  # noqa: E402
from dragonscale.runtime.place import mesh_of  # noqa: E402
from dragonscale.runtime.train.gradients import expert_statistics, step_gradients  # noqa: E402
from dragonscale.runtime.train.settings import Order, RunSettings, check  # noqa: E402
from dragonscale.training.plan.plan_file import parse_plan  # noqa: E402
from tests.runtime.tiny import CONFIGS  # noqa: E402

B, T, COEFFICIENT = 4, 16, 0.7


def objective(config: dict[str, Any], tokens: Any, targets: Any) -> Any:
    """The cross-entropy and, as DeepSeek-V3's report writes it (section 2.1.2), the sum over layers of the mean over
    sequences of experts * sum of (an expert's share of the choices) * (its mean probability)."""
    program, numerics = load_config(config).program(), read_numerics(config)
    routes = {op.inputs[0].name: s.dims for s in program.sections for op in s.ops if op.function == "route"}

    def total(params: Any) -> Any:
        more = []

        def note(value: Any, name: str) -> Any:
            if name in routes:
                dims, wide = routes[name], value.astype(jnp.float32)
                shares = jax.nn.sigmoid(wide) if numerics.routing.score == "sigmoid" else jax.nn.softmax(wide, -1)
                shares = shares / shares.sum(-1, keepdims=True)
                chosen = choose(jax.lax.stop_gradient(value), dims["x"], numerics.routing).experts
                often = (chosen[..., None] == jnp.arange(dims["e"])).sum((1, 2)) / (dims["x"] * T)
                more.append((often * shares.mean(1)).sum(-1).mean() * dims["e"])
            return value

        given = forward(unstacked(params), program, tokens, PassSetting(numerics, note=note))
        return loss(given, targets) + COEFFICIENT * sum(more), len(more)

    return total


@pytest.mark.parametrize(
    ("kind", "plan"),
    [
        ("qwen3-moe", "context=2,tensor=2,microbatch=2"),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in (
                ("qwen3-moe", "microbatch=4"),
                ("qwen3-moe", "expert=2,tensor=2,sequence=false,microbatch=2"),
                ("qwen3-moe", "pipe=2,tensor=2,microbatch=2"),
                ("deepseek-v3", "fsdp=2,context=2,microbatch=2"),
            )
        ),
    ],
)
def test_gradients_are_those_of_both_losses(kind: str, plan: str, eight: list[Any]) -> None:
    config = CONFIGS[kind] | {"num_hidden_layers": 2}
    program, numerics, settled = load_config(config).program(), read_numerics(config), parse_plan(plan)
    settings = RunSettings(steps=1, batch=B, seq=T, dtype="fp32", balance=COEFFICIENT)
    order = Order("", "", settled, settings)
    params = initialise(program, jax.random.key(0))
    tokens, targets = numpy.random.default_rng(0).integers(0, 128, (2, B, T))
    (_, layers), wanted = jax.jit(jax.value_and_grad(objective(config, tokens, targets), has_aux=True))(params)
    gradients = step_gradients(order, program, numerics, mesh_of(settled, eight), watched=True)
    cut = [each.reshape(order.passes, -1, T) for each in (tokens, targets)]
    found, slopes = jax.jit(gradients)(params, *cut)
    assert layers > 0
    for got, one in zip(jax.tree.leaves(slopes), jax.tree.leaves(wanted), strict=True):
        numpy.testing.assert_allclose(got, one, atol=2e-5)
    plain = loss(forward(params, program, jnp.asarray(tokens), PassSetting(numerics)), jnp.asarray(targets))
    assert float(found["loss"]) == pytest.approx(float(plain), rel=1e-5)  # what is told is the cross-entropy alone
    assert ("busiest_expert" in found) == (settled.pipe == 1)
    assert settled.pipe > 1 or 1 < float(found["busiest_expert"]) <= numerics.routing.groups * 8


def test_the_load_of_experts_is_told() -> None:
    told = expert_statistics([jnp.array([[2.0, 2, 2, 2], [0, 6, 1, 1]]), jnp.array([[4.0, 2, 2, 0]])])
    assert float(told["busiest_expert"]) == 3
    assert float(told["idle_experts"]) == pytest.approx((1 / 8 + 1 / 4) / 2)


def test_a_dense_model_has_nothing_to_balance() -> None:
    settings = RunSettings(data=("none",), steps=1, batch=B, seq=T, dtype="bf16", balance=0.01)
    with pytest.raises(InputError, match="balances experts, and llama3-8b has none"):
        check(Order("llama3-8b", "", parse_plan("fsdp=2"), settings))
