"""The paged kernels for GPUs, interpreted on the CPU, against attention over keys gathered one sequence at a time."""

import jax
import jax.numpy as jnp
import numpy
import pytest

from dragonscale.runtime.attention import Reach, attend
from dragonscale.runtime.serve.gpu_attention import Heads, PagedCache, Tile, decode_rows, prompt_rows

PAGE, WIDTH = 4, 12


def setting(k: int, h: int, lengths: list[int], seed: int = 0, latent: int = 0):
    """A cache of random keys, in shuffled pages."""
    random = numpy.random.default_rng(seed)
    slots = (1 + len(lengths) * WIDTH) * PAGE
    tables = 1 + random.permutation(len(lengths) * WIDTH).reshape(len(lengths), WIDTH)
    keys, values = (jnp.asarray(random.normal(size=(slots, k, h)), jnp.float32) for _ in range(2))
    turned = jnp.asarray(random.normal(size=(slots, k, latent)), jnp.float32) if latent else None
    return keys, values, turned, jnp.asarray(tables, jnp.int32), jnp.asarray(lengths, jnp.int32)


def expected(query, keys, values, table, length, heads: Heads, sinks=None):
    """Of the newest tokens of one sequence."""
    own = (table[:, None] * PAGE + jnp.arange(PAGE)).reshape(-1)[:length]
    at = jnp.arange(length - query.shape[0], length)
    found = attend(
        query[None], keys[own][None], values[own][None], at[None], jnp.arange(length)[None],
        heads.reach, heads.scale, heads.cap, sinks,
    )  # fmt: skip
    return found[0]


CASES = [
    (Reach(), 0.0, False, 1, 1),
    (Reach(), 0.0, True, 4, 1),
    (Reach(window=9), 5.0, False, 2, 3),
    (Reach(chunk=8), 0.0, True, 1, 2),
]


@pytest.mark.parametrize(("reach", "cap", "sink", "splits", "queries"), CASES)
def test_decoding_rows(reach: Reach, cap: float, sink: bool, splits: int, queries: int) -> None:
    n, k, h, heads = 6, 2, 24, Heads(reach, 0.3, cap, PAGE)
    keys, values, _, tables, lengths = setting(k, h, [37, 0, 5, 48])
    random = numpy.random.default_rng(1)
    query = jnp.asarray(random.normal(size=(4 * queries, n, h)), jnp.float32)
    sinks = jnp.asarray(random.normal(size=n), jnp.float32) if sink else None
    found = decode_rows(
        query, PagedCache(keys, values), tables, lengths, heads, sinks=sinks, tile=Tile(16, 8, splits), interpret=True
    )
    for row, length in enumerate([37, 0, 5, 48]):
        own = slice(row * queries, (row + 1) * queries)
        if length:
            wanted = expected(query[own], keys, values, tables[row], length, heads, sinks)
            numpy.testing.assert_allclose(found[own], wanted, atol=1e-5)
        assert numpy.isfinite(found[own]).all()


@pytest.mark.parametrize(("reach", "cap", "sink"), [(Reach(), 0.0, False), (Reach(window=9), 5.0, True)])
def test_chunks_of_prompts(reach: Reach, cap: float, sink: bool) -> None:
    n, k, h, heads = 4, 2, 16, Heads(reach, 0.3, cap, PAGE)
    lengths, starts = [40, 13, 0, 21], [0, 11, 24, 24, 30]
    keys, values, _, tables, sizes = setting(k, h, lengths)
    random = numpy.random.default_rng(1)
    query = jnp.asarray(random.normal(size=(33, n, h)), jnp.float32)
    sinks = jnp.asarray(random.normal(size=n), jnp.float32) if sink else None
    found = prompt_rows(
        query, PagedCache(keys, values), tables, sizes, jnp.asarray(starts), heads, sinks=sinks,
        tile=Tile(8, 8), interpret=True,
    )  # fmt: skip
    for row, length in enumerate(lengths):
        own = slice(starts[row], starts[row + 1])
        if length:
            wanted = expected(query[own], keys, values, tables[row], length, heads, sinks)
            numpy.testing.assert_allclose(found[own], wanted, atol=1e-5)


def test_int8_cache() -> None:
    n, k, h, heads, lengths = 4, 2, 16, Heads(Reach(), 0.3, 0.0, PAGE), [37, 5]
    keys, values, _, tables, sizes = setting(k, h, lengths)
    small, scales = zip(*(quantized(each) for each in (keys, values)), strict=True)
    query = jnp.asarray(numpy.random.default_rng(1).normal(size=(2, n, h)), jnp.float32)
    cache = PagedCache(small[0], small[1], scales[0], scales[1])
    found = decode_rows(query, cache, tables, sizes, heads, tile=Tile(16, 8, 2), interpret=True)
    wide = [each.astype(jnp.float32) * scale[..., None] for each, scale in zip(small, scales, strict=True)]
    for row, length in enumerate(lengths):
        wanted = expected(query[row : row + 1], wide[0], wide[1], tables[row], length, heads)
        numpy.testing.assert_allclose(found[row : row + 1], wanted, atol=1e-5)


def quantized(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    scale = jnp.abs(x).max(-1) / 127
    return jnp.round(x / scale[..., None]).astype(jnp.int8), scale


def test_latents_are_keys_and_values() -> None:
    n, c, r, heads, lengths = 20, 32, 8, Heads(Reach(), 0.3, 0.0, PAGE), [37, 5]
    latents, _, turned, tables, sizes = setting(1, c, lengths, latent=r)
    assert turned is not None
    random = numpy.random.default_rng(1)
    query, q_turned = (jnp.asarray(random.normal(size=(2, n, size)), jnp.float32) for size in (c, r))
    cache = PagedCache(latents, None, turned=turned)
    found = decode_rows(query, cache, tables, sizes, heads, turned=q_turned, tile=Tile(16, 8, 2), interpret=True)
    joined, keys = jnp.concatenate([query, q_turned], -1), jnp.concatenate([latents, turned], -1)
    for row, length in enumerate(lengths):
        wanted = expected(joined[row : row + 1], keys, latents, tables[row], length, heads)
        numpy.testing.assert_allclose(found[row : row + 1], wanted, atol=1e-5)
