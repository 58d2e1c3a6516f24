"""Expected seconds of one dense matmul, C[m, n] = A[m, k] · B[k, n].

A library cuts C into tiles and hands them out to the cores, a wave at a time. A tile of a x b takes

    2 (a·b + operands·(a + b)) (k + prologue) / (rate · peak / cores)

seconds: its matmuls, the fetching of its operands, the filling and draining of its pipeline. Waves are quantised
(`waves`); or the contraction is split (split-K, stream-K) so that all cores work to the end, at the price of `join`
seconds for adding up the parts. The library is taken to choose the best of a handful of tiles. Long kernels slow down
as the chip reaches its power limit. Memory moves each operand once at a fraction of the datasheet's bandwidth. The
shorter of compute and memory overlaps with the longer, but for the fraction `unhidden`. No matmul is faster than the
datasheet's roofline.
"""

import math
from dataclasses import replace
from functools import partial

from dragonscale.physics.kernels.blockwise import evaluate
from dragonscale.physics.kernels.dtypes import FORMATS, format_name
from dragonscale.physics.kernels.profile import KernelProfile, Matmul
from dragonscale.physics.kernels.waves import overlapped, waves
from dragonscale.physics.numbers import Number, ceil, ceil_to, maximum, minimum, where


def matmul_seconds(
    m: Number,
    n: Number,
    k: Number,
    dtype: str,
    profile: KernelProfile,
    batch: Number = 1,
    out_bytes: float = 2,
    replayed: bool = False,
    weight_bytes: float | None = None,
    experts: bool = False,
) -> Number:
    """Seconds of `batch` independent matmuls of m x k by k x n in one kernel, activations already in their format.

    `out_bytes` are the bytes of an element of the result, `weight_bytes` those of a weight where files mix formats.
    `experts` are matmuls of an MoE's experts in one kernel. A kernel that was only measured at the host's pace is taken
    to start as quickly as the chip's plain fp8 kernels where it is `replayed` from a graph.

    >>> from dragonscale.physics.kernels.profile_file import kernel_profile_for
    >>> from dragonscale.physics.hardware import load_chip
    >>> h100 = kernel_profile_for(load_chip("h100"))
    >>> 2 * 8192 * 8192 * 8192 / matmul_seconds(8192, 8192, 8192, "bf16", h100) / 989.5e12
    0.7...
    """
    name = format_name(dtype)
    table = profile.matmul.of(name)
    if replayed and table.dispatch:
        table = replace(table, launch=min(table.launch, profile.matmul.of("fp8").launch))
    if experts and table.experts != 1:
        table = replace(table, rate=table.rate * table.experts, core_flops=table.core_flops * table.experts)
    stored = FORMATS[name].weight if weight_bytes is None else weight_bytes
    formula = partial(_seconds, name=name, table=table, profile=profile, element_bytes=(stored, out_bytes))
    return evaluate(formula, m, n, k, batch)


def _seconds(
    *sizes: Number, name: str, table: Matmul, profile: KernelProfile, element_bytes: tuple[float, float]
) -> Number:
    m, n, k, batch = sizes
    peak, (weight_bytes, out_bytes) = profile.peak(name), element_bytes
    read = (n * k) * weight_bytes * batch
    moved = read + ((m * k) * FORMATS[name].activation + (m * n) * out_bytes) * batch
    multiply_s = 2 * profile.cores / peak / table.rate  # of one multiply-add on one core
    if table.core_flops:
        multiply_s = max(multiply_s, 2 / (table.core_flops * profile.clock))
    compute = tiles_seconds(m, n, k, batch, table, multiply_s, profile.cores)
    slowdown = 1 / table.sustained - 1
    if slowdown > 0:
        # power throttling: none for short kernels, all of it for those much longer than `throttle`
        compute = compute + slowdown * compute * compute / (compute + table.throttle)
    if table.core_bytes:
        # unpacking weights keeps the cores busy, whatever they are multiplied with
        compute = maximum(compute, read / (table.core_bytes * profile.clock * profile.cores))
    memory = moved / (profile.bandwidth * table.bandwidth)
    expected = table.launch + overlapped(compute, memory, table.unhidden)
    return maximum(expected, (2 / peak) * (m * n * (k * batch)), moved / profile.bandwidth)


def tiles_seconds(
    m: Number, n: Number, k: Number, batch: Number, table: Matmul, multiply_s: float, cores: float
) -> Number:
    """Seconds of compute with the best tiles; `multiply_s` are those of one multiply-add on one core."""
    depth = ceil_to(k, table.pad) if table.pad > 1 else k
    if table.pad_rows:
        m = where(m > table.pad_rows / 2, ceil_to(m, table.pad_rows), m)
    # tiles down and across C; shared by tiles of the same height or width, as arrays over plans are long
    down = {rows: ceil(m / rows) * (batch / cores) for rows, _ in table.tiles}
    across = {columns: ceil(n / columns) for _, columns in table.tiles}
    best_waves: Number = math.inf  # seconds for one step of the contraction
    best_split: Number = math.inf
    for rows, columns in table.tiles:
        step_s = multiply_s * (rows * columns + table.operands * (rows + columns))
        per_core = down[rows] * across[columns]
        rounds = waves(per_core, table.quantum) if table.quantum else per_core
        best_waves = minimum(best_waves, rounds * step_s)
        if table.join:
            # every core has the same share of all steps, and one more prologue where its share begins inside a tile
            best_split = minimum(best_split, (per_core * (depth + table.prologue) + table.prologue) * step_s)
    unsplit = best_waves * (depth + table.prologue)
    if not table.join:
        return unsplit
    return minimum(unsplit, best_split + table.join)


def quantise_seconds(rows: Number, width: Number, dtype: str, profile: KernelProfile) -> Number:
    """Seconds of a separate kernel that quantises bf16 activations of rows x width to a narrow format.

    Zero for formats that need no such kernel, or where the profile has no measurement of it.
    """
    name = format_name(dtype)
    table, format_ = profile.matmul.of(name), FORMATS[name]
    if format_.activation >= 2:
        return rows * 0.0  # in the shape of the rows
    moved = rows * width * (2 + format_.activation)  # read in bf16, written in the format
    return table.quantise_launch + rows * table.quantise_row + moved * (table.quantise_passes / profile.bandwidth)


def dispatch_seconds(rows: Number, dtype: str, profile: KernelProfile) -> Number:
    """Seconds that the host takes to launch one call without graphs: a floor under a kernel's time in a benchmark."""
    table = profile.matmul.of(dtype)
    return where(rows < 32, table.dispatch_few, table.dispatch)
