"""Expected seconds of flash attention: many queries against their keys, as in training and prefill.

Queries are cut into tiles of rows, each of which walks over its keys: 4·head_dim FLOPs for every (row, key) at `rate`
of the peak, plus `edge` and `fill` seconds that a tile takes however few its keys. Tiles are handed out to the cores in
waves; no attention is shorter than (a fraction of) its longest tile. Queries, keys, values and results cross the
memory. With a causal mask a row sees half of the keys on average, and half a tile more than it needs; a window caps the
keys that it sees.
"""

from functools import partial

from dragonscale.physics.kernels.blockwise import evaluate
from dragonscale.physics.kernels.dtypes import FORMATS, format_name
from dragonscale.physics.kernels.profile import FlashAttention, KernelProfile
from dragonscale.physics.kernels.waves import overlapped, waves
from dragonscale.physics.numbers import Number, ceil, maximum, minimum

MEASURED_HEAD = 128
"""The size of the heads that were measured; other sizes follow from `softmax`."""


def attention_seconds(
    batch: Number,
    queries: Number,
    keys: Number,
    q_heads: Number,
    kv_heads: Number,
    head_dim: Number,
    dtype: str,
    profile: KernelProfile,
    *,
    causal: bool = True,
    window: Number = None,
    write_cache: bool = False,
    backward: bool = False,
) -> Number:
    """Seconds of the forward pass, or the `backward` one, on one chip; heads are those of this chip, `dtype` is that of
    the keys and values.

    The queries are the last of the keys, so `keys - queries` are cached. `window` is the number of keys that a query
    may see. `write_cache` adds writing this chip's new keys and values into a paged cache, as serving does.

    >>> from dragonscale.physics.kernels.profile_file import kernel_profile_for
    >>> from dragonscale.physics.hardware import load_chip
    >>> h100 = kernel_profile_for(load_chip("h100"))
    >>> 0.8e-3 < attention_seconds(1, 8192, 8192, 32, 8, 128, "bf16", h100) < 1.0e-3
    True
    """
    name = format_name(dtype)
    table = profile.attention.of(name)
    window = keys if window is None else window
    slowdown = table.backward if backward else 1.0
    # a score is exponentiated once in either pass, so quicker exponentials save as many seconds of the longer one
    spared = (1 - 1 / profile.exponentials) / slowdown
    formula = partial(
        _seconds, name=name, table=table, profile=profile, causal=causal, write=write_cache, spared=spared
    )
    forward = evaluate(formula, batch, queries, keys, q_heads, kv_heads, head_dim, window)
    return forward * slowdown


attention_backward_seconds = partial(attention_seconds, backward=True)
"""Seconds of the backward pass: five matmuls where the forward pass has two, at a lower rate."""


def keys_seen(queries: Number, keys: Number, window: Number, causal: bool) -> Number:
    """Keys that a query attends to on average, without the part of a tile that the mask wastes.

    >>> keys_seen(1000, 1000, 1000, True), keys_seen(1000, 5000, 5000, True), keys_seen(1000, 1000, 100, True)
    (500.0, 4500.0, 95.0)
    """
    if not causal:
        return minimum(keys, window)
    cached = keys - queries
    # A query at position p sees min(p, window) keys: the sum over p from `cached` to `keys`, divided by the queries.
    saturated = maximum(minimum(window, keys), cached)  # the position from which the window binds
    return ((saturated * saturated - cached * cached) / 2 + window * (keys - saturated)) / queries


def _seconds(
    *sizes: Number, name: str, table: FlashAttention, profile: KernelProfile, causal: bool, write: bool, spared: float
) -> Number:
    batch, queries, keys, q_heads, kv_heads, head_dim, window = sizes
    peak, cores = profile.peak(name), profile.cores
    # query heads that share a KV head may share tiles: then a tile has fewer queries, and there are fewer heads of
    # tiles
    group = q_heads / kv_heads if table.packed else 1
    heads = kv_heads if table.packed else q_heads
    rows = queries * group
    tiles = ceil(rows / table.tile)
    edge = table.edge + table.fill * rows / (tiles * table.tile)
    attended = keys_seen(queries, keys, window, causal)
    most_keys = minimum(keys, window)
    # a tile on the diagonal of a causal mask is multiplied whole
    wasted = minimum(queries, table.tile / group) / 2 if causal else 0
    # seconds for one key of a tile: two matmuls of 2·head_dim FLOPs, and the softmax as so many more elements of head
    score = 4 * table.tile * cores / (peak * table.rate)
    score = score * (head_dim + table.softmax * (1 - spared)) * (MEASURED_HEAD / (MEASURED_HEAD + table.softmax))
    rounds = waves(tiles * (batch * heads / cores), table.quantum)
    walked = minimum(attended + wasted, most_keys)
    compute = maximum(rounds * (edge + score * walked), table.longest * (edge + score * most_keys))
    query_size, key_size = batch * queries * head_dim * q_heads, batch * keys * head_dim * kv_heads
    memory = (query_size * table.query_bytes + key_size * table.kv_bytes) / profile.bandwidth
    expected = table.launch + overlapped(compute, memory, table.unhidden)
    if write:
        moved = batch * queries * head_dim * kv_heads * table.write_bytes
        expected = expected + batch * queries * table.write_row + moved / profile.bandwidth
    # the datasheet's roofline: bf16 queries in and results out, keys and values in their format
    element = FORMATS[name].weight
    cache = 2 * element * batch * minimum(keys, queries + window) * head_dim * kv_heads
    return maximum(expected, 4 * query_size * attended / peak, (4 * query_size + cache) / profile.bandwidth)
