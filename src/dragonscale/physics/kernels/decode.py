"""Expected seconds of attention in decoding: one query per sequence against its cached keys and values.

Every (sequence, KV head) is a block of work. Blocks are handed out to the cores in waves, each with a fixed cost; the
cache is read at a fraction of the memory's bandwidth. Where there are fewer blocks than cores, long sequences are split
among them and joined (split-KV, FlashDecoding). In a model, other layers have passed through the last-level cache since
this layer's keys were last read, so they come from memory; a benchmark that repeats one kernel finds them in the cache
(`warm=True`).
"""

from functools import partial

from dragonscale.physics.kernels.blockwise import evaluate
from dragonscale.physics.kernels.dtypes import FORMATS, format_name
from dragonscale.physics.kernels.profile import Decode, KernelProfile
from dragonscale.physics.kernels.waves import overlapped, waves
from dragonscale.physics.numbers import Number, maximum, minimum

SPLIT_KEYS = 128
"""Keys below which a sequence is not split further."""


def decode_attention_seconds(
    batch: Number,
    keys: Number,
    q_heads: Number,
    kv_heads: Number,
    head_dim: Number,
    dtype: str,
    profile: KernelProfile,
    *,
    warm: bool = False,
    like: str = "",
) -> Number:
    """Seconds of one decoding step's attention in one layer; heads are those of this chip, `dtype` that of the cache. A
    kernel may be `like` that of another format: with its constants, and the bytes of this one.

    >>> from dragonscale.physics.kernels.profile_file import kernel_profile_for
    >>> from dragonscale.physics.hardware import load_chip
    >>> h100 = kernel_profile_for(load_chip("h100"))
    >>> 0.65e-3 < decode_attention_seconds(64, 8192, 32, 8, 128, "bf16", h100) < 0.75e-3
    True
    """
    name = format_name(dtype)
    table = profile.decode.of(like or name)
    formula = partial(_seconds, element=FORMATS[name].weight, table=table, profile=profile, warm=warm)
    return evaluate(formula, batch, keys, q_heads, kv_heads, head_dim)


def _seconds(*sizes: Number, element: float, table: Decode, profile: KernelProfile, warm: bool) -> Number:
    batch, keys, q_heads, kv_heads, head_dim = sizes
    blocks = batch * kv_heads
    per_core = blocks / profile.cores
    compute = waves(per_core, table.quantum) * (table.block + table.group * (q_heads / kv_heads))
    cache = 2 * element * blocks * keys * head_dim
    memory = cache / (profile.bandwidth * table.bandwidth)
    if warm:
        # all of it stays cached up to 0.8 of the cache's size, nothing from 1.2 of it on
        cached = maximum(0.0, minimum(1.0, (1.2 - cache / profile.cache_bytes) / 0.4))
        memory = memory * (1 - cached) + cached * cache / (profile.bandwidth * table.cached)
    splits = maximum(1.0, minimum(1 / per_core, keys / SPLIT_KEYS))
    # the serial chain over the keys of one split, and the join where there is more than one
    chain = table.key * minimum(keys / splits, table.chain) + table.join * minimum(1.0, 100 * (splits - 1))
    expected = table.launch + overlapped(compute, memory, table.unhidden) + chain
    if warm:
        return maximum(expected, 0.0)
    return maximum(expected, cache / profile.bandwidth)
