"""What one kernel of an iteration does on one chip: a line with its FLOPs, bytes, and the seconds to expect.

Bounds and expectations are read off the same line: a kernel takes at least its FLOPs at the peak and its bytes at the
memory's bandwidth, both from the datasheet; what to expect comes from the chip's kernel profile and the engine's
habits. On symbols there are bounds only: profiles are made of tiles and waves.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dragonscale.models.attention import line_takes_flash
from dragonscale.models.flops import Workload, op_flops
from dragonscale.models.program import Section
from dragonscale.physics.hardware.chip import dtype_bytes
from dragonscale.physics.kernels import (
    KernelProfile,
    attention_seconds,
    decode_attention_seconds,
    grouped_matmul_seconds,
    matmul_seconds,
    memory_seconds,
    quantise_seconds,
)
from dragonscale.physics.kernels.dtypes import FORMATS
from dragonscale.physics.kernels.profile import EXPERT_CALLS, Grouped
from dragonscale.physics.kernels.routing import Load, route
from dragonscale.physics.kernels.score_blocks import score_block_seconds
from dragonscale.physics.numbers import Number, maximum, minimum, product, where
from dragonscale.physics.sharding.layout import local_elements, local_sizes
from dragonscale.plan.reader import Kernel
from dragonscale.serving.engine.engine_settings import EngineExperts
from dragonscale.serving.engine.formats import part_format
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.iteration.balance import expert_slots, longest_held
from dragonscale.serving.iteration.compiled import capacity_work, masked_flops
from dragonscale.serving.iteration.iteration import ServingLine
from dragonscale.serving.iteration.kernel_times import KernelBench

DYNAMIC = ("fp8_block", "mxfp8", "nvfp4", "mxfp4", "mxfp4_mxfp8", "fp4")
"""Formats whose activations need a scale for every few elements, found while serving: one more kernel, unless it is
fused into the one before. With one scale for a tensor, known beforehand, the kernel before writes them as they are
needed."""
LATENT_RATE = 0.62
"""The part of the tensor cores' peak that decode attention reaches where it is bound by them (FlashMLA's authors report
660 TFLOP/s on an H800, 0.67 of its peak, for their best shape)."""
SCAN_RATE = 0.25
"""The part of the peak that chunked linear attention reaches: matmuls of 64 rows between elementwise work."""


@dataclass(frozen=True)
class AttendedSequences:
    """The sequences that one attention call works on: `batch` of them with `queries` new tokens and `keys` in all."""

    batch: Number
    queries: Number
    keys: Number


def kernel_names(kernels: Iterable[Kernel]) -> str:
    """What some kernels make, by the names of the program."""
    return "+".join(kernel.op.output.name for kernel in kernels if kernel.op.output is not None)


def matmul_line(kernels: list[Kernel], sizes: dict[str, Number], bench: KernelBench) -> ServingLine:
    """Matmuls that read the same tensor, as one."""
    first = kernels[0]
    rows, _, summed, batch, _ = first.matmul
    local = local_sizes(first.arrays, sizes, bench.mesh)
    m, k, many = (product(local[name] for name in names) for names in (rows, summed, batch))
    raw, m = m, bench.rows(m)
    n: Number = 0
    for kernel in kernels:
        own = local_sizes(kernel.arrays, sizes, bench.mesh)
        n = n + product(own[name] for name in kernel.matmul[1])
    name = part_format(bench.plan, first.part)
    habits, profile, issued, seconds = bench.engine.kernels, bench.profile, 1.0, 0.0
    if bench.timed:
        seconds = matmul_seconds(m, n, k, name, profile, many, replayed=True) * habits.matmul
        if habits.widening and FORMATS[name].weight < FORMATS[name].activation:
            wide = matmul_seconds(m, n, k, FORMATS[name].compute, profile, many, replayed=True) * habits.matmul
            seconds = where(raw > habits.widening_rows, wide * habits.widening, seconds)
        if bench.engine.program.loop_s and first.part != "head":
            read = memory_seconds(many * n * k * FORMATS[name].weight, profile)
            seconds = where(raw == 1, read + bench.engine.program.loop_s * len(kernels), seconds)
    if habits.quantise and name in DYNAMIC:
        issued = 1.0 + habits.quantise
        if bench.timed:
            seconds = seconds + habits.quantise * quantise_seconds(m * many, k, name, profile)
    if first.part == "shared" and bench.phase == "decode" and bench.engine.experts.shared_beside:
        seconds = 0.0  # its weights are still read: a line is never below its bound
    flops, moved = 2 * m * n * k * many, many * n * k * FORMATS[name].weight
    return bench.line(kernel_names(kernels), "matmul", first.part, first.part, name, flops, moved, seconds, issued)


def expert_kernels(habits: EngineExperts, tables: dict[str, Grouped]) -> str:
    """The library whose grouped matmuls an engine runs, of those that a profile knows for a format: the first that it
    names, or the profile's first."""
    return next((name for name in habits.kernels.split() if name in tables or name == "plain"), next(iter(tables)))


def expert_calls(habits: EngineExperts, plan: ServingPlan, profile: KernelProfile) -> float:
    """What of a layer of experts the host issues call by call: all of it, or less where the library fuses calls."""
    tables = profile.grouped.of(part_format(plan, "experts"))
    chosen = tables.get(expert_kernels(habits, tables))
    return 1.0 if chosen is None else chosen.calls / EXPERT_CALLS


def expert_line(
    kernels: list[Kernel], tokens: Number, sizes: dict[str, Number], bench: KernelBench, hot: Number = 1.0
) -> ServingLine:
    """All matmuls of a layer's experts, with the routing and adding up around them; `tokens` are those of all chips, of
    which the busiest has `hot` times its share."""
    weight = kernels[0].arrays[-2]
    wide = next(name for name in weight.names if name in ("d", "dl"))
    experts, inner = sizes["e"], sizes["f"]
    hidden = sizes[wide] / bench.mesh.size(*next(dim.axes for dim in weight.dims if dim.name == wide))
    chips, slices = bench.mesh.size("data", "expert"), bench.mesh.size("tensor", "share")
    name = part_format(bench.plan, "experts")
    gated = len(kernels) > 2
    habits, widening = bench.engine.experts, bench.engine.kernels.widening
    narrow = FORMATS[name].weight < FORMATS[name].activation and widening > 0
    priced = FORMATS[name].compute if narrow else name
    experts = expert_slots(experts, chips, habits.redundant) if bench.exchange else experts
    load = route(tokens, sizes["x"], experts, chips, habits.routing)
    busy = replace(load, rows=load.rows * hot)
    each = (3 if gated else 2) * hidden * inner / slices
    flops, seconds = 2 * each * tokens * sizes["x"] / chips, 0.0
    capacity = bench.engine.program.expert_capacity
    if capacity:
        flops, seconds = capacity_work(kernels, tokens, bench)
    elif bench.timed:
        tables = bench.profile.grouped.of(priced)
        chosen = expert_kernels(habits, tables)
        if chosen == "plain":
            seconds = _plain_experts(busy, hidden, inner / slices, gated, priced, bench.profile)
        else:
            shape = (tokens * hot, hidden, inner, sizes["x"], experts, priced, bench.profile)
            split = {"chips": chips, "tensor": slices, "routing": habits.routing}
            seconds = grouped_matmul_seconds(*shape, **split, gated=gated, implementation=chosen)
            seconds = seconds - min(habits.overlap_s, tables[chosen].launch)
        if narrow:
            both = each * experts / chips * (FORMATS[name].weight + FORMATS[priced].weight)
            ahead = memory_seconds(both, bench.profile) if bench.phase == "prefill" else 0.0
            seconds = seconds * widening + ahead
    moved = each * FORMATS[name].weight * (experts / chips if capacity else load.active)
    parts, taken = (kernel_names(kernels), "grouped matmul", "experts", "experts"), seconds * habits.slowdown
    return bench.line(*parts, name, flops, moved, taken, EXPERT_CALLS)


def _plain_experts(load: Load, hidden: Number, inner: Number, gated: bool, name: str, profile: KernelProfile) -> Number:
    """Experts as well tuned as plain matmuls, one for each expert with work; rows are copied to their experts, back and
    added up, and the nonlinearity passes over the hidden layer."""
    rows = load.rows / load.active
    into = matmul_seconds(rows, 2 * inner if gated else inner, hidden, name, profile, load.active)
    out = matmul_seconds(rows, hidden, inner, name, profile, load.active)
    return into + out + memory_seconds(load.rows * (8 * hidden + (6 if gated else 4) * inner), profile)


@dataclass(frozen=True)
class _Heads:
    """Heads of one chip: queries', keys', the elements read of each key, and the keys there are of either kind."""

    queries: Number
    keys: Number
    element: Number
    query_size: Number
    result_size: Number


def _heads(kernel: Kernel, bench: KernelBench, sizes: dict[str, Number]) -> _Heads:
    query, *cached, result = kernel.arrays
    several = local_sizes(kernel.arrays, sizes, bench.mesh)
    q_heads = product(several[name] for name in query.names[2:-1])
    keys = [array for array in cached if "s" in array.names or "m" in array.names]
    kv_heads = product(several[name] for name in keys[0].names[2:-1])
    dims = bench.section.dims
    by_dim = [sum(dims[a.names[-1]] for a in keys if dim in a.names) for dim in ("s", "m")]
    return _Heads(q_heads, kv_heads, maximum(*by_dim), dims[query.names[-1]], dims.get(result.names[-1], 0))


def seen_keys(section: Section, kernel: Kernel, keys: Number) -> Number:
    """Cached keys that one new token reads: all, those of its window or chunk, or those an indexer keeps."""
    names = {name for array in kernel.arrays[1:-1] for name in array.names}
    caps = [cap for cap in (section.span, section.chunk) if cap is not None]
    top = [section.top] if section.top is not None and kernel.function == "attend" else []
    past = keys / section.compress if section.compress is not None else keys
    if "m" in names:
        far = minimum(past, *top) if top else past
        return minimum(keys, *caps) + far if "s" in names else far
    return minimum(keys, *caps, *top) if caps or top else keys


def decode_attention_line(
    kernel: Kernel, seen: AttendedSequences, sizes: dict[str, Number], bench: KernelBench
) -> ServingLine:
    """Attention of a few new tokens of each sequence against its cache."""
    heads = _heads(kernel, bench, sizes)
    ways = {dim.name: bench.mesh.size(*dim.axes) for dim in kernel.arrays[1].dims}
    batch = maximum(seen.batch / ways["b"], 1)
    keys = seen_keys(bench.section, kernel, seen.keys) / ways.get("s", ways.get("m", 1))
    dtype = bench.plan.kv if kernel.part != "indexer" else "fp8"
    moved = batch * keys * heads.keys * heads.element * dtype_bytes(dtype)
    size = heads.query_size + heads.result_size
    flops = 2 * batch * seen.queries * keys * heads.queries * size
    if bench.engine.program.all_keys:
        flops = masked_flops(batch, heads.queries, seen.queries, seen.keys, size, bench)
    seconds: Number = 0.0
    if bench.timed and not _flash(kernel, bench):
        room = batch * seen.keys * heads.keys * heads.element * dtype_bytes(dtype)
        seconds = memory_seconds(room * bench.engine.kernels.cache_moves, bench.profile)
    elif bench.timed:
        longest = longest_held(bench.mesh.size("data"), batch)
        shape = (batch, keys * longest, heads.queries * seen.queries, heads.keys, heads.element / 2)
        seconds = _decode_seconds(heads, shape, _cache_format(dtype), flops * longest, moved * longest, bench)
    return bench.line(kernel_names([kernel]), "attention", kernel.part, "scores", "bf16", flops, moved, seconds, 2.0)


def _flash(kernel: Kernel, bench: KernelBench) -> bool:
    """Whether a flash kernel takes the attention of a section, where the engine's is not for all."""
    if not bench.engine.kernels.plain_flash:
        return True
    chip = bench.profile.chip
    plain = chip.kind == "gpu" and line_takes_flash(bench.section, kernel.op, chip.architecture)
    return plain and (bench.phase == "prefill" or bench.section.span is None)


_CacheShape = tuple[Number, Number, Number, Number, Number]
"""Sequences, keys, query heads, KV heads and elements of a key."""


def _decode_seconds(
    heads: _Heads, shape: _CacheShape, dtype: str, flops: Number, moved: Number, bench: KernelBench
) -> Number:
    profile, peak = bench.profile, bench.profile.peak("bf16")
    seconds = decode_attention_seconds(*shape, dtype, profile)
    if bench.engine.kernels.even_caches and dtype == "fp8":
        seconds = minimum(seconds, decode_attention_seconds(*shape, dtype, profile, like="bf16"))
    if bench.engine.kernels.shared_heads:
        seconds = seconds * _repeated(heads.queries / heads.keys, dtype, bench)
    seconds = maximum(seconds, flops / (peak * LATENT_RATE))
    launch = profile.decode.of(dtype).launch
    return _under_engine(seconds, bench.engine.kernels.decode_attention, launch, flops / peak, moved, bench)


CACHE_BYTES = 21.7
"""Bytes that a core draws from the last-level cache in a clock: 1.69 times the memory's 3.35 TB/s over an H100's 132
cores at 1.98 GHz, as its decode kernels were measured."""


def _repeated(group: Number, dtype: str, bench: KernelBench) -> Number:
    """How much longer reading a cache takes if each query head of a group reads it for itself: the first time from
    memory, then from the last-level cache, whose rate bounds it."""
    profile = bench.profile
    clock = float(profile.chip.structure.get("clock") or 0.0)
    rate = max(profile.bandwidth * profile.decode.of("bf16").cached, CACHE_BYTES * profile.cores * clock)
    again = group * (profile.bandwidth * profile.decode.of(dtype).bandwidth / rate)
    shared = group == 1
    for size in bench.engine.kernels.shared_heads:
        shared = shared | (group == size)
    return where(shared, 1.0, maximum(again, 1.0))


def _under_engine(
    seconds: Number, factor: float, launch: float, compute: Number, moved: Number, bench: KernelBench
) -> Number:
    """An attention kernel's seconds with the engine's factor, less what of its start is hidden, which is never more
    than the profile counts for it; its matmuls are computed and its cache is read all the same."""
    own = (seconds - min(bench.engine.kernels.attention_overlap_s, launch)) * factor
    return maximum(own, compute, moved / bench.profile.bandwidth)


def _cache_format(dtype: str) -> str:
    return {"int8": "fp8", "fp16": "bf16"}.get(dtype, dtype if dtype in FORMATS else "fp8")


def prefill_attention_line(
    kernel: Kernel, seen: AttendedSequences, sizes: dict[str, Number], bench: KernelBench
) -> ServingLine:
    """Attention of the new tokens of prompts against themselves and what was cached before."""
    section, profile = bench.section, bench.profile
    heads = _heads(kernel, bench, sizes)
    query = kernel.arrays[0]
    ways = {dim.name: bench.mesh.size(*dim.axes) for dim in query.dims}
    batch, queries = maximum(seen.batch / ways["b"], 1), seen.queries / ways.get("t", 1)
    shared = product(bench.mesh.size(*dim.axes) for dim in query.dims if dim.name not in ("b", "t"))
    flops = op_flops(section, kernel.op, Workload(batch, queries, seen.keys)) / shared
    if bench.engine.program.all_keys:
        size = heads.query_size + heads.result_size
        flops = masked_flops(batch, heads.queries, queries, seen.keys, size, bench)
    dtype = bench.attention_dtype
    moved = batch * (seen.keys - seen.queries) * heads.keys * heads.element * dtype_bytes(bench.plan.kv)
    seconds: Number = 0.0
    if bench.timed:
        if not _flash(kernel, bench):
            moved_bytes = bench.engine.kernels.block_bytes
            shape = (batch, queries, seen.keys, heads.queries, heads.keys, heads.query_size, heads.result_size)
            seconds = score_block_seconds(*shape, profile, moved_bytes, bench.engine.program.scan_s)
        elif bench.engine.kernels.flash:
            size = heads.element / 2 if not heads.result_size else (heads.query_size + heads.result_size) / 2
            caps = [cap for cap in (section.span, section.chunk) if cap is not None]
            caps += [section.top] if section.top is not None and kernel.function == "attend" else []
            window = min(caps, default=None)
            seconds = attention_seconds(
                batch, queries, seen.keys, heads.queries, heads.keys, size, dtype, profile, window=window
            )
        else:
            seconds = _unfused(batch, queries, seen.keys, heads, profile)
        slow, launch = bench.engine.kernels.prefill_attention, profile.attention.of(dtype).launch
        seconds = _under_engine(seconds, slow, launch, flops / profile.peak(dtype), moved, bench)
    return bench.line(kernel_names([kernel]), "attention", kernel.part, "scores", dtype, flops, moved, seconds, 2.0)


SQUARE_BYTES = 10.0
"""Bytes moved for each score that is written out: in fp16 by the matmul, read and written by the softmax, read again.
"""


def _unfused(batch: Number, queries: Number, keys: Number, heads: _Heads, profile: KernelProfile) -> Number:
    many = batch * heads.queries
    first = matmul_seconds(queries, keys, heads.query_size, "bf16", profile, many)
    second = matmul_seconds(queries, heads.result_size, keys, "bf16", profile, many)
    return first + second + memory_seconds(many * queries * keys * SQUARE_BYTES, profile)


def recurrent_line(
    kernel: Kernel, tokens: Number, sequences: Number, sizes: dict[str, Number], bench: KernelBench
) -> ServingLine:
    """A recurrence: its state is read and written once for every sequence, its tokens pass through."""
    *inputs, _ = kernel.arrays
    state = kernel.op.inputs[-1]
    laid = next(array for array in inputs if array.name == state.name)
    places = bench.mesh.size(*next(dim.axes for dim in laid.dims if dim.name == "b"))
    elements = bench.size(laid, sizes | {"b": maximum(sequences, places)})
    states = 2 * elements * dtype_bytes(state.dtype or "bf16")
    shared = product(bench.mesh.size(*dim.axes) for dim in laid.dims)
    flops = op_flops(bench.section, kernel.op, Workload(tokens, 1, 1)) / shared
    seconds: Number = 0.0
    if bench.timed:
        passing = sum(bench.size(array, sizes) for array in kernel.arrays if array.name != state.name)
        peak = bench.profile.peak("bf16")
        seconds = maximum(memory_seconds(states + passing * 2, bench.profile), flops / (peak * SCAN_RATE))
    seconds = seconds * bench.engine.kernels.decode_attention
    return bench.line(kernel_names([kernel]), "recurrence", kernel.part, "scores", "bf16", flops, states, seconds, 2.0)


FUSED = ("add", "bias", "route", "dispatch", "combine", "join", "pool")
"""Lines that need no kernel of their own: sums ride on the norm after them, biases on matmuls, routing on the experts.
"""


def elementwise_line(kernels: Sequence[Kernel], sizes: dict[str, Number], bench: KernelBench) -> ServingLine | None:
    """Norms, nonlinearities, convolutions, rotary embeddings with the writing of the cache; none where it is fused."""
    (kernel,) = kernels
    if kernel.function in FUSED:
        return None
    moved: Number = 0.0
    if kernel.function == "cache":
        grown = [array for array in kernel.arrays if "s" in array.names or "m" in array.names]
        if not grown:
            return None
        for array in grown if bench.timed else ():
            elements = local_elements(array, sizes, bench.mesh, without=("s", "m"))
            moved = moved + elements * (2 + dtype_bytes(bench.plan.kv))
    elif bench.timed:
        moved = sum(bench.size(array, sizes) for array in kernel.arrays) * 2.0
    slow: Number = bench.engine.kernels.elementwise
    summed = kernel.function == "norm" and any(array.names[-1] == "d" for array in kernel.arrays)
    if bench.engine.kernels.fused and bench.phase == "decode" and kernel.function in ("act", "norm") and not summed:
        slow = where(bench.plan.chips == 1, 0.0, slow)
    if summed and bench.phase == "decode" and bench.engine.collectives.norms:
        slow = where(bench.mesh.size("tensor", "share") > 1, 0.0, slow)
    seconds = memory_seconds(moved, bench.profile) * slow if bench.timed else 0.0
    what = kernel_names([kernel]) or "+".join(array.name for array in kernel.arrays)
    return bench.line(what, "elementwise", kernel.part, "elementwise", seconds=seconds, issued=slow)
