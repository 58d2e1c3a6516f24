"""The paged kernels for GPUs, interpreted on the CPU, against attention over gathered pages."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy
import pytest

from dragonscale.runtime.attention import Reach, Scoring
from dragonscale.runtime.experts import choose, slotted
from dragonscale.runtime.numerics import Routing
from dragonscale.runtime.quantized import Quantized, quantized
from dragonscale.runtime.serve.gpu_attention import PageReading, Tile, attend_rows, decode_rows, prompt_rows
from dragonscale.runtime.serve.gpu_matmul import MatmulTile, few_tokens, skinny_matmul
from dragonscale.runtime.serve.gpu_routing import choose_few, slots_of_few
from dragonscale.runtime.serve.gpu_slots import slot_matmul
from dragonscale.runtime.serve.paged_attention import (
    PagedKeys,
    StepRows,
    attend_chunks,
    attend_decodes,
)
from dragonscale.runtime.serve.step_program import attend_paged
from dragonscale.runtime.serve.steps import StepShape

PAGE, WIDTH = 4, 10


def normal(seed: int, *shape: int) -> jax.Array:
    return jnp.asarray(numpy.random.default_rng(seed).normal(size=shape), jnp.float32)


def made_rows(shape: StepShape, lengths: list[int], starts: list[int]) -> StepRows:
    """Rows whose pages lie anywhere."""
    tables = 1 + numpy.random.default_rng(0).permutation(len(lengths) * WIDTH).reshape(-1, WIDTH)
    newest = (numpy.array(lengths)[: shape.decodes, None] - shape.queries + numpy.arange(shape.queries)).reshape(-1)
    none = jnp.zeros(0, jnp.int32)
    arrays = {"positions": newest, "tables": tables, "lengths": lengths, "starts": starts}
    given = {name: jnp.asarray(value, jnp.int32) for name, value in arrays.items()}
    rest = dict.fromkeys(("tokens", "from_last", "writes", "slots", "reads", "adapters"), none)
    return StepRows(**given, **rest, shape=shape, page=PAGE)


def made_cache(rows: StepRows, k: int, h: int, int8: bool = False, latent: bool = False) -> PagedKeys:
    """Random keys; what nobody may read is not a number: page 0, and what is behind the end of each row. In int8,
    scales are not."""
    slots = (1 + rows.tables.size) * PAGE
    places = numpy.asarray(rows.tables)[:, :, None] * PAGE + numpy.arange(PAGE)
    behind = numpy.arange(WIDTH * PAGE)[None] >= numpy.asarray(rows.lengths)[:, None]
    unused = numpy.concatenate([numpy.arange(PAGE), places.reshape(len(places), -1)[behind]])
    keys, values = (normal(seed, slots, k, h) for seed in (1, 2))
    if int8:
        (keys, one), (values, other) = (quantized(each, (-1,)) for each in (keys, values))
        one, other = (each[..., 0].at[unused].set(jnp.nan) for each in (one, other))
        return PagedKeys(keys, None if latent else values, one, None if latent else other)
    keys, values = (each.at[unused].set(jnp.nan) for each in (keys, values))
    return PagedKeys(keys, None if latent else values)


def without_nan(cache: PagedKeys) -> PagedKeys:
    return jax.tree.map(lambda each: jnp.nan_to_num(each) if each.dtype == jnp.float32 else each, cache)


CASES = {
    "one part": (Scoring(Reach(), 0.3), 1, 1, {}),
    "four parts and sinks": (Scoring(Reach(), 0.3, sinks=normal(3, 6)), 4, 1, {}),
    "window, cap, drafts, sinks": (Scoring(Reach(window=9), 0.3, 5.0, normal(3, 6)), 2, 3, {}),
    "chunks of keys": (Scoring(Reach(chunk=8), 0.3, sinks=normal(3, 6)), 1, 2, {}),
    "int8": (Scoring(Reach(), 0.3), 2, 1, {"int8": True}),
    "latents": (Scoring(Reach(), 0.3), 2, 1, {"latent": True}),
    "latents in int8, drafts": (Scoring(Reach(), 0.3), 1, 3, {"latent": True, "int8": True}),
}


@pytest.mark.slow
def test_a_mixed_step() -> None:
    """Decoding rows with drafts beside prompts' chunks, with a window, a soft cap and sinks; the blocks are larger than
    the rows."""
    shape, starts = StepShape(2, 3, 3, 26), [6, 17, 17, 30]
    rows = made_rows(shape, [37, 0, 40, 0, 21], starts)
    query, cache = normal(4, 32, 4, 24), made_cache(rows, 2, 24)
    how = Scoring(Reach(window=9), 0.3, 5.0, normal(3, 4))
    key = cache.keys[:32]
    found = jax.jit(partial(attend_rows, how=how, interpret=True))(query, key, key, cache, rows)
    clean = without_nan(cache)
    wanted = jax.jit(partial(attend_paged, how=how))(query, key, key, clean, rows)
    numpy.testing.assert_allclose(found[:3], wanted[:3], atol=1e-5)
    numpy.testing.assert_allclose(found[6:30], wanted[6:30], atol=1e-5)
    assert numpy.isfinite(found).all()


def test_drafts_of_more_heads_than_a_block_has() -> None:
    """Latent attention has all query heads at one KV head: with drafts a block holds some of the
    heads, and all tokens."""
    rows = made_rows(StepShape(2, 3), [21, 5], [0])
    query, cache = normal(4, 6, 20, 40), made_cache(rows, 1, 40, latent=True)
    how = Scoring(Reach(), 0.3)
    call = partial(decode_rows, reading=PageReading(PAGE, how, 32, Tile(16, 8, 2), True), queries=3)
    found = jax.jit(call)(query, cache, rows.tables, rows.lengths)
    wanted = jax.jit(partial(attend_decodes, how=how, size=32))(query, without_nan(cache), rows)
    numpy.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_decoding_rows(case: str) -> None:
    how, splits, queries, kind = CASES[case]
    latent = kind.get("latent", False)
    wide = 64 if kind.get("int8") else 8  # channels of int8 that are read as words
    n, k, h, size = (20, 1, 2 * wide, wide) if latent else (6, 2, 3 * wide, 3 * wide)
    lengths = [37, 0, 5, 40]
    rows = made_rows(StepShape(len(lengths), queries), lengths, [0])
    query, cache = normal(4, len(lengths) * queries, n, h), made_cache(rows, k, h, **kind)
    call = partial(decode_rows, reading=PageReading(PAGE, how, size, Tile(16, 8, splits), True), queries=queries)
    found = jax.jit(call)(query, cache, rows.tables, rows.lengths)
    clean = without_nan(cache)
    wanted = jax.jit(partial(attend_decodes, how=how, size=size))(query, clean, rows)
    real = numpy.repeat(numpy.array(lengths) > 0, queries)
    numpy.testing.assert_allclose(found[real], wanted[real], atol=1e-5)
    assert numpy.isfinite(found).all()


@pytest.mark.slow
@pytest.mark.parametrize("how", [Scoring(Reach(), 0.3), Scoring(Reach(chunk=8), 0.3)])
def test_chunks_of_prompts(how: Scoring) -> None:
    starts = [0, 11, 24, 24, 30]
    rows = made_rows(StepShape(prompts=4, tokens=33), [40, 13, 0, 21], starts)
    query, cache = normal(4, 33, 4, 16), made_cache(rows, 2, 16)
    call = partial(prompt_rows, reading=PageReading(PAGE, how, 16, Tile(8, 8), True))
    found = jax.jit(call)(query, cache, rows.tables, rows.lengths, rows.starts)
    clean = without_nan(cache)
    wanted = jax.jit(partial(attend_chunks, how=how, size=16))(query, clean, rows)
    numpy.testing.assert_allclose(found[: starts[-1]], wanted[: starts[-1]], atol=1e-5)


@pytest.mark.parametrize(("tokens", "splits"), [(1, 2), pytest.param(20, 1, marks=pytest.mark.slow)])
def test_matmuls_of_few_tokens(tokens: int, splits: int) -> None:
    x, weight = normal(1, tokens, 64), normal(2, 64, 40)
    found = skinny_matmul(x, weight, MatmulTile(16, 16, splits), interpret=True).sum(0)
    numpy.testing.assert_allclose(found, x @ weight, atol=1e-4)


def test_matmuls_with_int8_weights() -> None:
    """Four columns are read as a word, and their results go to their own places."""
    x, weight = normal(1, 3, 64), (40 * normal(2, 64, 128)).astype(jnp.int8)
    found = skinny_matmul(x, weight, MatmulTile(64, 16, 2), interpret=True).sum(0)
    numpy.testing.assert_allclose(found, x @ weight.astype(jnp.float32), atol=1e-2)


def test_which_einsums_are_such_matmuls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only of few tokens, whose weight's leading dims are summed over; anything else is left to XLA."""
    monkeypatch.setattr("dragonscale.runtime.serve.gpu_matmul.skinny_matmul", lambda x, w, *_, **__: (x @ w)[None])
    x, weight = normal(1, 1, 3, 4, 64).astype(jnp.bfloat16), normal(2, 4, 64, 32).astype(jnp.bfloat16)
    found = few_tokens("abcd,cde->abe", x, weight)
    assert found is not None
    numpy.testing.assert_array_equal(found.value, jnp.einsum("abcd,cde->abe", x, weight))
    assert few_tokens("abcd,ecd->abe", x, normal(2, 32, 4, 64)) is None
    assert few_tokens("abcd,cde->abe", jnp.tile(x, (1, 30, 1, 1)), weight) is None


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize(("tokens", "columns", "chosen"), [(3, 48, 3), (16, 64, 6), (20, 64, 0)])
def test_matmuls_of_few_tokens_with_experts(tokens: int, columns: int, chosen: int, dtype: str) -> None:
    """Slots beyond the chosen ones are zero; each of two sums has every second slot."""
    weight = jnp.round(normal(1, 6, 128, columns) * 9).astype(dtype)
    owner, count = jnp.array([4, 0, 5, 1, 3, 2], jnp.int32), jnp.array([chosen], jnp.int32)
    scale = 1 + jnp.abs(normal(4, 6, columns)) if dtype == "int8" else jnp.ones((6, columns))
    there = jnp.where((jnp.arange(6) < chosen)[:, None, None], (weight * scale[:, None])[owner], 0)
    held = Quantized(weight, scale) if dtype == "int8" else weight
    x, own = normal(2, tokens, 128), normal(3, 6, tokens, 128)

    @jax.jit
    def ways(x, own):
        sums = (
            slot_matmul(rows, held, owner, count, MatmulTile(64, 64, n), interpret=True)
            for rows, n in ((x, 6), (own, 2))
        )
        return *sums, jnp.einsum("tk,skn->stn", x, there), jnp.einsum("stk,skn->stn", own, there)

    whole, halves, wanted, apart = ways(x, own)
    assert jnp.allclose(whole, wanted, atol=1e-3)
    assert jnp.allclose(halves, apart.reshape(3, 2, tokens, columns).sum(0), atol=1e-3)


@pytest.mark.parametrize("correction", [None, 0.1])
@pytest.mark.parametrize(
    "routing",
    [Routing(), Routing("after", False), Routing("sigmoid", True, 2.5), Routing("softmax", False)],
    ids=lambda one: one.score,
)
def test_routing_of_few_tokens(routing: Routing, correction: float | None) -> None:
    """As XLA's: the choice, its weights, slots of all experts and of a chip's own."""
    logits, x = normal(1, 1, 5, 6), normal(2, 1, 5, 4)
    added = None if correction is None else correction * jnp.arange(6.0)

    @jax.jit
    def ways(logits, x):
        wanted, found = choose(logits, 3, routing, added), choose_few(logits, 3, routing, added, interpret=True)
        parts = jnp.stack([logits[0] - 0.75, jnp.full((5, 6), 0.75)])  # the logits themselves are not read then
        again = choose_few(0 * logits, 3, routing, added, parts, interpret=True)
        pairs = []
        for experts, first in ((6, 0), (3, 3)):
            rows = slotted(x, wanted, experts, first)
            few = slots_of_few(wanted.experts, wanted.weights, experts, first, interpret=True)
            pairs.append(((rows.slots.owner, rows.slots.count, rows.scale), few))
        return (wanted.experts, wanted.weights), found, again, pairs

    wanted, found, again, pairs = ways(logits, x)
    for other in (found, again):
        assert other[0].tolist() == wanted[0].tolist()
        numpy.testing.assert_allclose(other[1], wanted[1], atol=1e-6)
    for (owner, count, scale), few in pairs:
        assert few[0].tolist() == owner.tolist()
        assert few[1].tolist() == count.tolist()
        numpy.testing.assert_allclose(few[2], scale, atol=1e-6)
