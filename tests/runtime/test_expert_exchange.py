"""Experts on other chips give what experts on one chip give, however rows are sent; what is dropped is what must be."""

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec  # noqa: E402

from dragonscale.errors import InputError  # noqa: E402
from dragonscale.evidence.xla.collectives import read_collectives  # noqa: E402
from dragonscale.runtime.expert_exchange import Sending, capacity_for, send  # noqa: E402
from dragonscale.runtime.experts import (  # noqa: E402
    ExpertChoice,
    ExpertRows,
    combine,
    dispatch,
    into_tiles,
    multiply,
    out_of_tiles,
)

B, T, D, F, E, COUNT = 8, 4, 12, 20, 8, 2
SPLIT, WEIGHT = PartitionSpec("expert"), PartitionSpec("expert")
WAYS = {
    "padded": Sending(capacity=B * T * COUNT),
    "ragged": Sending(),
    "ragged in less room": Sending(room=B * T * COUNT),
}


def exchange(
    x: jax.Array,
    chosen: ExpertChoice,
    experts: int,
    work: Callable[[ExpertRows], ExpertRows],
    how: Sending,
    height: int = 0,
) -> jax.Array:
    """One chip's tokens through experts on all chips: dispatch, send, work (in tiles of so many rows), send back,
    combine."""
    rows, path = send(dispatch(x, chosen, experts), experts, "expert", how)
    done = out_of_tiles(work(into_tiles(rows, height)), rows) if height else work(rows)
    return combine(path(done), chosen)


def layer(up: jax.Array, down: jax.Array) -> Callable[[ExpertRows], ExpertRows]:
    def work(rows: ExpertRows) -> ExpertRows:
        hidden = multiply(rows, up)
        return multiply(hidden.having(jax.nn.silu(hidden.values)), down)

    return work


@jax.jit
def plain(x: jax.Array, weights: jax.Array, up: jax.Array, down: jax.Array, experts: jax.Array) -> jax.Array:
    chosen = ExpertChoice(experts, weights)
    return combine(layer(up, down)(dispatch(x, chosen, E)), chosen)


def exchanged(mesh: Mesh, how: Sending, height: int = 0) -> Any:
    def local(x: jax.Array, weights: jax.Array, up: jax.Array, down: jax.Array, experts: jax.Array) -> jax.Array:
        return exchange(x, ExpertChoice(experts, weights), E, layer(up, down), how, height)

    specs = (SPLIT, SPLIT, WEIGHT, WEIGHT, SPLIT)
    return jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=SPLIT, check_vma=False)


@cache
def case(lopsided: bool = False) -> list[jax.Array]:
    keys = jax.random.split(jax.random.key(5), 5)
    scores = jax.random.normal(keys[4], (B, T, E))
    scores = scores.at[..., 0].add(9.0) if lopsided else scores
    return [
        jax.random.normal(keys[0], (B, T, D)),
        jax.nn.softmax(jax.random.normal(keys[1], (B, T, COUNT))),
        jax.random.normal(keys[2], (E, D, F)) * D**-0.5,
        jax.random.normal(keys[3], (E, F, D)) * F**-0.5,
        jax.lax.top_k(scores, COUNT)[1],
    ]


@pytest.fixture(scope="module")
def mesh(eight: list[Any]) -> Mesh:
    return jax.make_mesh((4,), ("expert",), axis_types=(AxisType.Auto,), devices=eight[:4])


@pytest.mark.parametrize(
    ("way", "height"),
    [("ragged", 0), ("ragged", 4), *(pytest.param(way, 0, marks=pytest.mark.slow) for way in WAYS if way != "ragged")],
)
def test_values_and_gradients_are_those_of_one_chip(way: str, height: int, mesh: Mesh) -> None:
    def both(function: Any) -> Any:
        def summed(*arguments: Any) -> Any:
            found = function(*arguments)
            return jnp.square(found).sum(), found

        return jax.jit(jax.value_and_grad(summed, argnums=(0, 1, 2, 3), has_aux=True))

    many, one = both(exchanged(mesh, WAYS[way], height)), both(plain)
    for lopsided in (False, True):
        arguments = case(lopsided)
        for got, wanted in zip(jax.tree.leaves(many(*arguments)), jax.tree.leaves(one(*arguments)), strict=True):
            assert jnp.abs(got - wanted).max() < 1e-4 * max(1.0, float(jnp.abs(wanted).max()))


def test_rows_over_capacity_are_dropped_and_others_are_not(mesh: Mesh) -> None:
    """Each chip keeps the first rows of each expert, in order of its tokens."""
    x, weights, up, down, experts = case()
    capacity = 2
    found = jax.jit(exchanged(mesh, Sending(capacity=capacity)))(x, weights, up, down, experts)
    kept, choice = numpy.zeros((B, T, COUNT), numpy.float32), numpy.asarray(experts)
    for chip in range(4):
        used: Counter[int] = Counter()
        for place in range(B // 4 * T * COUNT):
            b, t, c = chip * 2 + place // (T * COUNT), place // COUNT % T, place % COUNT
            expert = choice[b, t, c]
            kept[b, t, c] = used[expert] < capacity
            used[expert] += 1
    assert 0 < kept.mean() < 1
    assert jnp.abs(found - plain(x, weights * kept, up, down, experts)).max() < 1e-5


def test_without_room_rows_are_dropped_and_nothing_else_changes(mesh: Mesh) -> None:
    """With room for five rows on each chip, most of them are lost; tokens that lost none are right."""
    x, weights, up, down, experts = case()
    found = jax.jit(exchanged(mesh, Sending(room=5)))(x, weights, up, down, experts)
    assert jnp.isfinite(found).all()
    wanted = plain(x, weights, up, down, experts)
    right = jnp.abs(found - wanted).max(-1) < 1e-5
    assert 0 < right.sum() < B * T


def placed(mesh: Mesh) -> list[jax.Array]:
    return [jax.device_put(each, NamedSharding(mesh, SPLIT)) for each in case()]


@pytest.mark.parametrize("way", ["padded", "ragged"])
def test_tokens_are_exchanged_and_never_gathered(way: str, mesh: Mesh) -> None:
    arguments = placed(mesh)
    found = read_collectives(jax.jit(exchanged(mesh, WAYS[way])).lower(*arguments).compile().as_text())
    assert {each.kind for each in found} == {"all_to_all"}
    # Rows and their weights there, rows back; the rest are counts.
    assert sum(each.sent.dtype == "f32" for each in found) == 3


def test_without_an_exchange_tokens_are_gathered(mesh: Mesh) -> None:
    arguments = placed(mesh)
    gathered = jax.jit(plain, out_shardings=NamedSharding(mesh, SPLIT)).lower(*arguments).compile().as_text()
    assert any(each.kind in ("all_gather", "all_reduce") for each in read_collectives(gathered))


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_accelerators_get_the_ragged_collective(platform: str, mesh: Mesh) -> None:
    """Lowered for where it runs: rows travel in two ragged exchanges, their weights in one, and no float is in any
    other."""
    function = jax.jit(exchanged(mesh, Sending(native=True)))
    text = function.trace(*placed(mesh)).lower(lowering_platforms=(platform,)).as_text()
    assert text.count("@ragged_all_to_all") == 3
    assert all("xf32>" not in line for line in text.splitlines() if "stablehlo.all_to_all" in line)
    backward = jax.jit(jax.grad(lambda *each: exchanged(mesh, Sending(native=True))(*each).sum(), argnums=(0, 2)))
    text = backward.trace(*placed(mesh)).lower(lowering_platforms=(platform,)).as_text()
    assert text.count("@ragged_all_to_all") >= 4


def test_capacity_and_uneven_experts(mesh: Mesh) -> None:
    assert capacity_for(1024, 16, 1.0) == 64
    assert capacity_for(10, 16, 1.0) == 1
    x, weights, _, _, experts = case()
    local = jax.shard_map(
        lambda x, w, e: exchange(x, ExpertChoice(e, w), 6, lambda rows: rows, Sending()),
        mesh=mesh,
        in_specs=SPLIT,
        out_specs=SPLIT,
        check_vma=False,
    )
    with pytest.raises(InputError, match="6 experts cannot be split evenly over the 4 chips"):
        jax.eval_shape(local, x, weights, experts)
