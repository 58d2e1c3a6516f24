"""Overlapped matmuls give the plain product and its gradients, and their compiled text has permutes
and nothing else."""

from collections import Counter
from typing import Any

import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax.sharding import AxisType, Mesh, NamedSharding  # noqa: E402

from dragonscale.errors import InputError  # noqa: E402
from dragonscale.evidence.xla.collectives import read_collectives  # noqa: E402
from dragonscale.physics.notation import parse_einsum  # noqa: E402
from dragonscale.physics.sharding.partition_spec import to_partition_spec  # noqa: E402
from dragonscale.runtime.collective_matmul import collective_matmul, pattern_of  # noqa: E402
from dragonscale.runtime.rings import hops  # noqa: E402

LINES = {
    "A[B_X, D_Y] @ W[D, F_Y] -> C[B_X, F_Y]": ("all_gather", 1),
    "A[B_Y, D] @ W[D, F_Y] -> C[B, F_Y]": ("all_gather", 1),
    "A[B_X, F_Y] @ W[F_Y, D] -> C[B_X, D_Y]": ("reduce_scatter", 1),
    "A[B, F_Y] @ W[F_Y, D] -> C[B_Y, D]": ("reduce_scatter", 1),
    "A[B_X, F_Y] @ W[F_Y, D] -> C[B_X, D]": ("all_reduce", 3),
}
"""Each line, the collective that it hides, and how many times round the ring replace that (two tiles:
reduced, reduced while the first is gathered, gathered)."""


def mesh_of(devices: list[Any], sizes: tuple[int, int]) -> Mesh:
    return jax.make_mesh(sizes, ("X", "Y"), axis_types=(AxisType.Auto,) * 2, devices=devices[: sizes[0] * sizes[1]])


def compiled(function: Any, *arguments: Any) -> tuple[Any, Counter[str]]:
    """A function compiled for its arguments, and how many collectives of each kind it executes."""
    made = jax.jit(function).lower(*arguments).compile()
    found: Counter[str] = Counter()
    for each in read_collectives(made.as_text()):
        found[each.kind] += each.times
    return made, found


def placed(line: str, mesh: Mesh) -> list[jax.Array]:
    keys = jax.random.split(jax.random.key(0))
    arrays = (jax.random.normal(keys[0], (24, 48)), jax.random.normal(keys[1], (48, 96)))
    specs = [to_partition_spec(array) for array in parse_einsum(line).operands]
    return [jax.device_put(a, NamedSharding(mesh, spec)) for a, spec in zip(arrays, specs, strict=True)]


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("line", LINES)
def test_the_product_and_its_hlo(line: str, both_ways: bool, eight: list[Any]) -> None:
    mesh = mesh_of(eight, (2, 4))
    a, w = placed(line, mesh)
    function, collectives = compiled(collective_matmul(line, mesh, both_ways), a, w)
    assert jnp.abs(function(a, w) - a @ w).max() < 1e-4
    # An even ring that goes both ways cuts its farthest shard in two: one permute more, of half the bytes each.
    rings = LINES[line][1]
    assert collectives == {"permute": rings * (3 + both_ways)}


@pytest.mark.parametrize("line", LINES)
def test_the_plain_form_blocks_on_the_collective_that_is_replaced(line: str, eight: list[Any]) -> None:
    mesh = mesh_of(eight, (2, 4))
    out = NamedSharding(mesh, to_partition_spec(parse_einsum(line).output))
    _, kinds = compiled(lambda a, w: jax.lax.with_sharding_constraint(a @ w, out), *placed(line, mesh))
    collective = pattern_of(parse_einsum(line)).collective
    assert collective == LINES[line][0]
    # XLA's CPU compiler writes a ReduceScatter as an AllReduce and a slice.
    assert ("all_reduce" if collective == "reduce_scatter" else collective) in kinds


@pytest.mark.parametrize("size", [3, *(pytest.param(size, marks=pytest.mark.slow) for size in (2, 4, 6))])
def test_gradients_on_rings_of_any_size(size: int, eight: list[Any]) -> None:
    mesh = mesh_of(eight, (1, size))
    target = jnp.cos(jnp.arange(24 * 96.0)).reshape(24, 96)
    a, w = placed("A[B, D] @ W[D, F] -> C[B, F]", mesh)

    def gradients(a: jax.Array, w: jax.Array) -> list[Any]:
        functions = [collective_matmul(line, mesh, both_ways) for line in LINES for both_ways in (False, True)]
        return [jax.grad(lambda a, w, f=f: (f(a, w) * target).sum(), argnums=(0, 1))(a, w) for f in functions]

    for to_a, to_w in jax.jit(gradients)(a, w):
        assert jnp.abs(to_a - target @ w.T).max() < 1e-4
        assert jnp.abs(to_w - a.T @ target).max() < 1e-4


def test_pieces_that_cannot_be_halved_travel_whole(eight: list[Any]) -> None:
    mesh = mesh_of(eight, (1, 4))
    a, w = jax.random.normal(jax.random.key(0), (4, 12)), jax.random.normal(jax.random.key(1), (12, 12))
    for line in ("A[B, D_Y] @ W[D, F_Y] -> C[B, F_Y]", "A[B, F_Y] @ W[F_Y, D] -> C[B, D_Y]"):
        assert jnp.abs(jax.jit(collective_matmul(line, mesh, both_ways=True))(a, w) - a @ w).max() < 1e-5


@pytest.mark.parametrize("size", range(1, 12))
def test_both_ways_take_half_the_time(size: int) -> None:
    one, both = hops(size), hops(size, both_ways=True)
    assert one.steps == size - 1
    assert both.shard_times == one.shard_times / 2
    assert both.steps == -(-(size - 1) // 2)


@pytest.mark.parametrize(
    "line",
    [
        "A[B_X, D] @ W[D, F] -> C[B_X, F]",
        "A[B, D_Y] @ W[D_X, F] -> C[B, F]",
        "A[B, D_XY] @ W[D, F] -> C[B, F]",
        "A[B, D] @ W[F, D] -> C[B, F]",
        "A[B, D_Z] @ W[D, F] -> C[B, F]",
    ],
)
def test_lines_without_a_ring_are_refused(line: str, eight: list[Any]) -> None:
    with pytest.raises(InputError, match=r"line|split"):
        collective_matmul(line, mesh_of(eight, (2, 4)))


@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        (((8, 6), (6, 16)), "dim F of 6 cannot be cut into 4"),
        (((8, 8), (8, 12)), "dim D of 12 cannot be cut into 8"),
        (((8, 8), (4, 16)), "are not those of"),
        (((8,), (8, 16)), "are not those of"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(shapes: Any, says: str, eight: list[Any]) -> None:
    function = collective_matmul("A[B_X, F_Y] @ W[F_Y, D] -> C[B_X, D]", mesh_of(eight, (2, 4)))
    with pytest.raises(InputError, match=says):
        function(*(jnp.zeros(shape) for shape in shapes))
