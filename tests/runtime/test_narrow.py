"""Matmuls in fp8: what is rounded, and that a model learns with them."""

from typing import Any

import ml_dtypes
import numpy
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("optax")
import jax.numpy as jnp  # noqa: E402

from dragonscale.models.huggingface import load_config  # noqa: E402
from dragonscale.runtime.narrow import BACKWARD, FORWARD, narrow_einsum, rounded  # noqa: E402
from dragonscale.runtime.numerics import read_numerics  # noqa: E402
from dragonscale.runtime.parameters import initialise  # noqa: E402
from dragonscale.runtime.place import mesh_of  # noqa: E402
from dragonscale.runtime.train.gradients import step_gradients  # noqa: E402
from dragonscale.runtime.train.settings import Order, RunSettings  # noqa: E402
from dragonscale.training.plan.plan_file import parse_plan  # noqa: E402
from tests.runtime.tiny import CONFIGS  # noqa: E402


def in_eight_bits(x: numpy.ndarray, kind: Any, largest: float) -> numpy.ndarray:
    scale = 2.0 ** numpy.ceil(numpy.log2(numpy.abs(x).max() / largest))
    return (x / scale).astype(kind).astype(numpy.float32) * scale


def widened(x: Any, kind: Any) -> Any:
    """Numbers in eight bits times their scale."""
    numbers, scale = rounded(x, kind)
    return numbers.astype(x.dtype) * scale


@pytest.mark.parametrize("size", [1e-20, 1e-3, 1.0, 1e5])
def test_numbers_are_rounded_by_the_largest(size: float) -> None:
    x = (numpy.random.default_rng(0).normal(size=(64, 48)) * size).astype(numpy.float32)
    for kind, largest in ((ml_dtypes.float8_e4m3fn, 448.0), (ml_dtypes.float8_e5m2, 57344.0)):
        wanted = in_eight_bits(x, kind, largest)
        numpy.testing.assert_array_equal(widened(jnp.asarray(x), kind), wanted)
        assert abs(wanted - x).max() <= abs(x).max() * (2**-4 if largest < 1000 else 2**-3)
        wide = widened(jnp.asarray(x, jnp.bfloat16), kind)  # widened in bf16 without loss
        exact = in_eight_bits(numpy.asarray(jnp.asarray(x, jnp.bfloat16).astype(jnp.float32)), kind, largest)
        numpy.testing.assert_array_equal(wide.astype(jnp.float32), exact)
    assert (widened(jnp.zeros((2, 2)), FORWARD) == 0).all()


def test_products_and_gradients_are_of_rounded_numbers() -> None:
    draw = numpy.random.default_rng(1)
    x, weight, slope = (draw.normal(size=s).astype(numpy.float32) for s in ((2, 8, 32), (32, 4, 8), (2, 8, 4, 8)))

    @jax.jit
    def both(x, weight, slope):
        made, pull = jax.vjp(lambda *given: narrow_einsum("abc,cde->abde", *given), x, weight)
        return made, *pull(slope)

    made, to_x, to_weight = both(x, weight, slope)
    near = [numpy.asarray(widened(jnp.asarray(one), FORWARD)) for one in (x, weight)]
    back = numpy.asarray(widened(jnp.asarray(slope), BACKWARD))
    numpy.testing.assert_allclose(made, numpy.einsum("abc,cde->abde", *near), rtol=1e-5, atol=1e-4)
    numpy.testing.assert_allclose(to_x, numpy.einsum("abde,cde->abc", back, near[1]), rtol=1e-5, atol=1e-4)
    numpy.testing.assert_allclose(to_weight, numpy.einsum("abc,abde->cde", near[0], back), rtol=1e-5, atol=1e-4)


def test_gradients_in_fp8_are_near_those_in_bf16(eight: list[Any]) -> None:
    config = CONFIGS["llama"] | {"num_hidden_layers": 2}
    program, numerics, plan = load_config(config).program(), read_numerics(config), parse_plan("tensor=2,fsdp=2")
    params = initialise(program, jax.random.key(0))
    tokens = numpy.random.default_rng(0).integers(0, 128, (2, 1, 4, 16))
    made = {}
    for dtype in ("fp32", "fp8"):
        order = Order("", "", plan, RunSettings(steps=1, batch=4, seq=16, dtype=dtype))
        made[dtype] = jax.jit(step_gradients(order, program, numerics, mesh_of(plan, eight)))(params, *tokens)
    whole, narrow = (numpy.concatenate([numpy.ravel(one) for one in jax.tree.leaves(made[d][1])]) for d in made)
    assert float(made["fp8"][0]["loss"]) == pytest.approx(float(made["fp32"][0]["loss"]), rel=5e-3)
    likeness = (whole * narrow).sum() / (numpy.linalg.norm(whole) * numpy.linalg.norm(narrow))
    assert 0.98 < likeness < 0.99999
