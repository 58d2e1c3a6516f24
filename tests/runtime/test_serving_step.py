"""Prefill and decode over a mesh, every chip its own part, give what one device gives."""

from typing import Any

import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

from dragonscale.errors import InputError  # noqa: E402
from dragonscale.models.huggingface import load_config  # noqa: E402
from dragonscale.runtime.decode import decode, empty_cache, prefill, serving_mesh, serving_step  # noqa: E402  # noqa: E402
from dragonscale.runtime.expert_exchange import Mixing  # noqa: E402
from dragonscale.runtime.lines import PassSetting  # noqa: E402
from dragonscale.runtime.numerics import read_numerics  # noqa: E402
from dragonscale.runtime.parameters import initialise  # noqa: E402
from dragonscale.serving.engine.plan import parse_serving_plan  # noqa: E402
from tests.runtime.tiny import CONFIGS  # noqa: E402

PLENTY = Mixing(capacity=8.0)
slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "text", "exchange"),
    [
        ("llama", "tensor=2,data=2", False),
        ("qwen3-moe in tiles", "tensor=2,data=2,expert=4", False),
        pytest.param("qwen3-moe in tiles", "data=4,expert=4", True, marks=slow),
        pytest.param("llama", "tensor=4", False, marks=slow),
        pytest.param("gemma2", "tensor=2", False, marks=slow),
        pytest.param("deepseek-v3", "tensor=2,data=2", False, marks=slow),
        pytest.param("qwen3-moe", "tensor=2,data=2,expert=4", False, marks=slow),
        pytest.param("qwen3-moe", "data=4,expert=4", True, marks=slow),
        pytest.param("qwen3-moe", "tensor=2,data=2,expert=2", True, marks=slow),
        pytest.param("mixtral", "tensor=4,expert=2", False, marks=slow),
    ],
)
def test_logits_are_those_of_one_device(
    name: str, text: str, exchange: bool, eight: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    mixing = PLENTY
    if name.endswith("in tiles"):  # as on a GPU with a kernel for them
        mixing = Mixing()
        monkeypatch.setattr("dragonscale.runtime.expert_lines._tile_height", lambda *_: 4)
    config, plan = CONFIGS[name.removesuffix(" in tiles")], parse_serving_plan(text)
    program, numerics = load_config(config).program(), read_numerics(config)
    params = initialise(program, jax.random.key(0))
    tokens = jax.random.randint(jax.random.key(1), (4, 12), 0, 128)
    lengths = jnp.array([12, 7, 12, 3])
    mesh = serving_mesh(plan, program, eight[: plan.chips])
    alone = PassSetting(numerics)
    wanted, cache = prefill(params, program, tokens, lengths, empty_cache(program, 4, 12, jnp.float32), alone)
    first = serving_step("prefill", plan, program, numerics, mesh, 4, 12, mixing, exchange, jnp.float32)

    def placed(values: Any, shapes: Any) -> Any:
        return jax.tree.map(lambda value, shape: jax.device_put(value, shape.sharding), values, shapes)

    empty = jax.tree.map(lambda each: jnp.zeros(each.shape, each.dtype, device=each.sharding), first.arguments[3])
    weights = placed(params, first.arguments[0])
    found, mine = first.run(weights, *placed((tokens, lengths), first.arguments[1:3]), empty)
    assert jnp.abs(found - wanted).max() < 1e-4
    newest = wanted.argmax(-1).astype(jnp.int32)
    at = jnp.minimum(lengths, 11)
    wanted, _ = decode(params, program, newest, at, cache, alone)
    then = serving_step("decode", plan, program, numerics, mesh, 4, 12, mixing, exchange, jnp.float32)
    found, _ = then.run(weights, *placed((newest, at), then.arguments[1:3]), mine)
    assert jnp.abs(found - wanted).max() < 1e-4


def test_what_has_no_program_is_refused() -> None:
    program = load_config(CONFIGS["llama"]).program()
    plan = parse_serving_plan("tensor=2,context=2")
    with pytest.raises(InputError, match="context=2 has no JAX program yet"):
        serving_step("decode", plan, program, read_numerics(CONFIGS["llama"]), None, 4, 8, PLENTY)  # pyright: ignore
