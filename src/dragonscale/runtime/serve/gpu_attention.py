"""Attention over paged caches on NVIDIA GPUs: one kernel, in Pallas, for decoding rows and for chunks of prompts.

A program of the kernel has a block of query rows (some tokens of one sequence, times the query heads that share a KV head) and walks over
the keys of that sequence, a block at a time, with a running softmax; scores never leave the chip. Where a key lies is read from
the page table inside the loop, so a block of keys may be spread over any pages. Blocks outside the window (or chunk) are not visited.
Rows of no tokens end at once.

Decoding has few query rows and would leave most of the GPU idle: its keys are split over programs (flash-decoding), each leaves its
part and the logarithm of its sum, and a second small kernel adds the parts up. Caches are bf16, or int8 with a scale for each token
and head: scores are multiplied by the keys' scales and weights by the values', so nothing is unpacked to memory. Latent attention has
keys in two arrays (latents and turned channels) and the latents as values, which are then loaded once.
"""

import functools
import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as gpu

from dragonscale.runtime.attention import UNSEEN, Reach

LOG2E = math.log2(math.e)
PROGRAMS = 264
"""Programs that keep an H100 or H200 busy: two on each of its 132 SMs."""


@dataclass(frozen=True)
class Tile:
    """How the kernel is cut: query rows and keys in a block, parts that the keys are split into; warps, pipeline stages."""

    rows: int
    keys: int
    splits: int = 1
    warps: int = 4
    stages: int = 3


@dataclass(frozen=True)
class Heads:
    """What is the same for all rows of a call: which keys are seen, the scale of scores, their soft cap (0: none), page size."""

    reach: Reach
    scale: float
    cap: float
    page: int


@dataclass(frozen=True)
class PagedCache:
    """Keys and values [slots, k, h] of a layer, by slots (page · page size + place). `key_scales` and `value_scales` [slots, k]
    belong to int8; `turned` [slots, k, r] are further channels of keys, and without `values` the keys are the values (latents)."""

    keys: jax.Array
    values: jax.Array | None
    key_scales: jax.Array | None = None
    value_scales: jax.Array | None = None
    turned: jax.Array | None = None


jax.tree_util.register_dataclass(
    PagedCache, ["keys", "values", "key_scales", "value_scales", "turned"], meta_fields=[]
)


def decode_rows(
    query: jax.Array, cache: PagedCache, tables: jax.Array, lengths: jax.Array, heads: Heads,
    turned: jax.Array | None = None, sinks: jax.Array | None = None, tile: Tile | None = None, interpret: bool = False,
) -> jax.Array:  # fmt: skip
    """Attention [D·Q, n, v] of D decoding rows with their newest Q tokens each: queries [D·Q, n, h] (and `turned` [D·Q, n, r]),
    page tables [D, W], lengths [D]."""
    count, (_, n, _), k = tables.shape[0], query.shape, cache.keys.shape[1]
    tile = tile or decode_tile(count, query.shape[0] // max(count, 1) * (n // k), k, cache)
    per = query.shape[0] // count
    made = _attend(query, turned, cache, tables, lengths, None, sinks, heads, per, tile, interpret)
    return made if tile.splits == 1 else _combined(*made, sinks, query.dtype, interpret)


def prompt_rows(
    query: jax.Array, cache: PagedCache, tables: jax.Array, lengths: jax.Array, starts: jax.Array, heads: Heads,
    turned: jax.Array | None = None, sinks: jax.Array | None = None, tile: Tile | None = None, interpret: bool = False,
) -> jax.Array:  # fmt: skip
    """Attention [N, n, v] of chunks of P prompts, packed one after the other in queries [N, n, h] from `starts` [P+1]; the keys of
    the chunks are in the cache already. What belongs to no chunk is not written."""
    tile = tile or prompt_tile(cache)
    group = query.shape[1] // cache.keys.shape[1]
    per = max(1, tile.rows // _heads_together(group, tile))
    blocks = pl.cdiv(query.shape[0], per) + tables.shape[0] - 1  # each row may end in a block of its own
    spans = _spans(starts, per, blocks)
    return _attend(query, turned, cache, tables, lengths, spans, sinks, heads, per, tile, interpret)


def decode_tile(rows: int, queries: int, k: int, cache: PagedCache) -> Tile:
    """A good cut for decoding: as many parts as make the GPU busy."""
    latent = cache.values is None
    block = min(64, max(16, pl.next_power_of_2(queries)))
    programs = rows * k * pl.cdiv(queries, block)
    splits = min(32, pl.next_power_of_2(max(1, PROGRAMS // programs)))
    return Tile(block, 32 if latent else 64, splits, 4, 2 if latent else 3)


def prompt_tile(cache: PagedCache) -> Tile:
    """A good cut for prompts; wide heads leave room for fewer keys."""
    wide = cache.keys.shape[-1] > 128
    return Tile(64, 32, 1, 4, 2) if wide else Tile(128, 64, 1, 4, 3)


def _heads_together(group: int, tile: Tile) -> int:
    """Query heads of a KV head that a program takes."""
    return min(group, tile.rows)


def _spans(starts: jax.Array, per: int, blocks: int) -> jax.Array:
    """[blocks, 3]: the row, first token and row's end of each block of queries; the longest (last of their rows) come first. Blocks
    that are not needed begin at the end."""
    counts = pl.cdiv(starts[1:] - starts[:-1], per)
    ends = jnp.cumsum(counts)
    block = jnp.arange(blocks)[::-1]
    row = jnp.minimum((block[:, None] >= ends[None]).sum(1), len(counts) - 1)
    first = starts[row] + (block - ends[row] + counts[row]) * per
    return jnp.stack([row, jnp.minimum(first, starts[row + 1]), starts[row + 1]], 1).astype(jnp.int32)


def _attend(
    query: jax.Array, turned: jax.Array | None, cache: PagedCache, tables: jax.Array, lengths: jax.Array,
    spans: jax.Array | None, sinks: jax.Array | None, heads: Heads, per: int, tile: Tile, interpret: bool,
) -> Any:  # fmt: skip
    tokens, n, _ = query.shape
    k = cache.keys.shape[1]
    together = _heads_together(n // k, tile)
    width = (cache.keys if cache.values is None else cache.values).shape[-1]
    blocks = tables.shape[0] if spans is None else spans.shape[0]
    parts, logs = ((tile.splits, tokens, n, width), jnp.float32), ((tile.splits, tokens, n), jnp.float32)
    shapes = [((tokens, n, width), query.dtype)] if tile.splits == 1 else [parts, logs]
    kernel = functools.partial(_kernel, heads=heads, per=per, together=together, tile=tile, group=n // k)
    made = pl.pallas_call(
        kernel,
        grid=(blocks, k * pl.cdiv(n // k, together), tile.splits),
        out_shape=[jax.ShapeDtypeStruct(*shape) for shape in shapes],
        compiler_params=gpu.CompilerParams(num_warps=tile.warps, num_stages=tile.stages),
        interpret=interpret,
        name="paged_decode" if spans is None else "paged_prompts",
    )(query, turned, cache, tables, lengths, spans, sinks)
    return made[0] if tile.splits == 1 else made


def _kernel(
    query: Any, turned: Any, cache: PagedCache, tables: Any, lengths: Any, spans: Any, sinks: Any, *out: Any,
    heads: Heads, per: int, together: int, tile: Tile, group: int,
) -> None:  # fmt: skip
    block, head, part = (pl.program_id(axis) for axis in range(3))
    row, first, end = (block, block * per, block * per + per) if spans is None else (spans[block, i] for i in range(3))
    length = lengths[row]
    kv, of_group = head // pl.cdiv(group, together), head % pl.cdiv(group, together)
    # Query rows: `per` tokens times `together` heads.
    each = jnp.arange(tile.rows)
    token, own = first + each // together, of_group * together + each % together
    real = (each < per * together) & (token < end) & (own < group)
    at = length - (end - token)  # positions
    own = kv * group + own

    def query_of(ref: Any) -> jax.Array:
        lanes, used = _lanes(ref.shape[-1])
        place = ref.at[token[:, None], own[:, None], lanes[None]]
        return gpu.load(place, mask=_both(real[:, None], used), other=0)

    q, q_turned = query_of(query), None if turned is None else query_of(turned)
    newest = jnp.minimum(length - (end - jnp.minimum(first + per, end)), length)  # keys that the last token sees
    oldest = length - (end - first)
    low = jnp.zeros_like(oldest)
    if heads.reach.window is not None:
        low = jnp.maximum(low, oldest - heads.reach.window + 1)
    if heads.reach.chunk is not None:
        low = jnp.maximum(low, oldest // heads.reach.chunk * heads.reach.chunk)
    begin, stop = low // tile.keys, jnp.where(first < end, pl.cdiv(newest, tile.keys), 0)
    if tile.splits > 1:
        share = pl.cdiv(stop - begin, tile.splits)
        begin, stop = begin + part * share, jnp.minimum(stop, begin + part * share + share)

    def step(masked: bool, index: Any, carry: Any) -> Any:
        most, total, made = carry
        keys = index * tile.keys + jnp.arange(tile.keys)
        there = keys < newest
        page = gpu.load(tables.at[row, keys // heads.page], mask=there, other=0)
        slot = page * heads.page + keys % heads.page
        load = functools.partial(_rows_of, slot=slot, kv=kv, there=there if masked else None)
        key = load(cache.keys)
        key = key.astype(q.dtype) if cache.key_scales is not None else key
        scores = gpu.dot(q, key, trans_b=True)
        if q_turned is not None:
            scores += gpu.dot(q_turned, load(cache.turned), trans_b=True)
        if cache.key_scales is not None:
            scores *= gpu.load(cache.key_scales.at[slot, kv], mask=there, other=0)[None].astype(jnp.float32)
        if heads.cap:  # tanh(x) = 1 - 2 / (1 + e^2x)
            scores = heads.cap - 2 * heads.cap / (1 + jnp.exp2(scores * (2 * LOG2E * heads.scale / heads.cap)))
            scores *= LOG2E
        else:
            scores *= heads.scale * LOG2E
        if masked:
            seen = _seen(heads.reach, at[:, None], keys[None])
            scores = jnp.where(seen, scores, UNSEEN)
        new = jnp.maximum(most, scores.max(1))
        weights = jnp.exp2(scores - new[:, None])
        if masked:
            weights = jnp.where(seen, weights, 0.0)
        old = jnp.exp2(most - new)
        total = total * old + weights.sum(1)
        value = key if cache.values is None else load(cache.values)
        if cache.value_scales is not None:
            weights *= gpu.load(cache.value_scales.at[slot, kv], mask=there, other=0)[None].astype(jnp.float32)
            value = value.astype(q.dtype)
        return new, total, made * old[:, None] + gpu.dot(weights.astype(value.dtype), value)

    lanes, used = _lanes(out[0].shape[-1])
    carry = (
        jnp.full((tile.rows,), UNSEEN, jnp.float32), jnp.zeros((tile.rows,), jnp.float32),
        jnp.zeros((tile.rows, lanes.size), jnp.float32),
    )  # fmt: skip
    if spans is not None and heads.reach == Reach():  # all keys of these blocks are seen by all
        whole = jnp.clip((oldest + 1) // tile.keys, begin, stop)
        carry = jax.lax.fori_loop(begin, whole, functools.partial(step, False), carry)
        begin = whole
    most, total, made = jax.lax.fori_loop(begin, stop, functools.partial(step, True), carry)
    if tile.splits == 1:
        if sinks is not None:
            total += jnp.exp2(gpu.load(sinks.at[own], mask=real, other=0).astype(jnp.float32) * LOG2E - most)
        made = made / jnp.where(total == 0, 1.0, total)[:, None]
        place = out[0].at[token[:, None], own[:, None], lanes[None]]
        gpu.store(place, made.astype(out[0].dtype), mask=_both(real[:, None], used))
        return
    logs = jnp.where(total == 0, UNSEEN, most + jnp.log2(jnp.where(total == 0, 1.0, total)))
    gpu.store(out[1].at[part, token, own], logs, mask=real)

    @pl.when(begin < stop)
    def _() -> None:
        whole = made / jnp.where(total == 0, 1.0, total)[:, None]
        gpu.store(out[0].at[part, token[:, None], own[:, None], lanes[None]], whole, mask=_both(real[:, None], used))


def _rows_of(ref: Any, slot: jax.Array, kv: Any, there: jax.Array | None) -> jax.Array:
    """[keys, h] of a cache; what is not there is zero (pages may hold anything beyond a sequence's end)."""
    lanes, used = _lanes(ref.shape[-1])
    mask = _both(None if there is None else there[:, None], used)
    return gpu.load(ref.at[slot[:, None], kv, lanes[None]], mask=mask, other=None if mask is None else 0)


def _lanes(size: int) -> tuple[jax.Array, jax.Array | None]:
    """Channels, up to a power of two as Triton wants, and which of them there are (None: all)."""
    lanes = jnp.arange(pl.next_power_of_2(size))
    return lanes, None if lanes.size == size else (lanes < size)[None]


def _both(one: jax.Array | None, other: jax.Array | None) -> jax.Array | None:
    return one & other if one is not None and other is not None else other if one is None else one


def _seen(reach: Reach, at: jax.Array, keys: jax.Array) -> jax.Array:
    seen = keys <= at
    if reach.window is not None:
        seen &= keys > at - reach.window
    if reach.chunk is not None:
        seen &= keys // reach.chunk == at // reach.chunk
    return seen


def _combined(parts: jax.Array, logs: jax.Array, sinks: jax.Array | None, dtype: Any, interpret: bool) -> jax.Array:
    """The sum of parts [S, N, n, v], weighted by the logarithms of their sums."""
    splits, tokens, n, width = parts.shape

    def kernel(parts: Any, logs: Any, sinks: Any, out: Any) -> None:
        token, head = pl.program_id(0), pl.program_id(1)
        lanes, used = _lanes(width)
        each = jnp.arange(splits)
        log = logs[:, token, head]
        most = log.max(0)
        mask = _both((log > UNSEEN / 2)[:, None], used)
        made = gpu.load(parts.at[each[:, None], token, head, lanes[None]], mask=mask, other=0)
        weights = jnp.exp2(log - most)
        total = weights.sum(0) if sinks is None else weights.sum(0) + jnp.exp2(sinks[head].astype(jnp.float32) * LOG2E - most)
        made = (made * weights[:, None]).sum(0) / total
        gpu.store(out.at[token, head, lanes], made.astype(dtype), mask=None if used is None else used[0])

    return pl.pallas_call(
        kernel,
        grid=(tokens, n),
        out_shape=jax.ShapeDtypeStruct((tokens, n, width), dtype),
        compiler_params=gpu.CompilerParams(num_warps=4, num_stages=1),
        interpret=interpret,
        name="paged_parts",
    )(parts, logs, sinks)
