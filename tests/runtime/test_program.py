"""The JAX reading of a model program: its tree is the planner's count, its cache gives what its forward pass gives."""

import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

from dragonscale.models import load_model  # noqa: E402
from dragonscale.models.catalogue import model_names  # noqa: E402
from dragonscale.models.huggingface import load_config  # noqa: E402
from dragonscale.models.transformer import count_parameters  # noqa: E402
from dragonscale.runtime.decode import decode, empty_cache, prefill  # noqa: E402
from dragonscale.runtime.forward import forward, stretches  # noqa: E402
from dragonscale.runtime.lines import PassSetting  # noqa: E402
from dragonscale.runtime.numerics import read_numerics  # noqa: E402
from dragonscale.runtime.parameters import abstract, initialise  # noqa: E402
from tests.runtime.tiny import CONFIGS  # noqa: E402


@pytest.mark.parametrize("name", model_names())
def test_the_tree_holds_what_the_planner_counts(name: str) -> None:
    model = load_model(name)
    assert sum(leaf.size for leaf in jax.tree.leaves(abstract(model.program()))) == count_parameters(model).total


@pytest.mark.parametrize("name", model_names())
def test_stretches_are_the_layers_in_order(name: str) -> None:
    order = load_model(name).program().order
    assert tuple(one for s in stretches(order) for one in s.pattern * s.times) == order


USUAL = ("mixtral",)
"""Experts; the others take longer, or are parts of it. Windows and soft caps are held by the engine's tests too."""


@pytest.mark.parametrize(
    "name", [name if name in USUAL else pytest.param(name, marks=pytest.mark.slow) for name in CONFIGS]
)
def test_prefill_and_decode_are_the_forward_pass(name: str) -> None:
    config = CONFIGS[name]
    program, numerics = load_config(config).program(), read_numerics(config)
    params = initialise(program, jax.random.key(0))
    tokens = jax.random.randint(jax.random.key(1), (2, 24), 0, 128)
    whole = jax.jit(lambda p: forward(p, program, tokens, PassSetting(numerics)))(params)
    lengths = jnp.array([20, 13])
    start = jax.jit(lambda p, c: prefill(p, program, tokens[:, :20], lengths, c, PassSetting(numerics)))
    step = jax.jit(lambda p, t, at, c: decode(p, program, t, at, c, PassSetting(numerics)))
    logits, cache = start(params, empty_cache(program, 2, 32, jnp.float32))
    for done in range(4):
        wanted = jnp.stack([whole[row, lengths[row] - 1 + done] for row in range(2)])
        assert jnp.abs(logits - wanted).max() < 1e-4
        at = lengths + done
        logits, cache = step(params, jnp.stack([tokens[row, at[row]] for row in range(2)]), at, cache)
