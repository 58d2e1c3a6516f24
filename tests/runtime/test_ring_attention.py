"""Ring attention gives plain attention and its gradients, in any order of tokens, and never gathers keys or values."""

from collections import Counter
from typing import Any

import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402
from jax.sharding import AxisType, NamedSharding, PartitionSpec  # noqa: E402

from dragonscale.errors import InputError  # noqa: E402
from dragonscale.evidence.xla.collectives import read_collectives  # noqa: E402
from dragonscale.evidence.xla.compiled import read_compiled  # noqa: E402
from dragonscale.runtime import attention  # noqa: E402
from dragonscale.runtime.attention import Reach, Scoring, attend_causally  # noqa: E402
from dragonscale.runtime.ring_attention import balanced_order, ring_attend, ring_attention  # noqa: E402

B, T, N, K, H = 2, 32, 4, 2, 8
SCALE = H**-0.5
KINDS = {
    "causal": (Reach(), 0.0, False),
    "window": (Reach(window=5), 0.0, False),
    "chunk": (Reach(chunk=8), 0.0, False),
    "cap and sinks": (Reach(), 2.0, True),
    "blocks": (Reach(window=9), 2.0, True),
}


def inputs() -> list[jax.Array]:
    keys = jax.random.split(jax.random.key(3), 4)
    shapes = [(B, T, N, H), (B, T, K, H), (B, T, K, H + 4), (B, T, N, H + 4)]
    return [jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True)]


@pytest.mark.parametrize("kind", KINDS)
def test_plain_attention_is_the_softmax_of_what_is_seen(kind: str) -> None:
    reach, cap, sunk = KINDS[kind]
    query, key, value, _ = (numpy.asarray(each, numpy.float64) for each in inputs())
    sinks = numpy.linspace(-1.0, 1.0, N)
    at, of = numpy.arange(T)[:, None], numpy.arange(T)[None]
    seen = (of <= at) & (of > at - (reach.window or T)) & (of // (reach.chunk or T) == at // (reach.chunk or T))
    shared = numpy.arange(N) // (N // K)  # the key head of each query head
    scores = numpy.einsum("btnh,bsnh->bnts", query, key[:, :, shared]) * SCALE
    weights = numpy.exp(cap * numpy.tanh(scores / cap) if cap else scores) * seen
    total = weights.sum(-1, keepdims=True) + (numpy.exp(sinks)[None, :, None, None] if sunk else 0.0)
    wanted = numpy.einsum("bnts,bsnv->btnv", weights / total, value[:, :, shared])
    places = jnp.broadcast_to(jnp.arange(T), (B, T))
    how = Scoring(reach, SCALE, cap, jnp.asarray(sinks) if sunk else None)
    found = jax.jit(lambda *qkv: attend_causally(*qkv, places, places, how))(*inputs()[:3])
    numpy.testing.assert_allclose(found, wanted, atol=2e-6)


def test_documents_of_a_sequence_do_not_see_each_other(eight: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores of pairs of two documents are left out: in blocks of queries, and in a ring of chips."""
    query, key, value, target = inputs()
    number = numpy.array([[0] * 11 + [1] * 2 + [2] * 19, [0] * 20 + [1] * 12])
    begins = jnp.asarray([[row.tolist().index(one) for one in row] for row in number])
    places = jnp.broadcast_to(jnp.arange(T), (B, T))
    queries, how = jnp.stack([places, begins], -1), Scoring(Reach(), SCALE)
    seen = (number[:, :, None] == number[:, None]) & (numpy.arange(T)[:, None] >= numpy.arange(T))
    mesh = jax.make_mesh((4,), ("context",), axis_types=(AxisType.Auto,), devices=eight[:4])
    split = PartitionSpec(None, "context")
    monkeypatch.setattr(attention, "ATTENTION_BLOCK", 8)
    ring = jax.shard_map(
        lambda *given: ring_attend(*given, how), mesh=mesh, in_specs=(split,) * 4, out_specs=split, check_vma=False
    )

    def dense(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
        wide, own = (jnp.repeat(each, N // K, axis=2) for each in (key, value))
        scores = jnp.where(seen[:, None], jnp.einsum("btnh,bsnh->bnts", query, wide) * SCALE, -jnp.inf)
        return jnp.einsum("bnts,bsnv->btnv", jax.nn.softmax(scores, -1), own)

    ways = (dense, lambda *qkv: attend_causally(*qkv, queries, places, how), lambda *qkv: ring(*qkv, queries))
    found = jax.jit(
        lambda *qkv: [
            jax.value_and_grad(lambda *given, way=way: (way(*given) * target).sum(), argnums=(0, 1, 2))(*qkv)
            for way in ways
        ]
    )(query, key, value)
    for other in found[1:]:
        for got, wanted in zip(jax.tree.leaves(other), jax.tree.leaves(found[0]), strict=True):
            assert jnp.abs(got - wanted).max() < 2e-4


@pytest.mark.parametrize(
    "kind",
    ["causal", *(pytest.param(k, marks=pytest.mark.slow) for k in ("cap and sinks", "blocks", "window", "chunk"))],
)
def test_values_and_gradients_are_those_of_plain_attention(
    kind: str, eight: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    reach, cap, sunk = KINDS[kind]
    mesh = jax.make_mesh((4, 2), ("context", "tensor"), axis_types=(AxisType.Auto,) * 2, devices=eight)
    query, key, value, target = inputs()
    order = balanced_order(T, 4)
    positions = jnp.broadcast_to(jnp.asarray(order), (B, T))
    sinks = jnp.linspace(-1.0, 1.0, N) if sunk else None
    split, own = PartitionSpec(None, "context", "tensor"), PartitionSpec("tensor")

    def ring(query: jax.Array, key: jax.Array, value: jax.Array, sinks: jax.Array | None) -> jax.Array:
        local = jax.shard_map(
            lambda q, k, v, p, s: ring_attend(q, k, v, p, Scoring(reach, SCALE, cap, s)),
            mesh=mesh,
            in_specs=(split, split, split, PartitionSpec(None, "context"), own),
            out_specs=split,
            check_vma=False,
        )
        dealt = local(query[:, order], key[:, order], value[:, order], positions, sinks)
        return dealt[:, numpy.argsort(order)]

    def plain(query: jax.Array, key: jax.Array, value: jax.Array, sinks: jax.Array | None) -> jax.Array:
        places = jnp.broadcast_to(jnp.arange(T), (B, T))
        return attend_causally(query, key, value, places, places, Scoring(reach, SCALE, cap, sinks))

    def both(function: Any) -> Any:
        def summed(*arguments: Any) -> Any:
            found = function(*arguments)
            return (found * target).sum(), found

        chosen = (0, 1, 2, 3) if sunk else (0, 1, 2)
        return jax.jit(jax.value_and_grad(summed, argnums=chosen, has_aux=True))(query, key, value, sinks)

    expected = jax.tree.leaves(both(plain))
    if kind == "blocks":  # two of them on every chip
        monkeypatch.setattr(attention, "ATTENTION_BLOCK", 4)
    for got, wanted in zip(jax.tree.leaves(both(ring)), expected, strict=True):
        assert jnp.abs(got - wanted).max() < 2e-4


def counted(function: Any, *arguments: Any) -> Counter[str]:
    text = jax.jit(function).lower(*arguments).compile().as_text()
    return Counter(each.kind for each in read_collectives(text) for _ in range(each.times))


def test_keys_and_values_are_passed_on_and_never_gathered(eight: list[Any]) -> None:
    mesh = jax.make_mesh((4,), ("context",), axis_types=(AxisType.Auto,), devices=eight[:4])
    split = NamedSharding(mesh, PartitionSpec(None, "context"))
    query, key, value, _ = (jax.device_put(each, split) for each in inputs())
    positions = jax.device_put(jnp.broadcast_to(jnp.arange(T), (B, T)), split)
    ring = ring_attention(mesh, Reach(), SCALE)
    assert counted(ring, query, key, value, positions) == {"permute": 3 * 3}  # keys, values, positions; three hops
    backward = jax.grad(lambda *each: jnp.square(ring(*each)).sum(), argnums=(0, 1, 2))
    found = counted(backward, query, key, value, positions)
    assert set(found) == {"permute"}
    assert found["permute"] <= 2 * 3 * 3 + 2 * 4  # the same again, and the gradients' way home

    def plain(query: jax.Array, key: jax.Array, value: jax.Array, positions: jax.Array) -> jax.Array:
        found = attend_causally(query, key, value, positions, positions, Scoring(Reach(), SCALE))
        return jax.lax.with_sharding_constraint(found, split)

    assert counted(plain, query, key, value, positions)["all_gather"] >= 2


def test_blocks_hold_fewer_scores_and_do_the_same_work(eight: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = jax.make_mesh((2,), ("context",), axis_types=(AxisType.Auto,), devices=eight[:2])
    shapes = [jax.ShapeDtypeStruct((1, 16, 2, 8), jnp.float32)] * 3 + [jax.ShapeDtypeStruct((1, 16), jnp.int32)]

    def compiled() -> tuple[str, float]:
        ring = ring_attention(mesh, Reach(), SCALE)
        gradient = jax.grad(lambda *each: jnp.square(ring(*each)).sum(), argnums=(0, 1, 2))
        text = jax.jit(gradient).lower(*shapes).compile().as_text()
        return text, read_compiled(text, None, {"context": 2}).flops

    text, flops = compiled()
    assert "f32[1,2,1,8,8]" in text  # a score for every query and key of two chips' parts
    # Two products forward; backward the scores again, and two products for each of the two forward.
    assert flops == (2 + 1 + 4) * 2 * (2 * 8 * 16 * 8)
    monkeypatch.setattr(attention, "ATTENTION_BLOCK", 2)
    text, again = compiled()
    assert "f32[1,2,1,2,8]" in text
    assert "f32[1,2,1,8,8]" not in text
    assert again == flops


def test_balanced_orders_give_every_chip_the_same_work() -> None:
    order = balanced_order(64, 4).reshape(4, 16)
    assert len(set((order + 1).sum(1).tolist())) == 1
    with pytest.raises(InputError, match="multiple of 8"):
        balanced_order(20, 4)


def test_a_mesh_without_the_axis_is_refused(eight: list[Any]) -> None:
    mesh = jax.make_mesh((8,), ("tensor",), axis_types=(AxisType.Auto,), devices=eight)
    with pytest.raises(InputError, match="context"):
        ring_attention(mesh, Reach(), SCALE)
