"""Every matmul of a step says which part of the model it belongs to and which line it comes from."""

import re

import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from dragonscale.models.huggingface import load_config  # noqa: E402
from dragonscale.runtime.forward import forward, loss  # noqa: E402
from dragonscale.runtime.lines import PassSetting  # noqa: E402
from dragonscale.runtime.numerics import read_numerics  # noqa: E402
from dragonscale.runtime.parameters import abstract  # noqa: E402
from tests.runtime.tiny import CONFIGS  # noqa: E402

WORDS = ("embedding", "attention", "mlp", "experts", "head")
LINES = ("Wq", "Wk", "Wv", "Wo", "Wu", "Wg", "Wd", "W_router", "W_head", "attend")


@pytest.mark.parametrize("name", ["llama", "mixtral"])
def test_matmuls_have_a_section_and_a_line(name: str) -> None:
    config = CONFIGS[name]
    program, numerics = load_config(config, name).program(), read_numerics(config)

    def cost(params: object, tokens: jax.Array) -> jax.Array:
        return loss(forward(params, program, tokens, PassSetting(numerics)), tokens)

    tokens = jax.ShapeDtypeStruct((2, 8), jnp.int32)
    text = jax.jit(jax.grad(cost)).lower(abstract(program), tokens).as_text(debug_info=True)
    named = dict(re.findall(r'^(#loc\d+) = loc\("([^"]*)"', text, re.MULTILINE))
    found = [named[place] for place in re.findall(r"(?:dot_general|ragged_dot)[^\n]*loc\((#loc\d+)\)", text)]
    assert len(found) > 20
    for each in found:
        words = set(re.split(r"[/()]", each))
        assert words & set(WORDS), each
        assert words & set(LINES), each
    assert {"transpose", "jvp"} <= set(re.split(r"[/()]", " / ".join(found)))
