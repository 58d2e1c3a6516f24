"""Attention over paged caches on NVIDIA GPUs: one kernel, in Pallas, for decoding rows and for chunks of prompts.

A program of the kernel has a block of query rows (some tokens of one sequence, times the query heads that share a KV
head) and walks over the keys of that sequence, a block at a time, with a running softmax; scores never leave the chip.
Where a key lies is read from the page table inside the loop, so a block of keys may be spread over any pages. Blocks
outside the window (or chunk) are not visited. Rows of no tokens end at once.

Decoding has few query rows and would leave most of the GPU idle: its keys are split over programs (flash-decoding),
each leaves its part and the logarithm of its sum, and a second small kernel adds the parts up. Caches are bf16, or int8
with a scale for each token and head: scores are multiplied by the keys' scales and weights by the values', so nothing
is unpacked to memory. Latent attention has keys whose leading channels are the values too: they are loaded once.
"""

import functools
import itertools
import math
import operator
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as gpu

from dragonscale.runtime.attention import UNSEEN, Scoring, attend_causally, flash_possible
from dragonscale.runtime.serve.gpu_matmul import bytes_of, dot, words
from dragonscale.runtime.serve.paged_attention import PagedKeys, StepRows

LOG2E = math.log2(math.e)
PROGRAMS, PARTS = 512, 16
"""Programs that keep an H100 or H200 busy, four on each of its SMs; and parts that are worth adding up."""


@dataclass(frozen=True)
class Tile:
    """How the kernel is cut: query rows and keys in a block, parts that the keys are split into; warps, pipeline
    stages."""

    rows: int
    keys: int
    splits: int = 1
    warps: int = 4
    stages: int = 3


def attend_rows(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    cache: PagedKeys,
    rows: StepRows,
    how: Scoring,
    interpret: bool = False,
) -> jax.Array:
    """What `attend_paged` computes, on a GPU; of a fresh prompt cuDNN's flash attention where it can. Decoding rows and
    prompts write their own tokens of one array."""
    shape, size, count = rows.shape, value.shape[-1], rows.shape.decodes
    if shape.fresh and not count and flash_possible(query, value, how):
        at = jnp.arange(shape.tokens)[None]
        return attend_causally(query[None], key[None], value[None], at, at, how)[0]
    tables, lengths, page, made = rows.tables, rows.lengths, rows.page, None
    if count:
        made = decode_rows(
            query, cache, tables[:count], lengths[:count], page, how, size, shape.queries, None, interpret
        )
    if shape.tokens:
        there = (tables[count:], lengths[count:], rows.starts)
        made = prompt_rows(query, cache, *there, page=page, how=how, size=size, into=made, interpret=interpret)
    assert made is not None
    return made


def decode_rows(
    query: jax.Array,
    cache: PagedKeys,
    tables: jax.Array,
    lengths: jax.Array,
    page: int,
    how: Scoring,
    size: int,
    queries: int = 1,
    tile: Tile | None = None,
    interpret: bool = False,
) -> jax.Array:
    """[N, n, g] of queries [N, n, h], of which the first are those of D decoding rows, their newest `queries` tokens
    each; nothing is written of the others. Page tables are [D, W], lengths [D]; `size` is g."""
    tile = tile or decode_tile(tables.shape[0], queries, query.shape[1] // cache.keys.shape[1], cache)
    made = _attend(query, cache, tables, lengths, None, how, queries, page, size, tile, None, interpret)
    return made[0] if tile.splits == 1 else _combined(made[0], made[1], how.sinks, query, interpret)


def prompt_rows(
    query: jax.Array,
    cache: PagedKeys,
    tables: jax.Array,
    lengths: jax.Array,
    starts: jax.Array,
    page: int,
    how: Scoring,
    size: int,
    tile: Tile | None = None,
    into: jax.Array | None = None,
    interpret: bool = False,
) -> jax.Array:
    """[N, n, g] of chunks of P prompts, packed one after the other in queries [N, n, h] from `starts` [P+1]; the keys
    of the chunks are in the cache already. What is behind them is zero, what is before them is that of `into`."""
    tile = tile or prompt_tile(cache)
    per = max(1, tile.rows * cache.keys.shape[1] // query.shape[1])
    # What is left over is a row of no length behind the others. Each row may end in a block of its own.
    ends = jnp.append(starts, query.shape[0])
    spans = _spans(ends, per, pl.cdiv(query.shape[0], per) + tables.shape[0])
    return _attend(query, cache, tables, jnp.append(lengths, 0), spans, how, per, page, size, tile, into, interpret)[0]


def decode_tile(rows: int, queries: int, group: int, cache: PagedKeys) -> Tile:
    """A good cut for decoding so many tokens of `rows` sequences, with a group of query heads for each KV head: as many
    parts as make the GPU busy. A block has all tokens of a row, with as many of the heads as fit."""
    channels = cache.keys.shape[-1]
    block = min(max(64, pl.next_power_of_2(queries)), max(16, pl.next_power_of_2(queries * group)))
    programs = rows * cache.keys.shape[1] * pl.cdiv(group, block // queries)
    splits = min(PARTS, pl.next_power_of_2(max(1, PROGRAMS // programs)))
    if channels > 256:
        return Tile(block, 32, splits, 8, 2)
    if cache.key_scale is not None:
        return Tile(block, 128, splits, 4, 2)
    return Tile(block, 64, splits, 2 if splits == 1 and block == 16 and channels <= 128 else 4, 2)


def prompt_tile(cache: PagedKeys) -> Tile:
    """A good cut for prompts; wide heads leave room for fewer keys."""
    channels = cache.keys.shape[-1]
    return Tile(128, 64, 1, 4, 2) if channels <= 128 else Tile(64, 32, 1, 4 if channels <= 256 else 8, 2)


def _spans(starts: jax.Array, per: int, blocks: int) -> jax.Array:
    """[blocks, 3]: the row, first token and row's end of each block of queries; the longest (last of their rows) come
    first. Blocks that are not needed begin at the end."""
    counts = pl.cdiv(starts[1:] - starts[:-1], per)
    ends = jnp.cumsum(counts)
    block = jnp.arange(blocks)[::-1]
    row = jnp.minimum((block[:, None] >= ends[None]).sum(1), len(counts) - 1)
    first = starts[row] + (block - ends[row] + counts[row]) * per
    return jnp.stack([row, jnp.minimum(first, starts[row + 1]), starts[row + 1]], 1).astype(jnp.int32)


def _attend(
    query: jax.Array,
    cache: PagedKeys,
    tables: jax.Array,
    lengths: jax.Array,
    spans: jax.Array | None,
    how: Scoring,
    per: int,
    page: int,
    size: int,
    tile: Tile,
    into: jax.Array | None,
    interpret: bool,
) -> Any:
    """The whole result; or the parts [S, N, n, g] of split keys, and the logarithms [S, N, n] of their sums."""
    (tokens, n, _), k = query.shape, cache.keys.shape[1]
    together = min(
        n // k, tile.rows // per
    )  # query heads of a KV head that a program takes, with all tokens of its block
    assert together, f"{per} queries of a row do not fit a block of {tile.rows}"
    shapes = [((tokens, n, size), query.dtype)]
    if tile.splits > 1:
        tokens = len(tables) * per
        shapes = [((tile.splits, tokens, n, size), jnp.float32), ((tile.splits, tokens, n), jnp.float32)]
    plain = replace(how, sinks=None)
    # Small blocks of queries read int8 as words of four channels (`bytes_of`); large ones have products that want their
    # operands in
    # shared memory anyway.
    narrow = cache.keys.dtype == jnp.int8 and tile.rows < 64
    four = 4 if narrow and size % 64 == query.shape[2] % 64 == 0 else 1
    cut = {
        "page": page,
        "per": per,
        "together": together,
        "tile": tile,
        "group": n // k,
        "four": four,
        "interpret": interpret,
    }
    kernel = functools.partial(_kernel, how=plain, **cut)
    if four > 1:
        cache = replace(cache, keys=words(cache.keys), values=None if cache.values is None else words(cache.values))
    return pl.pallas_call(
        kernel,
        grid=(len(tables) if spans is None else len(spans), k * pl.cdiv(n // k, together), tile.splits),
        out_shape=[jax.ShapeDtypeStruct(*shape) for shape in shapes],
        compiler_params=gpu.CompilerParams(num_warps=tile.warps, num_stages=tile.stages),
        input_output_aliases={} if into is None else {0: 0},
        interpret=interpret,
        name="paged_decode" if spans is None else "paged_prompts",
    )(into, query, cache, tables, lengths, spans, how.sinks)


def _kernel(
    _: Any,
    query: Any,
    cache: Any,
    tables: Any,
    lengths: Any,
    spans: Any,
    sinks: Any,
    *out: Any,
    how: Scoring,
    page: int,
    per: int,
    together: int,
    tile: Tile,
    group: int,
    four: int,
    interpret: bool,
) -> None:
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

    # Latents: the leading channels of a key are the value too, those behind are only scored.
    channels, size = query.shape[-1], out[0].shape[-1]
    pieces = [(0, channels)] if cache.values is not None else [(0, size), (size, channels)]

    pieces = [(begin // four, end // four) for begin, end in pieces]

    def query_piece(begin: int, end: int, at: int) -> jax.Array:
        lanes, used = _lanes(begin, end)
        place = query.at[token[:, None], own[:, None], lanes[None] * four + at]
        return gpu.load(place, mask=_both(real[:, None], used), other=0)

    queries = [[query_piece(*piece, at) for at in range(four)] for piece in pieces]
    newest = jnp.minimum(length - (end - jnp.minimum(first + per, end)), length)  # keys that the last token sees
    oldest = length - (end - first)
    low = jnp.zeros_like(oldest)
    if how.reach.window is not None:
        low = jnp.maximum(low, oldest - how.reach.window + 1)
    if how.reach.chunk is not None:
        low = jnp.maximum(low, oldest // how.reach.chunk * how.reach.chunk)
    begin, stop = low // tile.keys, jnp.where(first < end, pl.cdiv(newest, tile.keys), 0)
    if tile.splits > 1:
        share = pl.cdiv(stop - begin, tile.splits)
        begin, stop = begin + part * share, jnp.minimum(stop, begin + part * share + share)

    unit = LOG2E if how.cap else how.scale * LOG2E  # of scores, in powers of two

    def step(index: Any, carry: Any) -> Any:
        most, total, made = carry
        keys = index * tile.keys + jnp.arange(tile.keys)
        there = keys < newest
        slot = gpu.load(tables.at[row, keys // page], mask=there, other=0) * page + keys % page
        load = functools.partial(_rows_of, slot=slot, kv=kv, there=there)
        blocks = [bytes_of(load(cache.keys, *piece), query.dtype, interpret) for piece in pieces]
        pairs = zip(itertools.chain(*queries), itertools.chain(*blocks), strict=True)
        scores = functools.reduce(operator.add, (dot(*pair, turned=True) for pair in pairs))
        if cache.key_scale is not None:
            scores *= gpu.load(cache.key_scale.at[slot, kv], mask=there, other=0)[None].astype(jnp.float32)
        if how.cap:  # tanh(x) = 1 - 2 / (1 + e^2x)
            scores = how.cap - 2 * how.cap / (1 + jnp.exp2(scores * (2 * LOG2E * how.scale / how.cap)))
        scores = jnp.where(how.reach.sees(at[:, None], keys[None]), scores, UNSEEN)
        new = jnp.maximum(most, scores.max(1))
        # Where nothing was seen yet all weights are one; the first key that is seen makes nothing of them, as does
        # `_combined`.
        weights = jnp.exp2(scores * unit - (new * unit)[:, None])
        old = jnp.exp2((most - new) * unit)
        total = total * old + weights.sum(1)
        values = blocks[0]
        if cache.values is not None:
            values = bytes_of(load(cache.values, 0, size // four), query.dtype, interpret)
        if (scale := cache.key_scale if cache.values is None else cache.value_scale) is not None:
            weights *= gpu.load(scale.at[slot, kv], mask=there, other=0)[None].astype(jnp.float32)
        weights = weights.astype(query.dtype)
        return new, total, [one * old[:, None] + dot(weights, value) for one, value in zip(made, values, strict=True)]

    lanes, used = _lanes(0, size // four)
    carry = (
        jnp.full((tile.rows,), UNSEEN, jnp.float32),
        jnp.zeros((tile.rows,), jnp.float32),
        [jnp.zeros((tile.rows, lanes.size), jnp.float32)] * four,
    )
    most, total, made = jax.lax.fori_loop(begin, stop, step, carry)
    most *= unit

    def put(*places: Any) -> None:
        for at, one in enumerate(made):
            place = out[0].at[*places, token[:, None], own[:, None], lanes[None] * four + at]
            whole = one / jnp.where(total == 0, 1.0, total)[:, None]
            gpu.store(place, whole.astype(out[0].dtype), mask=_both(real[:, None], used))

    if tile.splits == 1:
        if sinks is not None:
            total += jnp.exp2(gpu.load(sinks.at[own], mask=real, other=0).astype(jnp.float32) * LOG2E - most)
        put()
        return
    logs = jnp.where(total == 0, UNSEEN, most + jnp.log2(jnp.where(total == 0, 1.0, total)))
    gpu.store(out[1].at[part, token, own], logs, mask=real)

    @pl.when(begin < stop)
    def _() -> None:
        put(part)


def _rows_of(ref: Any, begin: int, end: int, slot: Any, kv: Any, there: Any) -> jax.Array:
    """[keys, end - begin] of a cache; what is not there is zero (pages may hold anything beyond a sequence's end)."""
    lanes, used = _lanes(begin, end)
    return gpu.load(ref.at[slot[:, None], kv, lanes[None]], mask=_both(there[:, None], used), other=0)


def _lanes(begin: int, end: int) -> tuple[jax.Array, jax.Array | None]:
    """Channels, as many as a power of two, which Triton wants, and which of them there are (None: all)."""
    lanes = begin + jnp.arange(pl.next_power_of_2(end - begin))
    return lanes, None if lanes.size == end - begin else (lanes < end)[None]


def _both(one: jax.Array, other: jax.Array | None) -> jax.Array:
    return one if other is None else one & other


def _combined(
    parts: jax.Array, logs: jax.Array, sinks: jax.Array | None, query: jax.Array, interpret: bool
) -> jax.Array:
    """The sum of parts [S, N, n, v], weighted by the logarithms of their sums."""
    splits, tokens, n, width = parts.shape

    def kernel(parts: Any, logs: Any, sinks: Any, out: Any) -> None:
        token, head = pl.program_id(0), pl.program_id(1)
        lanes, used = _lanes(0, width)
        each = jnp.arange(splits)
        log = logs[:, token, head]
        most = log.max(0)
        mask = _both((log > UNSEEN / 2)[:, None], used)
        made = gpu.load(parts.at[each[:, None], token, head, lanes[None]], mask=mask, other=0)
        weights = jnp.exp2(log - most)
        total = (
            weights.sum(0)
            if sinks is None
            else weights.sum(0) + jnp.exp2(sinks[head].astype(jnp.float32) * LOG2E - most)
        )
        made = (made * weights[:, None]).sum(0) / total
        gpu.store(out.at[token, head, lanes], made.astype(query.dtype), mask=None if used is None else used[0])

    return pl.pallas_call(
        kernel,
        grid=(tokens, n),
        out_shape=jax.ShapeDtypeStruct((len(query), n, width), query.dtype),
        compiler_params=gpu.CompilerParams(num_warps=4, num_stages=1),
        interpret=interpret,
        name="paged_parts",
    )(parts, logs, sinks)
