"""Expected seconds of attention without a flash kernel: scores in blocks of queries, in fp32, as a compiler makes them.

Each block is multiplied out whole, masked or not: two batched matmuls forward, in which the query heads that share a KV
head are rows of one, and passes over the scores between them (scale, cap, mask, softmax, cast). The backward pass
computes the scores again and has five matmuls.
"""

from dragonscale.physics.kernels.matmul import matmul_seconds
from dragonscale.physics.kernels.profile import KernelProfile
from dragonscale.physics.numbers import Number, minimum

QUERY_BLOCK = 512
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
    """Seconds of one pass on one chip, with heads of `key` and `value` elements. `score_bytes` are moved for each
    score, and each block has `block_s` seconds of overhead."""
    block = minimum(queries, QUERY_BLOCK)
    matmuls = batch * kv_heads * (queries / block)
    rows = block * (q_heads / kv_heads)
    scores = matmul_seconds(rows, keys, key, "bf16", profile, matmuls, out_bytes=4)  # Q·Kᵀ: (rows, keys) in fp32
    values = matmul_seconds(rows, value, keys, "bf16", profile, matmuls)  # P·V: (rows, value)
    if backward:
        # the scores again, dQ and dK are as large as Q·Kᵀ; dP and dV as P·V
        multiplied = 3 * scores + 2 * values
    else:
        multiplied = scores + values
    moved = batch * q_heads * queries * keys * score_bytes
    return multiplied + moved / (profile.bandwidth * profile.stream.bandwidth) + block_s * queries / block
