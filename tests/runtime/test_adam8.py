"""Adam with moments in 8 bits: what is rounded, where it lies, and that it follows Adam in fp32."""

from typing import Any

import numpy
import pytest

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")
import jax.numpy as jnp  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

from dragonscale.runtime.train.adam8 import TABLES, Blocks, block_sizes, in_eight_bits, scale_shapes  # noqa: E402

SHAPE = (3, 64, 512)


def dynamic_map(signed: bool) -> numpy.ndarray:
    """As bitsandbytes makes its table (functional.create_dynamic_map, 7 exponent bits of 8)."""
    data = [0.0, 1.0]
    for i in range(7):
        boundaries = numpy.linspace(0.1, 1, 2**i + 1 if signed else 2 ** (i + 1) + 1)
        means = (boundaries[:-1] + boundaries[1:]) / 2
        data += list(10.0 ** (i - 6) * means) + (list(-(10.0 ** (i - 6)) * means) if signed else [])
    return numpy.sort(numpy.array(data, numpy.float32))


def rounded(moment: numpy.ndarray, signed: bool) -> numpy.ndarray:
    """Blocks of 256 along the last dim, each number the nearest of the table's times the largest."""
    table, blocks = dynamic_map(signed), moment.reshape(-1, 256)
    most = numpy.abs(blocks).max(1, keepdims=True)
    nearest = numpy.abs((blocks / numpy.where(most, most, 1))[..., None] - table).argmin(-1)
    return (table[nearest] * most).reshape(moment.shape)


def states(*spec: Any) -> Any:
    mesh = Mesh(numpy.array(jax.devices()[:1]), ("fsdp",))
    return {"block": {"Wd": NamedSharding(mesh, PartitionSpec(*spec)), "w_ffn": NamedSharding(mesh, PartitionSpec())}}


@pytest.mark.parametrize("moment", ["mu", "nu"])
def test_a_moment_is_rounded_as_bitsandbytes_does(moment: str) -> None:
    numpy.testing.assert_array_equal(TABLES[moment], dynamic_map(moment == "mu"))
    draw = numpy.random.default_rng(0)
    value = (draw.normal(size=(4, 512)) * 10.0 ** draw.uniform(-6, 0, (4, 512))).astype(numpy.float32)
    value = value if moment == "mu" else numpy.square(value)
    value[1] = 0
    blank = Blocks(jnp.zeros(value.shape, jnp.uint8), jnp.zeros((4, 2)))
    having = jax.jit(lambda blocks, value: blocks.having(value, TABLES[moment]))
    kept = having(blank, jnp.asarray(value))
    numpy.testing.assert_allclose(kept.widened(TABLES[moment]), rounded(value, moment == "mu"), rtol=1e-6)
    turned = having(Blocks(jnp.zeros((512, 4), jnp.uint8), jnp.zeros((2, 4))), jnp.asarray(value.T))
    numpy.testing.assert_array_equal(turned.codes, kept.codes.T)


def test_steps_are_those_of_adam_with_rounded_moments() -> None:
    draw = numpy.random.default_rng(1)
    params = {"block": {"Wd": jnp.zeros(SHAPE), "w_ffn": jnp.zeros((3, 64))}}
    eight, whole = in_eight_bits(optax.scale_by_adam(0.9, 0.95), states()), optax.scale_by_adam(0.9, 0.95)
    state, exact = eight.init(params), whole.init(params)
    mu, nu = (numpy.zeros(SHAPE, numpy.float32) for _ in range(2))
    for step in range(1, 6):
        slope = {"block": {"Wd": draw.normal(size=SHAPE), "w_ffn": draw.normal(size=(3, 64))}}
        slope = jax.tree.map(lambda one: jnp.asarray(one, jnp.float32), slope)
        made, state = jax.jit(eight.update)(slope, state)
        wanted, exact = jax.jit(whole.update)(slope, exact)
        own = numpy.asarray(slope["block"]["Wd"])
        mu, nu = 0.9 * mu + 0.1 * own, 0.95 * nu + 0.05 * own**2
        update = mu / (1 - 0.9**step) / (numpy.sqrt(nu / (1 - 0.95**step)) + 1e-8)
        apart = abs(made["block"]["Wd"] - update) > 1e-5 + 1e-4 * abs(update)
        assert apart.mean() < 1e-4  # a number between two values of the table goes to either
        numpy.testing.assert_allclose(made["block"]["w_ffn"], wanted["block"]["w_ffn"], rtol=1e-5)  # vectors stay
        mu, nu = rounded(mu, True), rounded(nu, False)
    assert abs(made["block"]["Wd"] - wanted["block"]["Wd"]).mean() < 0.03


def test_blocks_lie_on_one_chip() -> None:
    class Split:
        def __init__(self, *ways: int) -> None:
            self.ways = ways

        def shard_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(size // way for size, way in zip(shape, self.ways, strict=True))

    def scales(*ways: int) -> Any:
        where: Any = {"block": {"Wd": Split(*ways)}}
        return scale_shapes({"block": {"Wd": jax.ShapeDtypeStruct((4, 512, 1024), jnp.float32)}}, where)["block"]["Wd"]

    assert scales(1, 1, 4) == (4, 512, 4)
    assert scales(1, 1, 8) == (4, 2, 1024)  # 128 of the last dim lie on a chip, and 256 of the one before
    assert scales(1, 4, 16) == (4, 4, 1024)
    assert scales(1, 64, 128) is None
    blank = in_eight_bits(optax.scale_by_adam(), states()).init({"block": {"Wd": jnp.zeros(SHAPE)}})
    assert block_sizes(blank) == "2 of 256"
