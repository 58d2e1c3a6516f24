"""Expected seconds of attention without a flash kernel: scores in blocks of queries, in fp32, as a compiler makes them.

Each block is multiplied out whole, masked or not: two batched matmuls forward, in which the query heads that share a KV
head are rows of one, and passes over the scores between them (scale, cap, mask, softmax, cast). Backward finds the
scores again and has five matmuls.
"""

from dragonscale.physics.kernels.matmul import matmul_seconds
from dragonscale.physics.kernels.profile import KernelProfile
from dragonscale.physics.numbers import Number, minimum

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
