"""What one kernel of an iteration does on one chip: FLOPs, bytes, and the seconds to expect.

Bounds and expectations are read off the same record: a kernel takes at least its FLOPs at the peak and its bytes at the
memory's bandwidth, both from the datasheet; what to expect comes from the chip's kernel profile and the engine's habits.
"""

from dataclasses import dataclass

from dragonscale.hardware.chip import dtype_bytes
from dragonscale.kernels import (
    KernelProfile,
    attention_seconds,
    decode_attention_seconds,
    grouped_matmul_seconds,
    matmul_seconds,
    memory_seconds,
    quantise_seconds,
)
from dragonscale.kernels.dtypes import FORMATS
from dragonscale.kernels.routing import Load, route
from dragonscale.models.flops import Workload, op_flops
from dragonscale.models.program import Section
from dragonscale.notation import Array
from dragonscale.numbers import Number, maximum, minimum, product, where
from dragonscale.serving.engine import Engine
from dragonscale.serving.formats import part_format
from dragonscale.serving.plan import ServingPlan
from dragonscale.serving.reading import Kernel
from dragonscale.sharding.mesh import Mesh
from dragonscale.sharding.pieces import local_elements, local_sizes, matmul_dims

EXPERT_KERNELS = 6.0
"""Kernels of a layer of experts: routing, dealing out, two grouped products, the activation between them, adding up."""
DYNAMIC = ("fp8_block", "mxfp8", "nvfp4", "mxfp4", "fp4")
"""Formats whose activations need a scale for every few elements, found while serving: one more kernel, unless it is fused into
the one before. With one scale for a tensor, known beforehand, the kernel before writes them as they are needed."""
LATENT_RATE = 0.62
"""The part of the tensor cores' peak that decoding attention reaches where it is bound by them (FlashMLA's authors report
660 TFLOP/s on an H800, 0.67 of its peak, for their best shape)."""
SCAN_RATE = 0.25
"""The part of the peak that chunked linear attention reaches: products of 64 rows between pointwise work."""


@dataclass(frozen=True)
class Work:
    """One kernel on one chip. `compute` are the seconds of its FLOPs at the peak of its format; `moved` the bytes that no
    fusion can save: weights and cached keys, once each. Activations may stay on the chip, so a bound leaves them out."""

    part: str
    flops: Number = 0.0
    compute: Number = 0.0
    moved: Number = 0.0
    seconds: Number = 0.0
    issued: float = 1.0


@dataclass(frozen=True)
class Bench:
    """What kernels run on: a chip's profile, the engine, the plan's formats and the mesh."""

    profile: KernelProfile
    engine: Engine
    plan: ServingPlan
    mesh: Mesh

    @property
    def attention_dtype(self) -> str:
        """The format in which a prompt attends."""
        return self.plan.kv if self.engine.kernels.narrow_attention and dtype_bytes(self.plan.kv) == 1 else "bf16"

    def size(self, array: Array, sizes: dict[str, Number]) -> Number:
        """Elements of an array on one chip."""
        return local_elements(array, sizes, self.mesh)


@dataclass(frozen=True)
class Attended:
    """The sequences that one attention call works on: `batch` of them with `queries` new tokens and `keys` in all."""

    batch: Number
    queries: Number
    keys: Number


def product_work(kernels: list[Kernel], sizes: dict[str, Number], bench: Bench) -> Work:
    """Products that read the same tensor, as one."""
    first = kernels[0]
    rows, _, summed, batch, _ = matmul_dims(first.arrays)
    local = local_sizes(first.arrays, sizes, bench.mesh)
    m, k, many = (product(local[name] for name in names) for names in (rows, summed, batch))
    n: Number = 0
    for kernel in kernels:
        own = local_sizes(kernel.arrays, sizes, bench.mesh)
        n = n + product(own[name] for name in matmul_dims(kernel.arrays)[1])
    name = part_format(bench.plan, first.part)
    kind = FORMATS[name]
    flops = 2 * m * n * k * many
    seconds = matmul_seconds(m, n, k, name, bench.profile, many, replayed=True) * bench.engine.kernels.matmul
    issued = 1.0
    if bench.engine.kernels.quantise and name in DYNAMIC:
        seconds = seconds + bench.engine.kernels.quantise * quantise_seconds(m * many, k, name, bench.profile)
        issued = 1.0 + bench.engine.kernels.quantise
    moved = many * n * k * kind.weight
    return Work(first.part, flops, flops / bench.profile.peak(name), moved, seconds, issued)


def expert_work(kernels: list[Kernel], tokens: Number, sizes: dict[str, Number], bench: Bench) -> Work:
    """All products of a layer's experts, with the routing and adding up around them; `tokens` are those of all chips."""
    weight = kernels[0].arrays[-2]
    wide = next(name for name in weight.names if name in ("d", "dl"))
    experts, inner = sizes["e"], sizes["f"]
    hidden = sizes[wide] / bench.mesh.size(*next(dim.axes for dim in weight.dims if dim.name == wide))
    chips, slices = bench.mesh.size("data", "expert"), bench.mesh.size("tensor", "share")
    name = part_format(bench.plan, "experts")
    gated = len(kernels) > 2
    routing = bench.engine.experts.routing
    tables = bench.profile.grouped.of(name)
    load = route(tokens, sizes["x"], experts, chips, routing)
    chosen = next((one for one in bench.engine.experts.kernels.split() if one in tables or one == "plain"), "")
    if chosen == "plain":
        seconds = _plain_experts(load, hidden, inner / slices, gated, name, bench.profile)
    else:
        seconds = grouped_matmul_seconds(
            tokens, hidden, inner, sizes["x"], experts, name, bench.profile, chips=chips, tensor=slices,
            routing=routing, gated=gated, implementation=chosen,
        )  # fmt: skip
    each = (3 if gated else 2) * hidden * inner / slices
    flops = 2 * each * tokens * sizes["x"] / chips
    kind = FORMATS[name]
    moved = each * kind.weight * load.active
    return Work(
        "experts",
        flops,
        flops / bench.profile.peak(name),
        moved,
        seconds * bench.engine.experts.slowdown,
        EXPERT_KERNELS,
    )


def _plain_experts(load: Load, hidden: Number, inner: Number, gated: bool, name: str, profile: KernelProfile) -> Number:
    """Experts as well tuned as plain products, one for each expert with work; rows are copied to their experts, back and
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


def _heads(kernel: Kernel, section: Section, bench: Bench, sizes: dict[str, Number]) -> _Heads:
    query, *cached, result = kernel.arrays
    several = local_sizes(kernel.arrays, sizes, bench.mesh)
    q_heads = product(several[name] for name in query.names[2:-1])
    keys = [array for array in cached if "s" in array.names or "m" in array.names]
    kv_heads = product(several[name] for name in keys[0].names[2:-1])
    dims = section.dims
    by_dim = {dim: sum(dims[array.names[-1]] for array in keys if dim in array.names) for dim in ("s", "m")}
    return _Heads(q_heads, kv_heads, max(by_dim.values()), dims[query.names[-1]], dims.get(result.names[-1], 0))


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


def decode_work(kernel: Kernel, section: Section, seen: Attended, sizes: dict[str, Number], bench: Bench) -> Work:
    """Attention of a few new tokens of each sequence against its cache."""
    heads = _heads(kernel, section, bench, sizes)
    laid = kernel.arrays[1]
    ways = {dim.name: bench.mesh.size(*dim.axes) for dim in laid.dims}
    batch = maximum(seen.batch / ways["b"], 1) if ways["b"] is not None else seen.batch
    split = ways.get("s", ways.get("m", 1))
    keys = seen_keys(section, kernel, seen.keys) / split
    element = dtype_bytes(bench.plan.kv) if kernel.part != "indexer" else 1.0
    moved = batch * keys * heads.keys * heads.element * element
    flops = 2 * batch * seen.queries * keys * heads.queries * (heads.query_size + heads.result_size)
    peak = bench.profile.peak("bf16")
    dtype = bench.plan.kv if kernel.part != "indexer" else "fp8"
    seconds = decode_attention_seconds(
        batch, keys, heads.queries * seen.queries, heads.keys, heads.element / 2, _cache_format(dtype), bench.profile
    )
    if bench.engine.kernels.shared_heads:
        seconds = seconds * _repeated(heads.queries / heads.keys, _cache_format(dtype), bench)
    seconds = maximum(seconds, flops / (peak * LATENT_RATE))
    launch = bench.profile.decode.of(_cache_format(dtype)).launch
    seconds = _under_engine(seconds, bench.engine.kernels.decode_attention, launch, flops / peak, moved, bench)
    return Work("scores", flops, flops / peak, moved, seconds, 2.0)


CACHE_BYTES = 21.7
"""Bytes that a core draws from the last-level cache in a clock: 1.69 times the memory's 3.35 TB/s over an H100's 132 cores
at 1.98 GHz, as its decode kernels were measured."""


def _repeated(group: Number, dtype: str, bench: Bench) -> Number:
    """How much longer reading a cache takes if each query head of a group reads it for itself: the first time from memory,
    then from the last-level cache, whose rate bounds it."""
    profile = bench.profile
    clock = float(profile.chip.structure.get("clock") or 0.0)
    rate = max(profile.bandwidth * profile.decode.of("bf16").cached, CACHE_BYTES * profile.cores * clock)
    again = group * (profile.bandwidth * profile.decode.of(dtype).bandwidth / rate)
    shared = group == 1
    for size in bench.engine.kernels.shared_heads:
        shared = shared | (group == size)
    return where(shared, 1.0, maximum(again, 1.0))


def _under_engine(
    seconds: Number, factor: float, launch: float, compute: Number, moved: Number, bench: Bench
) -> Number:
    """An attention kernel's seconds with the engine's factor, less what of its start is hidden, which is never more than the
    profile counts for it; its products are computed and its cache is read all the same."""
    own = (seconds - min(bench.engine.kernels.attention_overlap_s, launch)) * factor
    return maximum(own, compute, moved / bench.profile.bandwidth)


def _cache_format(dtype: str) -> str:
    return {"int8": "fp8", "fp16": "bf16"}.get(dtype, dtype if dtype in FORMATS else "fp8")


def prompt_work(kernel: Kernel, section: Section, seen: Attended, sizes: dict[str, Number], bench: Bench) -> Work:
    """Attention of the new tokens of prompts against themselves and what was cached before."""
    heads = _heads(kernel, section, bench, sizes)
    query = kernel.arrays[0]
    ways = {dim.name: bench.mesh.size(*dim.axes) for dim in query.dims}
    batch, queries = maximum(seen.batch / ways["b"], 1), seen.queries / ways.get("t", 1)
    caps = [cap for cap in (section.span, section.chunk) if cap is not None]
    caps += [section.top] if section.top is not None and kernel.function == "attend" else []
    work = Workload(batch, queries, seen.keys)
    shared = product(bench.mesh.size(*dim.axes) for dim in query.dims if dim.name not in ("b", "t"))
    flops = op_flops(section, kernel.op, work) / shared
    dtype = bench.attention_dtype
    moved = batch * (seen.keys - seen.queries) * heads.keys * heads.element * dtype_bytes(bench.plan.kv)
    size = heads.element / 2 if not heads.result_size else (heads.query_size + heads.result_size) / 2
    window = min(caps) if caps else None
    if bench.engine.kernels.flash:
        seconds = attention_seconds(
            batch, queries, seen.keys, heads.queries, heads.keys, size, dtype, bench.profile, window=window
        )
    else:
        seconds = _unfused(batch, queries, seen.keys, heads, bench.profile)
    slow = bench.engine.kernels.prefill_attention
    compute = flops / bench.profile.peak(dtype)
    seconds = _under_engine(seconds, slow, bench.profile.attention.of(dtype).launch, compute, moved, bench)
    return Work("scores", flops, compute, moved, seconds, 2.0)


SQUARE_BYTES = 10.0
"""Bytes moved for each score that is written out: in fp16 by the product, read and written by the softmax, read again."""


def _unfused(batch: Number, queries: Number, keys: Number, heads: _Heads, profile: KernelProfile) -> Number:
    many = batch * heads.queries
    first = matmul_seconds(queries, keys, heads.query_size, "bf16", profile, many)
    second = matmul_seconds(queries, heads.result_size, keys, "bf16", profile, many)
    return first + second + memory_seconds(many * queries * keys * SQUARE_BYTES, profile)


def recurrent_work(
    kernel: Kernel, section: Section, tokens: Number, sequences: Number, sizes: dict[str, Number], bench: Bench
) -> Work:
    """A recurrence: its state is read and written once for every sequence, its tokens pass through."""
    *inputs, _ = kernel.arrays
    state = kernel.op.inputs[-1]
    laid = next(array for array in inputs if array.name == state.name)
    places = bench.mesh.size(*next(dim.axes for dim in laid.dims if dim.name == "b"))
    elements = bench.size(laid, sizes | {"b": maximum(sequences, places)})
    passing = sum(bench.size(array, sizes) for array in kernel.arrays if array.name != state.name)
    states = 2 * elements * dtype_bytes(state.dtype or "bf16")
    shared = product(bench.mesh.size(*dim.axes) for dim in laid.dims)
    flops = op_flops(section, kernel.op, Workload(tokens, 1, 1)) / shared
    peak = bench.profile.peak("bf16")
    seconds = maximum(memory_seconds(states + passing * 2, bench.profile), flops / (peak * SCAN_RATE))
    return Work("scores", flops, flops / peak, states, seconds * bench.engine.kernels.decode_attention, 2.0)


FUSED = ("add", "bias", "route", "dispatch", "combine", "join", "pool")
"""Lines that need no kernel of their own: sums ride on the norm after them, biases on products, routing on the experts."""


def pointwise_work(kernel: Kernel, sizes: dict[str, Number], bench: Bench) -> Work:
    """Norms, nonlinearities, convolutions, rotary embeddings with the writing of the cache."""
    if kernel.function in FUSED:
        return Work("pointwise", issued=0.0)
    if kernel.function == "cache":
        grown = [array for array in kernel.arrays if "s" in array.names or "m" in array.names]
        if not grown:
            return Work("pointwise", issued=0.0)
        moved: Number = 0.0
        for array in grown:
            elements = local_elements(array, sizes, bench.mesh, without=("s", "m"))
            moved = moved + elements * (2 + dtype_bytes(bench.plan.kv))
    else:
        moved = sum(bench.size(array, sizes) for array in kernel.arrays) * 2.0
    seconds = memory_seconds(moved, bench.profile) * bench.engine.kernels.elementwise
    return Work("pointwise", seconds=seconds, issued=bench.engine.kernels.elementwise)
