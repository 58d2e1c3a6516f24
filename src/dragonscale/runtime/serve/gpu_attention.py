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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
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


@dataclass(frozen=True)
class PageReading:
    """How rows read pages of `page` tokens: how keys are scored, the channels of a value, and the cut (None: a good
    one)."""

    page: int
    how: Scoring
    size: int
    tile: Tile | None = None
    interpret: bool = False


def attend_rows(
    query: Array, key: Array, value: Array, cache: PagedKeys, rows: StepRows, how: Scoring, interpret: bool = False
) -> Array:
    """What `attend_paged` computes, on a GPU; of a fresh prompt cuDNN's flash attention where it can. Decoding rows and
    prompts write their own tokens of one array."""
    shape, count = rows.shape, rows.shape.decodes
    if shape.fresh and not count and flash_possible(query, value, how):
        at = jnp.arange(shape.tokens)[None]
        return attend_causally(query[None], key[None], value[None], at, at, how)[0]
    tables, lengths, made = rows.tables, rows.lengths, None
    reading = PageReading(rows.page, how, value.shape[-1], interpret=interpret)
    if count:
        made = decode_rows(query, cache, tables[:count], lengths[:count], reading, shape.queries)
    if shape.tokens:
        made = prompt_rows(query, cache, tables[count:], lengths[count:], rows.starts, reading, made)
    assert made is not None
    return made


def decode_rows(
    query: Array, cache: PagedKeys, tables: Array, lengths: Array, reading: PageReading, queries: int = 1
) -> Array:
    """[N, n, g] of queries [N, n, h], of which the first are those of D decoding rows, their newest `queries` tokens
    each; nothing is written of the others. Page tables are [D, W], lengths [D]."""
    tile = reading.tile or decode_tile(tables.shape[0], queries, query.shape[1] // cache.keys.shape[1], cache)
    made = _attend(query, cache, tables, lengths, None, queries, replace(reading, tile=tile))
    return made[0] if tile.splits == 1 else _combined(made[0], made[1], reading.how.sinks, query, reading.interpret)


def prompt_rows(
    query: Array,
    cache: PagedKeys,
    tables: Array,
    lengths: Array,
    starts: Array,
    reading: PageReading,
    into: Array | None = None,
) -> Array:
    """[N, n, g] of chunks of P prompts, packed one after the other in queries [N, n, h] from `starts` [P+1]; the keys
    of the chunks are in the cache already. What is behind them is zero, what is before them is that of `into`."""
    tile = reading.tile or prompt_tile(cache)
    per = max(1, tile.rows * cache.keys.shape[1] // query.shape[1])
    # What is left over is a row of no length behind the others. Each row may end in a block of its own.
    ends = jnp.append(starts, query.shape[0])
    spans = _spans(ends, per, pl.cdiv(query.shape[0], per) + tables.shape[0])
    return _attend(query, cache, tables, jnp.append(lengths, 0), spans, per, replace(reading, tile=tile), into)[0]


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


def _spans(starts: Array, per: int, blocks: int) -> Array:
    """[blocks, 3]: the row, first token and row's end of each block of queries; the longest (last of their rows) come
    first. Blocks that are not needed begin at the end."""
    counts = pl.cdiv(starts[1:] - starts[:-1], per)
    ends = jnp.cumsum(counts)
    block = jnp.arange(blocks)[::-1]
    row = jnp.minimum((block[:, None] >= ends[None]).sum(1), len(counts) - 1)
    first = starts[row] + (block - ends[row] + counts[row]) * per
    return jnp.stack([row, jnp.minimum(first, starts[row + 1]), starts[row + 1]], 1).astype(jnp.int32)


@dataclass(frozen=True)
class KernelCut:
    """What a program of the kernel has: `per` tokens of a row times `together` of the `group` query heads that share a
    KV head; `four` channels of the cache in a word."""

    reading: PageReading
    tile: Tile
    per: int
    together: int
    group: int
    four: int


def _attend(
    query: Array,
    cache: PagedKeys,
    tables: Array,
    lengths: Array,
    spans: Array | None,
    per: int,
    reading: PageReading,
    into: Array | None = None,
) -> Any:
    """The whole result; or the parts [S, N, n, g] of split keys, and the logarithms [S, N, n] of their sums."""
    (tokens, n, _), k, size, tile = query.shape, cache.keys.shape[1], reading.size, reading.tile
    assert tile is not None
    together = min(n // k, tile.rows // per)
    assert together, f"{per} queries of a row do not fit a block of {tile.rows}"
    shapes = [((tokens, n, size), query.dtype)]
    if tile.splits > 1:
        tokens = len(tables) * per
        shapes = [((tile.splits, tokens, n, size), jnp.float32), ((tile.splits, tokens, n), jnp.float32)]
    # Small blocks of queries read int8 as words of four channels (`bytes_of`); large ones have products that want their
    # operands in shared memory anyway.
    narrow = cache.keys.dtype == jnp.int8 and tile.rows < 64
    four = 4 if narrow and size % 64 == query.shape[2] % 64 == 0 else 1
    plain = replace(reading, how=replace(reading.how, sinks=None))
    if four > 1:
        cache = replace(cache, keys=words(cache.keys), values=None if cache.values is None else words(cache.values))
    return pl.pallas_call(
        functools.partial(_kernel, cut=KernelCut(plain, tile, per, together, n // k, four)),
        grid=(len(tables) if spans is None else len(spans), k * pl.cdiv(n // k, together), tile.splits),
        out_shape=[jax.ShapeDtypeStruct(*shape) for shape in shapes],
        compiler_params=gpu.CompilerParams(num_warps=tile.warps, num_stages=tile.stages),
        input_output_aliases={} if into is None else {0: 0},
        interpret=reading.interpret,
        name="paged_decode" if spans is None else "paged_prompts",
    )(into, query, cache, tables, lengths, spans, reading.how.sinks)


class QueryRows(NamedTuple):
    """The query rows of a program: the row of the step, its first token and its end among all, its length; the KV head,
    and of each query row the token, the head and whether it is real."""

    row: Any
    first: Any
    end: Any
    length: Any
    kv: Any
    token: Array
    own: Array
    real: Array


def _query_rows(lengths: Any, spans: Any, cut: KernelCut) -> QueryRows:
    block, head, per = pl.program_id(0), pl.program_id(1), cut.per
    row, first, end = (block, block * per, block * per + per) if spans is None else (spans[block, i] for i in range(3))
    heads = pl.cdiv(cut.group, cut.together)
    kv, of_group = head // heads, head % heads
    each = jnp.arange(cut.tile.rows)
    token, own = first + each // cut.together, of_group * cut.together + each % cut.together
    real = (each < per * cut.together) & (token < end) & (own < cut.group)
    return QueryRows(row, first, end, lengths[row], kv, token, kv * cut.group + own, real)


def _key_blocks(rows: QueryRows, cut: KernelCut) -> tuple[Any, Any, Any]:
    """Which blocks of keys a program visits, and the number of keys that its last token sees."""
    tile, reach = cut.tile, cut.reading.how.reach
    last = rows.end - jnp.minimum(rows.first + cut.per, rows.end)
    newest, oldest = jnp.minimum(rows.length - last, rows.length), rows.length - (rows.end - rows.first)
    low = jnp.zeros_like(oldest)
    if reach.window is not None:
        low = jnp.maximum(low, oldest - reach.window + 1)
    if reach.chunk is not None:
        low = jnp.maximum(low, oldest // reach.chunk * reach.chunk)
    begin, stop = low // tile.keys, jnp.where(rows.first < rows.end, pl.cdiv(newest, tile.keys), 0)
    if tile.splits > 1:
        share, part = pl.cdiv(stop - begin, tile.splits), pl.program_id(2)
        begin, stop = begin + part * share, jnp.minimum(stop, begin + part * share + share)
    return begin, stop, newest


def _kernel(
    _: Any, query: Any, cache: Any, tables: Any, lengths: Any, spans: Any, sinks: Any, *out: Any, cut: KernelCut
) -> None:
    tile, four, size = cut.tile, cut.four, out[0].shape[-1]
    rows = _query_rows(lengths, spans, cut)
    begin, stop, newest = _key_blocks(rows, cut)
    step = _walk(query, cache, tables, rows, newest, size, cut)
    lanes, used = _lanes(0, size // four)
    carry = (
        jnp.full((tile.rows,), UNSEEN, jnp.float32),
        jnp.zeros((tile.rows,), jnp.float32),
        [jnp.zeros((tile.rows, lanes.size), jnp.float32)] * four,
    )
    most, total, made = jax.lax.fori_loop(begin, stop, step, carry)
    most *= _unit(cut.reading.how)

    def put(*places: Any) -> None:
        for at, one in enumerate(made):
            place = out[0].at[*places, rows.token[:, None], rows.own[:, None], lanes[None] * four + at]
            whole = one / jnp.where(total == 0, 1.0, total)[:, None]
            gpu.store(place, whole.astype(out[0].dtype), mask=_both(rows.real[:, None], used))

    if tile.splits == 1:
        if sinks is not None:
            sink = gpu.load(sinks.at[rows.own], mask=rows.real, other=0).astype(jnp.float32)
            total += jnp.exp2(sink * LOG2E - most)
        put()
        return
    part = pl.program_id(2)
    logs = jnp.where(total == 0, UNSEEN, most + jnp.log2(jnp.where(total == 0, 1.0, total)))
    gpu.store(out[1].at[part, rows.token, rows.own], logs, mask=rows.real)
    pl.when(begin < stop)(lambda: put(part))


def _unit(how: Scoring) -> float:
    """Of scores, in powers of two."""
    return LOG2E if how.cap else how.scale * LOG2E


def _walk(query: Any, cache: Any, tables: Any, rows: QueryRows, newest: Any, size: int, cut: KernelCut) -> Any:
    """The step of a running softmax over a block of keys: of (its number, (the largest scores, sums, results))."""
    how, tile, four, channels = cut.reading.how, cut.tile, cut.four, query.shape[-1]
    page, interpret, unit = cut.reading.page, cut.reading.interpret, _unit(cut.reading.how)
    # Latents: the leading channels of a key are the value too, those behind are only scored.
    spans = [(0, channels)] if cache.values is not None else [(0, size), (size, channels)]
    spans = [(begin // four, end // four) for begin, end in spans]

    def query_lanes(begin: int, end: int, at: int) -> Array:
        lanes, used = _lanes(begin, end)
        place = query.at[rows.token[:, None], rows.own[:, None], lanes[None] * four + at]
        return gpu.load(place, mask=_both(rows.real[:, None], used), other=0)

    queries = [query_lanes(*span, at) for span in spans for at in range(four)]
    positions = rows.length - (rows.end - rows.token)

    def step(index: Any, carry: Any) -> Any:
        most, total, made = carry
        keys = index * tile.keys + jnp.arange(tile.keys)
        there = keys < newest
        slot = gpu.load(tables.at[rows.row, keys // page], mask=there, other=0) * page + keys % page
        load = functools.partial(_rows_of, slot=slot, kv=rows.kv, there=there)

        def scaled(values: Array, scale: Any) -> Array:
            if scale is None:
                return values
            return values * gpu.load(scale.at[slot, rows.kv], mask=there, other=0)[None].astype(jnp.float32)

        blocks = [bytes_of(load(cache.keys, *span), query.dtype, interpret) for span in spans]
        pairs = zip(queries, itertools.chain(*blocks), strict=True)
        scores = scaled(functools.reduce(operator.add, (dot(*pair, turned=True) for pair in pairs)), cache.key_scale)
        if how.cap:  # tanh(x) = 1 - 2 / (1 + e^2x)
            scores = how.cap - 2 * how.cap / (1 + jnp.exp2(scores * (2 * LOG2E * how.scale / how.cap)))
        scores = jnp.where(how.reach.sees(positions[:, None], keys[None]), scores, UNSEEN)
        new = jnp.maximum(most, scores.max(1))
        # Where nothing was seen yet all weights are one; the first key that is seen makes nothing of them, as does
        # `_combined`.
        weights = jnp.exp2(scores * unit - (new * unit)[:, None])
        old = jnp.exp2((most - new) * unit)
        total = total * old + weights.sum(1)
        values = blocks[0]
        if cache.values is not None:
            values = bytes_of(load(cache.values, 0, size // four), query.dtype, interpret)
        scale = cache.key_scale if cache.values is None else cache.value_scale
        weights = scaled(weights, scale).astype(query.dtype)
        return new, total, [one * old[:, None] + dot(weights, value) for one, value in zip(made, values, strict=True)]

    return step


def _rows_of(ref: Any, begin: int, end: int, slot: Any, kv: Any, there: Any) -> Array:
    """[keys, end - begin] of a cache; what is not there is zero (pages may hold anything beyond a sequence's end)."""
    lanes, used = _lanes(begin, end)
    return gpu.load(ref.at[slot[:, None], kv, lanes[None]], mask=_both(there[:, None], used), other=0)


def _lanes(begin: int, end: int) -> tuple[Array, Array | None]:
    """Channels, as many as a power of two, which Triton wants, and which of them there are (None: all)."""
    lanes = begin + jnp.arange(pl.next_power_of_2(end - begin))
    return lanes, None if lanes.size == end - begin else (lanes < end)[None]


def _both(one: Array, other: Array | None) -> Array:
    return one if other is None else one & other


def _combined(parts: Array, logs: Array, sinks: Array | None, query: Array, interpret: bool) -> Array:
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
        total = weights.sum(0)
        if sinks is not None:
            total += jnp.exp2(sinks[head].astype(jnp.float32) * LOG2E - most)
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
