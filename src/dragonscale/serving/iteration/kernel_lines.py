"""What one kernel of an iteration does on one chip: a line with its FLOPs, its bytes, and its expected seconds.

Bounds and expectations come from the same line. A kernel takes at least its FLOPs at the peak and its bytes at the
memory's bandwidth, both from the datasheet; the expectation comes from the chip's kernel profile and the engine's
settings. On symbols there are only bounds, since profiles know tiles and waves. Attention is in `attention_lines.py`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dragonscale.models.count import weight_size
from dragonscale.models.flops import Workload, op_flops
from dragonscale.physics.hardware.chip import dtype_bytes
from dragonscale.physics.kernels import (
    KernelProfile,
    grouped_matmul_seconds,
    launch_seconds,
    matmul_seconds,
    memory_seconds,
    quantise_seconds,
)
from dragonscale.physics.kernels.dtypes import FORMATS
from dragonscale.physics.kernels.profile import EXPERT_CALLS, Grouped
from dragonscale.physics.kernels.routing import Load, route
from dragonscale.physics.numbers import Number, maximum, product, where
from dragonscale.physics.sharding.layout import local_elements, local_sizes
from dragonscale.physics.stored_formats import stored_bytes
from dragonscale.plan.reader import Kernel
from dragonscale.serving.engine.engine_settings import EngineExperts
from dragonscale.serving.engine.formats import part_format
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.iteration.balance import expert_slots
from dragonscale.serving.iteration.compiled import capacity_work
from dragonscale.serving.iteration.iteration import ServingLine
from dragonscale.serving.iteration.kernel_times import KernelBench

DYNAMIC = ("fp8_block", "mxfp8", "nvfp4", "mxfp4", "mxfp4_mxfp8", "fp4")
"""Formats whose activations need a scale for every few elements, computed while serving: one more kernel unless it is
fused into the one before. With one static scale for a tensor, the kernel before writes the narrow format itself."""
SCAN_RATE = 0.25
"""The fraction of the peak that chunked linear attention reaches: matmuls of 64 rows between elementwise work."""


def kernel_names(kernels: Iterable[Kernel]) -> str:
    """The outputs of some kernels, by their names in the program."""
    return "+".join(kernel.op.output.name for kernel in kernels if kernel.op.output is not None)


def matmul_line(kernels: list[Kernel], sizes: dict[str, Number], bench: KernelBench) -> ServingLine:
    """Matmuls that read the same tensor, as one kernel: (m, k) x (k, n), `batch` times."""
    first = kernels[0]
    row_dims, _, summed_dims, batch_dims, _ = first.matmul
    local = local_sizes(first.arrays, sizes, bench.mesh)
    rows, k, batch = (product(local[name] for name in names) for names in (row_dims, summed_dims, batch_dims))
    m = bench.rows(rows)
    n: Number = 0  # the columns of all of them
    for kernel in kernels:
        local = local_sizes(kernel.arrays, sizes, bench.mesh)
        n = n + product(local[name] for name in kernel.matmul[1])
    weight_bytes = _mean_bytes(kernels, bench)
    name = part_format(bench.plan, first.part)
    dtype, habits, profile = FORMATS[name], bench.engine.kernels, bench.profile
    issued, seconds = 1.0, 0.0
    if bench.timed:
        seconds = (
            matmul_seconds(m, n, k, name, profile, batch, replayed=True, weight_bytes=weight_bytes) * habits.matmul
        )
        if habits.widening and dtype.weight < dtype.activation:
            # weights are widened first, then multiplied as wide ones
            wide = matmul_seconds(m, n, k, dtype.compute, profile, batch, replayed=True) * habits.matmul
            seconds = where(rows > habits.widening_rows, wide * habits.widening, seconds)
        if bench.engine.program.loop_s and first.part != "head":
            # XLA turns a matmul of one row into a loop that reads the weights
            read = memory_seconds(batch * n * k * dtype.weight, profile)
            seconds = where(rows == 1, read + bench.engine.program.loop_s * len(kernels), seconds)
    if habits.quantise and name in DYNAMIC:
        issued = 1.0 + habits.quantise
        if bench.timed:
            seconds = seconds + habits.quantise * quantise_seconds(m * batch, k, name, profile)
    if first.part == "shared" and bench.phase == "decode" and bench.engine.experts.shared_beside:
        seconds = 0.0  # runs beside the routed experts; its weights are still read, since a line respects its bound
    flops, moved = 2 * m * n * k * batch, batch * n * k * weight_bytes
    return bench.line(kernel_names(kernels), "matmul", first.part, first.part, name, flops, moved, seconds, issued)


def _mean_bytes(kernels: Sequence[Kernel], bench: KernelBench) -> float:
    """Bytes of a weight, on average over the matmuls of some kernels; files of weights mix formats."""
    if stored_bytes(bench.plan.weights) is None:
        return FORMATS[part_format(bench.plan, kernels[0].part)].weight
    total = stored = 0.0
    for kernel in kernels:
        for weight in kernel.op.weights:
            elements = weight_size(bench.section, weight)
            total += elements
            stored += elements * bench.stored(kernel.part, weight.name)
    return stored / total


def expert_kernels(habits: EngineExperts, tables: dict[str, Grouped]) -> str:
    """The library whose grouped matmuls an engine runs: the first of its own that the profile's `tables` have for the
    format, or else the profile's first."""
    return next((name for name in habits.kernels.split() if name in tables or name == "plain"), next(iter(tables)))


def expert_calls(habits: EngineExperts, plan: ServingPlan, profile: KernelProfile) -> float:
    """The fraction of a layer of experts that the host issues call by call; below 1 where the library fuses calls."""
    tables = profile.grouped.of(part_format(plan, "experts"))
    chosen = tables.get(expert_kernels(habits, tables))
    return 1.0 if chosen is None else chosen.calls / EXPERT_CALLS


def expert_line(
    kernels: list[Kernel], tokens: Number, sizes: dict[str, Number], bench: KernelBench, hot: Number = 1.0
) -> ServingLine:
    """All matmuls of a layer's experts, with the routing and the weighted sum around them.

    `tokens` are those of all chips together; the busiest chip has `hot` times its even share.
    """
    weight = kernels[0].arrays[-2]
    model_dim = "d" if "d" in weight.names else "dl"  # the model's width, or a latent's
    hidden = sizes[model_dim] / bench.mesh.size(*weight.dim(model_dim).axes)
    chips, slices = bench.mesh.size("data", "expert"), bench.mesh.size("tensor", "share")
    inner = sizes["f"] / slices  # each expert's hidden layer is sliced over the tensor ranks
    habits, widening = bench.engine.experts, bench.engine.kernels.widening
    experts = sizes["e"]
    if bench.exchange:
        experts = expert_slots(experts, chips, habits.redundant)
    load = route(tokens, sizes["x"], experts, chips, habits.routing)
    gated = len(kernels) > 2
    weights = (3 if gated else 2) * hidden * sizes["f"] / slices  # of one expert on one chip
    name = part_format(bench.plan, "experts")
    dtype = FORMATS[name]
    widened = dtype.weight < dtype.activation and widening > 0
    timed_as = dtype.compute if widened else name
    stored = _mean_bytes(kernels, bench)
    flops, seconds = 2 * weights * tokens * sizes["x"] / chips, 0.0
    capacity = bench.engine.program.expert_capacity
    if capacity:
        work = capacity_work(kernels, tokens, bench)
        flops, seconds = work.flops, work.seconds
    elif bench.timed:
        tables = bench.profile.grouped.of(timed_as)
        library = expert_kernels(habits, tables)
        if library == "plain":
            busiest = replace(load, rows=load.rows * hot)
            seconds = _plain_experts(busiest, hidden, inner, gated, timed_as, bench.profile, stored)
            seconds = seconds + launch_seconds(bench.profile, habits.small_kernels)
        else:
            seconds = grouped_matmul_seconds(
                tokens * hot,
                hidden,
                sizes["f"],
                sizes["x"],
                experts,
                timed_as,
                bench.profile,
                chips=chips,
                tensor=slices,
                routing=habits.routing,
                gated=gated,
                implementation=library,
            )
            # in a graph at most the launch overlaps with the kernels before
            seconds = seconds - min(habits.overlap_s, tables[library].launch)
        if widened:
            seconds = seconds * widening
            if bench.phase == "prefill":
                # prompts first write all weights out in the wider format
                both = weights * experts / chips * (dtype.weight + FORMATS[timed_as].weight)
                seconds = seconds + memory_seconds(both, bench.profile)
    read = experts / chips if capacity else load.active  # experts of a chip that have work
    moved = weights * stored * read
    seconds = seconds * habits.slowdown
    parts = (kernel_names(kernels), "grouped matmul", "experts", "experts")
    return bench.line(*parts, name, flops, moved, seconds, EXPERT_CALLS)


def _plain_experts(
    load: Load, hidden: Number, inner: Number, gated: bool, name: str, profile: KernelProfile, stored: float
) -> Number:
    """Experts tuned as well as plain matmuls: one matmul for each active expert, plus the copies of rows around.

    `stored` are the bytes of a weight.
    """
    rows = load.rows / load.active
    into = 2 * inner if gated else inner
    up_s = matmul_seconds(rows, into, hidden, name, profile, load.active, weight_bytes=stored, experts=True)
    down_s = matmul_seconds(rows, hidden, inner, name, profile, load.active, weight_bytes=stored, experts=True)
    # Rows are copied to their experts, back and added up (read and written, 16 bits); the nonlinearity passes over the
    # hidden layer.
    passes = 6 if gated else 4
    return up_s + down_s + memory_seconds(load.rows * (8 * hidden + passes * inner), profile)


def recurrent_line(
    kernel: Kernel, tokens: Number, sequences: Number, sizes: dict[str, Number], bench: KernelBench
) -> ServingLine:
    """A recurrence: every sequence's state is read and written once, and its tokens pass through."""
    state = kernel.op.inputs[-1]
    layout = next(array for array in kernel.arrays[:-1] if array.name == state.name)
    ranks = bench.mesh.size(*layout.dim("b").axes)
    elements = bench.size(layout, sizes | {"b": maximum(sequences, ranks)})
    state_bytes = 2 * elements * dtype_bytes(state.dtype or "bf16")
    ways = product(bench.mesh.size(*dim.axes) for dim in layout.dims)
    flops = op_flops(bench.section, kernel.op, Workload(tokens, 1, 1)) / ways
    seconds: Number = 0.0
    if bench.timed:
        inputs = sum(bench.size(array, sizes) for array in kernel.arrays if array.name != state.name)
        peak = bench.profile.peak("bf16")
        seconds = maximum(memory_seconds(state_bytes + inputs * 2, bench.profile), flops / (peak * SCAN_RATE))
    seconds = seconds * bench.engine.kernels.decode_attention
    parts = (kernel_names([kernel]), "recurrence", kernel.part, "scores")
    return bench.line(*parts, "bf16", flops, state_bytes, seconds, 2.0)


FUSED = ("add", "bias", "route", "dispatch", "combine", "join", "pool")
"""Functions without a kernel of their own: sums are fused into the norm after them, biases into matmuls, routing into
the experts."""


def elementwise_line(kernels: Sequence[Kernel], sizes: dict[str, Number], bench: KernelBench) -> ServingLine | None:
    """A norm, nonlinearity, convolution, or rotary embedding with the write of the cache; None if it is fused."""
    (kernel,) = kernels
    if kernel.function in FUSED:
        return None
    engine = bench.engine
    moved: Number = 0.0
    if kernel.function == "cache":
        growing = [array for array in kernel.arrays if "s" in array.names or "m" in array.names]
        if not growing:
            return None
        for array in growing if bench.timed else ():
            # only the new tokens' entries, read in 16 bits and written in the cache's format
            elements = local_elements(array, sizes, bench.mesh, without=("s", "m"))
            moved = moved + elements * (2 + dtype_bytes(bench.plan.kv))
    elif bench.timed:
        moved = sum(bench.size(array, sizes) for array in kernel.arrays) * 2.0
    factor: Number = engine.kernels.elementwise
    residual_norm = kernel.function == "norm" and any(array.names[-1] == "d" for array in kernel.arrays)
    if bench.phase == "decode":
        if engine.kernels.fused and kernel.function in ("act", "norm") and not residual_norm:
            factor = where(bench.plan.chips == 1, 0.0, factor)
        if engine.collectives.norms and residual_norm:
            # fused into the AllReduce before it
            factor = where(bench.mesh.size("tensor", "share") > 1, 0.0, factor)
    seconds = memory_seconds(moved, bench.profile) * factor if bench.timed else 0.0
    name = kernel_names([kernel]) or "+".join(array.name for array in kernel.arrays)
    return bench.line(name, "elementwise", kernel.part, "elementwise", seconds=seconds, issued=factor)
