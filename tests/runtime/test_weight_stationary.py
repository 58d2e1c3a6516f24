"""Weights split in two dims stay where they are: the block's result is the plain one, and only activations travel."""

from typing import Any

import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec  # noqa: E402

from dragonscale.errors import InputError  # noqa: E402
from dragonscale.evidence.xla.collectives import Collective, read_collectives  # noqa: E402
from dragonscale.runtime.weight_stationary import weight_stationary_mlp  # noqa: E402

B, D, F, X, Y = 4, 32, 64, 2, 4


@pytest.fixture(scope="module")
def mesh(eight: list[Any]) -> Mesh:
    return jax.make_mesh((X, Y), ("X", "Y"), axis_types=(AxisType.Auto,) * 2, devices=eight)


def arrays(mesh: Mesh, gated: bool) -> list[jax.Array]:
    shapes = [(B, D), *([(D, F)] * (2 if gated else 1)), (F, D)]
    specs = [
        PartitionSpec(None, ("X", "Y")),
        *([PartitionSpec("X", "Y")] * (2 if gated else 1)),
        PartitionSpec("Y", "X"),
    ]
    keys = jax.random.split(jax.random.key(2), len(shapes))
    made = [jax.random.normal(key, shape) * shape[0] ** -0.5 for key, shape in zip(keys, shapes, strict=True)]
    return [jax.device_put(array, NamedSharding(mesh, spec)) for array, spec in zip(made, specs, strict=True)]


def plain(x: jax.Array, *weights: jax.Array) -> jax.Array:
    hidden = jax.nn.silu(x @ weights[0])
    return (hidden * (x @ weights[1]) if len(weights) == 3 else hidden) @ weights[-1]


def compiled(function: Any, given: list[jax.Array]) -> tuple[Any, list[Collective]]:
    made = jax.jit(function).lower(*given).compile()
    return made, read_collectives(made.as_text())


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("gated", [False, True])
def test_the_block_and_what_travels(gated: bool, both_ways: bool, mesh: Mesh) -> None:
    given = arrays(mesh, gated)
    function, found = compiled(weight_stationary_mlp(mesh, gated=gated, both_ways=both_ways), given)
    assert jnp.abs(function(*given) - jax.jit(plain)(*given)).max() < 1e-5
    assert {each.kind for each in found} == {"permute"}
    halves = 2 if both_ways else 0  # in each of two matmuls both rings are even, and cut their farthest shard in two
    assert len(found) == 2 * (X - 1 + Y - 1 + halves)
    matrices = 2 if gated else 1
    share = 2 * B * D / X * (Y - 1) / Y + (1 + matrices) * B * F / Y * (X - 1) / X
    assert sum(each.sent.bytes for each in found) == 4 * share


def test_gradients(mesh: Mesh) -> None:
    given = arrays(mesh, gated=True)

    def of(function: Any) -> Any:
        return jax.jit(jax.grad(lambda *each: jnp.square(function(*each)).sum(), argnums=(0, 1, 2, 3)))(*given)

    for got, wanted in zip(of(weight_stationary_mlp(mesh)), of(plain), strict=True):
        assert jnp.abs(got - wanted).max() < 1e-4


def test_the_plain_form_blocks(mesh: Mesh) -> None:
    out = NamedSharding(mesh, PartitionSpec(None, ("X", "Y")))
    _, found = compiled(lambda *each: jax.lax.with_sharding_constraint(plain(*each), out), arrays(mesh, gated=False))
    assert {each.kind for each in found} & {"all_gather", "all_reduce", "reduce_scatter"}


def test_a_mesh_without_two_axes_is_refused(mesh: Mesh) -> None:
    with pytest.raises(InputError, match="two such axes"):
        weight_stationary_mlp(mesh, "X", "Z")
