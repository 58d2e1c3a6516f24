"""Expected seconds of flash attention: many queries against their keys, as in training and prefill.

Queries are cut into tiles of rows, each of which walks over its keys: 4·head_dim FLOPs for every (row, key) at `rate`
of the peak, plus `edge` and `fill` seconds that a tile takes however few its keys. Tiles are handed out to the cores in
waves; no attention is shorter than (a part of) its longest tile. Queries, keys, values and results cross the memory.
With a causal mask a row sees half of the keys on average, and half a tile more than it needs; a window caps what it
sees.

Expected seconds of attention without a flash kernel: scores in blocks of queries, in fp32, as a compiler makes them.

Each block is multiplied out whole, masked or not: two batched matmuls forward, in which the query heads that share a KV
head are rows of one, and passes over the scores between them (scale, cap, mask, softmax, cast). Backward finds the
scores again and has five matmuls.
"""

from functools import partial

from dragonscale.physics.kernels.dtypes import FORMATS, format_name
from dragonscale.physics.kernels.matmul import evaluate, matmul_seconds
from dragonscale.physics.kernels.profile import FlashAttention, KernelProfile
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

    The queries are the last of the keys, so `keys - queries` were there before. `window` is how many keys a query may
    see. `write_cache` adds writing this chip's new keys and values into a paged cache, as serving does.

    >>> from dragonscale.physics.kernels.profile_file import kernel_profile_for
    >>> from dragonscale.physics.hardware import load_chip
    >>> h100 = kernel_profile_for(load_chip("h100"))
    >>> 0.8e-3 < attention_seconds(1, 8192, 8192, 32, 8, 128, "bf16", h100) < 1.0e-3
    True
    """
    name = format_name(dtype)
    table = profile.attention.of(name)
    seen = keys if window is None else window
    longer = table.backward if backward else 1.0
    # A score is exponentiated once in either pass, so quicker exponentials save as many seconds of the longer one.
    spared = (1 - 1 / profile.exponentials) / longer
    formula = partial(
        _seconds, name=name, table=table, profile=profile, causal=causal, write=write_cache, spared=spared
    )
    forward = evaluate(formula, batch, queries, keys, q_heads, kv_heads, head_dim, seen)
    return forward * longer


attention_backward_seconds = partial(attention_seconds, backward=True)
"""Seconds of the backward pass: five matmuls where the forward pass has two, at a lower rate."""


def keys_seen(queries: Number, keys: Number, window: Number, causal: bool) -> Number:
    """Keys that a query sees on average, and no mask's waste.

    >>> keys_seen(1000, 1000, 1000, True), keys_seen(1000, 5000, 5000, True), keys_seen(1000, 1000, 100, True)
    (500.0, 4500.0, 95.0)
    """
    if not causal:
        return minimum(keys, window)
    before = keys - queries
    turn = maximum(minimum(window, keys), before)
    return ((turn * turn - before * before) / 2 + window * (keys - turn)) / queries


def _seconds(
    *sizes: Number, name: str, table: FlashAttention, profile: KernelProfile, causal: bool, write: bool, spared: float
) -> Number:
    batch, queries, keys, q_heads, kv_heads, head_dim, window = sizes
    peak, cores = profile.peak(name), profile.cores
    group = q_heads / kv_heads
    rows = queries * group if table.packed else queries
    tiles = ceil(rows / table.tile)
    edge = table.edge + table.fill * rows / (tiles * table.tile)
    shown = keys_seen(queries, keys, window, causal)
    most = minimum(keys, window)
    wasted = minimum(queries, table.tile / group if table.packed else table.tile) / 2 if causal else 0
    score = 4 * table.tile * cores / (peak * table.rate)
    score = score * (head_dim + table.softmax * (1 - spared)) * (MEASURED_HEAD / (MEASURED_HEAD + table.softmax))
    per_core = tiles * (batch * (kv_heads if table.packed else q_heads) / cores)
    waves = ceil(per_core) * table.quantum + per_core * (1 - table.quantum)
    walk = minimum(shown + wasted, most)
    compute = maximum(waves * (edge + score * walk), table.longest * (edge + score * most))
    query_size, key_size = batch * queries * head_dim * q_heads, batch * keys * head_dim * kv_heads
    memory = (query_size * table.query_bytes + key_size * table.kv_bytes) / profile.bandwidth
    expected = table.launch + maximum(compute, memory) + table.unhidden * minimum(compute, memory)
    if write:
        moved = batch * queries * head_dim * kv_heads * table.write_bytes
        expected = expected + batch * queries * table.write_row + moved / profile.bandwidth
    element = FORMATS[name].weight
    least = (
        4 * query_size + 2 * element * batch * minimum(keys, queries + window) * head_dim * kv_heads
    ) / profile.bandwidth
    return maximum(expected, 4 * query_size * shown / peak, least)


BLOCK = 512
"""Queries whose scores are alive at once."""


def score_block_seconds(
    batch: Number,
    queries: Number,
    keys: Number,
    q_heads: Number,
    kv_heads: Number,
    key: Number,
    value: Number,
    profile: KernelProfile,
    score_bytes: float,
    block_s: float = 0.0,
    backward: bool = False,
) -> Number:
    """Seconds of one pass on one chip, with heads of `key` and `value` elements; `score_bytes` are moved for each
    score, and `block_s` pass until the next block."""
    rows = minimum(queries, BLOCK)
    many = batch * kv_heads * (queries / rows)
    group = rows * (q_heads / kv_heads)
    first = matmul_seconds(group, keys, key, "bf16", profile, many, out_bytes=4)
    second = matmul_seconds(group, value, keys, "bf16", profile, many)
    moved = batch * q_heads * queries * keys * score_bytes
    matmuls = 3 * first + 2 * second if backward else first + second
    return matmuls + moved / (profile.bandwidth * profile.stream.bandwidth) + block_s * queries / rows
