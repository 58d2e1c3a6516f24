"""Attention over a cache that is split along the sequence: that over the whole cache, and only results travel."""

from typing import Any

import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax.sharding import AxisType, NamedSharding, PartitionSpec  # noqa: E402

from dragonscale.evidence.xla.compiled import read_compiled  # noqa: E402
from dragonscale.runtime.attention import Reach, Scoring, attend_cached  # noqa: E402
from tests.runtime.split_cache import attend_split_cache  # noqa: E402

B, S, N, K, H, V = 3, 32, 4, 2, 8, 12
SCALE = H**-0.5
MESH = {"context": 4, "tensor": 2}
KINDS = {
    "causal": (Reach(), 0.0, False),
    "window": (Reach(window=5), 0.0, False),
    "cap and sinks": (Reach(chunk=8), 2.0, True),
}


def inputs(tokens: int) -> tuple[jax.Array, ...]:
    keys = jax.random.split(jax.random.key(4), 3)
    shapes = [(B, tokens, N, H), (B, S, K, H), (B, S, K, V)]
    ends = jnp.asarray([2, 17, 30])  # some chips hold no key that the first and last sequence see
    positions = ends[:, None] + jnp.arange(tokens) - tokens + 1
    return *(jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True)), positions


def split(devices: list[Any], reach: Reach, cap: float, sinks: Any) -> Any:
    mesh = jax.make_mesh(tuple(MESH.values()), tuple(MESH), axis_types=(AxisType.Auto,) * 2, devices=devices)
    query, cache = PartitionSpec(None, None, "tensor"), PartitionSpec(None, "context", "tensor")

    def local(query: Any, key: Any, value: Any, positions: Any, keys: Any, sinks: Any) -> Any:
        return attend_split_cache(query, key, value, positions, keys, reach, SCALE, "context", cap, sinks)

    own = None if sinks is None else PartitionSpec("tensor")
    places = PartitionSpec(None, "context")
    specs = (query, cache, cache, PartitionSpec(), places, own)
    return mesh, jax.jit(jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=query, check_vma=False))


@pytest.mark.parametrize("tokens", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_the_parts_join_to_the_whole(kind: str, tokens: int, eight: list[Any]) -> None:
    reach, cap, sunk = KINDS[kind]
    query, key, value, positions = inputs(tokens)
    sinks = jnp.linspace(-1.0, 1.0, N) if sunk else None
    _, function = split(eight, reach, cap, sinks)
    keys = jnp.broadcast_to(jnp.arange(S), (B, S))
    got = function(query, key, value, positions, keys, sinks)
    assert jnp.abs(got - attend_cached(query, key, value, positions, Scoring(reach, SCALE, cap, sinks))).max() < 1e-5


def test_the_order_of_a_cache_does_not_matter(eight: list[Any]) -> None:
    query, key, value, positions = inputs(1)
    _, function = split(eight, Reach(), 0.0, None)
    order = jax.random.permutation(jax.random.key(0), S)
    keys = jnp.broadcast_to(order, (B, S))
    got = function(query, key[:, order], value[:, order], positions, keys, None)
    assert jnp.abs(got - attend_cached(query, key, value, positions, Scoring(Reach(), SCALE))).max() < 1e-5


def test_only_the_result_travels(eight: list[Any]) -> None:
    mesh, function = split(eight, Reach(), 0.0, None)

    def laid(array: jax.Array, *spec: str | None) -> Any:
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=NamedSharding(mesh, PartitionSpec(*spec)))

    query, key, value, positions = inputs(1)
    caches = (laid(key, None, "context", "tensor"), laid(value, None, "context", "tensor"))
    keys = jax.ShapeDtypeStruct((B, S), jnp.int32, sharding=NamedSharding(mesh, PartitionSpec(None, "context")))
    text = function.lower(laid(query, None, None, "tensor"), *caches, laid(positions), keys, None).compile().as_text()
    found = read_compiled(text, None, MESH).collectives
    assert {(each.kind, each.axes) for each in found} == {("all_reduce", ("context",))}
    sent = sum(each.volume_bytes * each.times for each in found)
    assert sent == 4 * B * N // 2 * (V + 2)  # values, the largest score and the sum of each head
