"""Attention kernels of an iteration as lines of its ledger: prefill and decode, with flash kernels or without.

A flash kernel keeps the scores on the chip; others write them out. Seconds come from the chip's kernel profile and the
engine's factors, FLOPs and bytes from the layouts.
"""

from dataclasses import dataclass

from dragonscale.models.attention import line_takes_flash
from dragonscale.models.flops import Workload, op_flops
from dragonscale.models.program import Section
from dragonscale.physics.hardware.chip import dtype_bytes
from dragonscale.physics.kernels import (
    KernelProfile,
    attention_seconds,
    decode_attention_seconds,
    matmul_seconds,
    memory_seconds,
)
from dragonscale.physics.kernels.dtypes import FORMATS
from dragonscale.physics.kernels.score_blocks import score_block_seconds
from dragonscale.physics.numbers import Number, maximum, minimum, product, where
from dragonscale.physics.sharding.layout import local_sizes
from dragonscale.plan.reader import Kernel
from dragonscale.serving.iteration.balance import longest_held
from dragonscale.serving.iteration.compiled import masked_flops
from dragonscale.serving.iteration.iteration import ServingLine
from dragonscale.serving.iteration.kernel_lines import kernel_names
from dragonscale.serving.iteration.kernel_times import KernelBench

CACHE_BYTES = 21.7
"""Bytes per clock that a core draws from the last-level cache: 1.69 times the memory's 3.35 TB/s over an H100's 132
cores at 1.98 GHz, as measured with its decode kernels."""
SCORE_BYTES = 10.0
"""Bytes moved for each score that is written out: fp16 by the matmul, read and written by the softmax, read again."""
LATENT_RATE = 0.62
"""The fraction of the tensor cores' peak that decode attention reaches if it is compute-bound (FlashMLA's authors
report 660 TFLOP/s on an H800, 0.67 of its peak, for their best shape)."""


@dataclass(frozen=True)
class AttendedSequences:
    """The sequences of one attention call: `batch` of them with `queries` new tokens and `keys` tokens in all."""

    batch: Number
    queries: Number
    keys: Number


@dataclass(frozen=True)
class _Heads:
    """Attention heads of one chip.

    `queries` and `keys` count query and KV heads; `element` is the cached elements read of each key (K and V);
    `query_size` and `result_size` are the head dims of queries and results.
    """

    queries: Number
    keys: Number
    element: Number
    query_size: Number
    result_size: Number


def _heads(kernel: Kernel, bench: KernelBench, sizes: dict[str, Number]) -> _Heads:
    query, *cached, result = kernel.arrays
    local = local_sizes(kernel.arrays, sizes, bench.mesh)
    # dims of an array: batch, positions, heads (several dims in grouped-query attention), head dim
    q_heads = product(local[name] for name in query.names[2:-1])
    # positions are s, or m for compressed keys
    keys = [array for array in cached if "s" in array.names or "m" in array.names]
    kv_heads = product(local[name] for name in keys[0].names[2:-1])
    dims = bench.section.dims
    elements = [sum(dims[array.names[-1]] for array in keys if position in array.names) for position in ("s", "m")]
    return _Heads(q_heads, kv_heads, maximum(*elements), dims[query.names[-1]], dims.get(result.names[-1], 0))


def _windows(section: Section) -> list[int]:
    """Most keys that a query attends to, of its sliding window and of its chunk."""
    return [window for window in (section.span, section.chunk) if window is not None]


def _selected(section: Section, kernel: Kernel) -> list[int]:
    """Most keys that an indexer selects for a query, if there is one."""
    return [section.top] if section.top is not None and kernel.function == "attend" else []


def visible_keys(section: Section, kernel: Kernel, keys: Number) -> Number:
    """Cached keys that one new token reads: all, those of its window or chunk, or those that an indexer selects."""
    names = {name for array in kernel.arrays[1:-1] for name in array.names}
    selected = _selected(section, kernel)
    if "m" not in names:
        return minimum(keys, *_windows(section), *selected)
    # An indexer selects among the compressed keys, and a window of plain keys may be read beside them.
    compressed = minimum(keys / (section.compress or 1), *selected)
    return minimum(keys, *_windows(section)) + compressed if "s" in names else compressed


def decode_attention_line(
    kernel: Kernel, attended: AttendedSequences, sizes: dict[str, Number], bench: KernelBench
) -> ServingLine:
    """Attention of a few new tokens of each sequence against its cache."""
    heads = _heads(kernel, bench, sizes)
    ways = {dim.name: bench.mesh.size(*dim.axes) for dim in kernel.arrays[1].dims}
    batch = maximum(attended.batch / ways["b"], 1)
    keys = visible_keys(bench.section, kernel, attended.keys) / ways.get("s", ways.get("m", 1))
    dtype = bench.plan.kv if kernel.part != "indexer" else "fp8"  # indexers cache in fp8 (DeepSeek-V3.2)
    moved = batch * keys * heads.keys * heads.element * dtype_bytes(dtype)
    # scores: query_size multiply-adds for each, and result_size to weight the values
    size = heads.query_size + heads.result_size
    flops = 2 * batch * attended.queries * keys * heads.queries * size
    if bench.engine.program.all_keys:
        flops = masked_flops(batch, heads.queries, attended.queries, attended.keys, size, bench)
    seconds: Number = 0.0
    if bench.timed and not _flash(kernel, bench):
        # a plain program moves the whole cache several times
        allocated = batch * attended.keys * heads.keys * heads.element * dtype_bytes(dtype)
        seconds = memory_seconds(allocated * bench.engine.kernels.cache_moves, bench.profile)
    elif bench.timed:
        # everybody waits for the data rank whose sequences have most cached
        longest = longest_held(bench.mesh.size("data"), batch)
        shape = (batch, keys * longest, heads.queries * attended.queries, heads.keys, heads.element / 2)
        seconds = _decode_seconds(heads, shape, _cache_format(dtype), flops * longest, moved * longest, bench)
        if bench.engine.kernels.widens_drafted and dtype_bytes(dtype) == 1 and bench.section.dims.get("k", 1) > 1:
            wide = _decode_seconds(heads, shape, "bf16", flops * longest, 2 * moved * longest, bench)
            seconds = where(attended.queries > 1, maximum(seconds, wide), seconds)
    return bench.line(kernel_names([kernel]), "attention", kernel.part, "scores", "bf16", flops, moved, seconds, 2.0)


def _flash(kernel: Kernel, bench: KernelBench) -> bool:
    """Whether the engine has a flash kernel for the attention of a section."""
    if not bench.engine.kernels.plain_flash:
        return True
    chip = bench.profile.chip
    plain = chip.kind == "gpu" and line_takes_flash(bench.section, kernel.op, chip.architecture)
    return plain and (bench.phase == "prefill" or bench.section.span is None)


_CacheShape = tuple[Number, Number, Number, Number, Number]
"""Shape of a decode call: sequences, keys, query heads, KV heads, head dim."""


def _decode_seconds(
    heads: _Heads, shape: _CacheShape, dtype: str, flops: Number, moved: Number, bench: KernelBench
) -> Number:
    """Expected seconds of flash decoding, on the fullest data rank."""
    profile, peak = bench.profile, bench.profile.peak("bf16")
    seconds = decode_attention_seconds(*shape, dtype, profile)
    if bench.engine.kernels.even_caches and dtype == "fp8":
        # as efficient as with 16 bits, byte for byte
        seconds = minimum(seconds, decode_attention_seconds(*shape, dtype, profile, like="bf16"))
    if bench.engine.kernels.shared_heads:
        seconds = seconds * _reread_factor(heads.queries / heads.keys, dtype, bench)
    seconds = maximum(seconds, flops / (peak * LATENT_RATE))
    launch = profile.decode.of(dtype).launch
    return _under_engine(seconds, bench.engine.kernels.decode_attention, launch, flops / peak, moved, bench)


def _reread_factor(group: Number, dtype: str, bench: KernelBench) -> Number:
    """How much longer decoding takes if each query head of a `group` reads the shared KV head for itself.

    The first read is from memory, the others from the last-level cache, whose rate bounds them. 1 for group sizes that
    the engine's kernel supports.
    """
    profile = bench.profile
    clock = float(profile.chip.structure.get("clock") or 0.0)
    cache_rate = max(profile.bandwidth * profile.decode.of("bf16").cached, CACHE_BYTES * profile.cores * clock)
    rereads = group * (profile.bandwidth * profile.decode.of(dtype).bandwidth / cache_rate)
    supported = group == 1
    for size in bench.engine.kernels.shared_heads:
        supported = supported | (group == size)
    return where(supported, 1.0, maximum(rereads, 1.0))


def _under_engine(
    seconds: Number, factor: float, launch: float, compute: Number, moved: Number, bench: KernelBench
) -> Number:
    """An attention kernel's seconds under an engine: times its factor, less the launch time that it overlaps.

    Never less than the matmuls at the peak (`compute` seconds) or reading the cache.
    """
    # no more than the profile counts for the launch can overlap
    hidden = min(bench.engine.kernels.attention_overlap_s, launch)
    return maximum((seconds - hidden) * factor, compute, moved / bench.profile.bandwidth)


def _cache_format(dtype: str) -> str:
    """The format of decode kernels that a cache dtype is timed with: one of as many bits, fp8 for narrower ones."""
    similar = {"int8": "fp8", "fp16": "bf16"}
    if dtype in similar:
        return similar[dtype]
    return dtype if dtype in FORMATS else "fp8"


def prefill_attention_line(
    kernel: Kernel, attended: AttendedSequences, sizes: dict[str, Number], bench: KernelBench
) -> ServingLine:
    """Attention of the new tokens of prompts to themselves and to what was cached before."""
    section, profile = bench.section, bench.profile
    heads = _heads(kernel, bench, sizes)
    query = kernel.arrays[0]
    ways = {dim.name: bench.mesh.size(*dim.axes) for dim in query.dims}
    batch, queries = maximum(attended.batch / ways["b"], 1), attended.queries / ways.get("t", 1)
    # chips that split the heads of these sequences
    head_ways = product(bench.mesh.size(*dim.axes) for dim in query.dims if dim.name not in ("b", "t"))
    flops = op_flops(section, kernel.op, Workload(batch, queries, attended.keys)) / head_ways
    if bench.engine.program.all_keys:
        size = heads.query_size + heads.result_size
        flops = masked_flops(batch, heads.queries, queries, attended.keys, size, bench)
    dtype = bench.attention_dtype
    past = attended.keys - attended.queries
    moved = batch * past * heads.keys * heads.element * dtype_bytes(bench.plan.kv)
    seconds: Number = 0.0
    if bench.timed:
        seconds = _prefill_seconds(kernel, batch, queries, attended.keys, heads, bench)
        factor, launch = bench.engine.kernels.prefill_attention, profile.attention.of(dtype).launch
        seconds = _under_engine(seconds, factor, launch, flops / profile.peak(dtype), moved, bench)
    return bench.line(kernel_names([kernel]), "attention", kernel.part, "scores", dtype, flops, moved, seconds, 2.0)


def _prefill_seconds(
    kernel: Kernel, batch: Number, queries: Number, keys: Number, heads: _Heads, bench: KernelBench
) -> Number:
    """Seconds of prefill attention by the profile, with the kind of kernel that the engine has for it."""
    kernels, profile = bench.engine.kernels, bench.profile
    if not _flash(kernel, bench):
        shape = (batch, queries, keys, heads.queries, heads.keys, heads.query_size, heads.result_size)
        return score_block_seconds(*shape, profile, kernels.block_bytes, bench.engine.program.scan_s)
    if not kernels.flash:
        return _unfused(batch, queries, keys, heads, profile)

    # latent attention has queries and results of different sizes; scores alone (an indexer's) have no result
    head_dim = heads.element / 2
    if heads.result_size:
        head_dim = (heads.query_size + heads.result_size) / 2
    return attention_seconds(
        batch,
        queries,
        keys,
        heads.queries,
        heads.keys,
        head_dim,
        bench.attention_dtype,
        profile,
        window=min([*_windows(bench.section), *_selected(bench.section, kernel)], default=None),
    )


def _unfused(batch: Number, queries: Number, keys: Number, heads: _Heads, profile: KernelProfile) -> Number:
    """Attention as two matmuls with the scores written out between them."""
    count = batch * heads.queries
    scores_s = matmul_seconds(queries, keys, heads.query_size, "bf16", profile, count)
    values_s = matmul_seconds(queries, heads.result_size, keys, "bf16", profile, count)
    return scores_s + values_s + memory_seconds(count * queries * keys * SCORE_BYTES, profile)
