"""Expected seconds of one dense matmul, C[m, n] = A[m, k] · B[k, n].

A library cuts C into tiles and hands them out to the cores, a wave at a time. A tile of a x b takes

    2 (a·b + operands·(a + b)) (k + prologue) / (rate · peak / cores)

seconds: its matmuls, the fetching of its operands, the filling and draining of its pipeline. The waves are counted in
whole ones to the extent that `quantum` says; or the contraction is split so that all cores work to the end, at the
price of `join` seconds for adding up. The library is taken to choose the best of a handful of tiles. Long kernels slow
down as power runs out. Memory moves each operand once at a fraction of the datasheet's bandwidth; the shorter of
compute and memory hides behind the longer but for `unhidden`. Never faster than the roofline of the datasheet.

Long arrays in blocks: temporary results of a formula then stay in the processor's cache, which is several times
faster.

Work that only moves bytes, and the least that any kernel takes.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from dragonscale.physics.kernels.dtypes import FORMATS, format_name
from dragonscale.physics.kernels.profile import KernelProfile, Matmul
from dragonscale.physics.numbers import Number, ceil, ceil_to, is_array, maximum, minimum, where, widened


def matmul_seconds(
    m: Number,
    n: Number,
    k: Number,
    dtype: str,
    profile: KernelProfile,
    batch: Number = 1,
    out_bytes: float = 2,
    replayed: bool = False,
) -> Number:
    """Seconds of `batch` independent matmuls of m x k by k x n in one kernel, activations already in their format.

    `out_bytes` are those of an element of the result. `replayed` from a graph, a kernel that was only measured under
    the pace of the host is taken to start as quickly as the chip's plain fp8 ones.

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
    formula = partial(_seconds, name=name, table=table, profile=profile, out_bytes=out_bytes)
    return evaluate(formula, m, n, k, batch)


def _seconds(
    m: Number, n: Number, k: Number, batch: Number, name: str, table: Matmul, profile: KernelProfile, out_bytes: float
) -> Number:
    kind, peak = FORMATS[name], profile.peak(name)
    moved = ((m * k) * kind.activation + (n * k) * kind.weight + (m * n) * out_bytes) * batch
    compute = tiles_seconds(m, n, k, batch, table, 2 * profile.cores / peak / table.rate, profile.cores)
    slow = 1 / table.sustained - 1
    if slow > 0:
        compute = compute + slow * compute * compute / (compute + table.throttle)
    memory = moved / (profile.bandwidth * table.bandwidth)
    expected = table.launch + maximum(compute, memory) + table.unhidden * minimum(compute, memory)
    return maximum(expected, (2 / peak) * (m * n * (k * batch)), moved / profile.bandwidth)


def tiles_seconds(m: Number, n: Number, k: Number, batch: Number, table: Matmul, unit: float, cores: float) -> Number:
    """Seconds of the best choice of tiles; `unit` are those of one multiplication on one core."""
    depth = ceil_to(k, table.pad) if table.pad > 1 else k
    if table.pad_rows:
        m = where(m > table.pad_rows / 2, ceil_to(m, table.pad_rows), m)
    down = {rows: ceil(m / rows) * (batch / cores) for rows, _ in table.tiles}
    across = {columns: ceil(n / columns) for _, columns in table.tiles}
    waves: Number = None
    split: Number = None
    for rows, columns in table.tiles:
        size = unit * (rows * columns + table.operands * (rows + columns))
        per_core = down[rows] * across[columns]
        whole = ceil(per_core) * table.quantum + per_core * (1 - table.quantum) if table.quantum else per_core
        waves = whole * size if waves is None else minimum(waves, whole * size)
        if table.join:
            joint = (per_core * (depth + table.prologue) + table.prologue) * size
            split = joint if split is None else minimum(split, joint)
    once = waves * (depth + table.prologue)
    return once if split is None else minimum(once, split + table.join)


def quantise_seconds(rows: Number, width: Number, dtype: str, profile: KernelProfile) -> Number:
    """Seconds to bring bf16 activations of rows x width to a narrow format, scale by scale, in a kernel of its own.

    Nothing for formats that need no such step, or where the profile knows nothing of it.
    """
    name = format_name(dtype)
    table, kind = profile.matmul.of(name), FORMATS[name]
    if kind.activation >= 2:
        return rows * 0.0
    moved = rows * width * (2 + kind.activation)
    return table.quantise_launch + rows * table.quantise_row + moved * (table.quantise_passes / profile.bandwidth)


def dispatch_seconds(rows: Number, dtype: str, profile: KernelProfile) -> Number:
    """Seconds of the host for one call without graphs: a floor under what a benchmark sees, gone where
    graphs are used."""
    table = profile.matmul.of(dtype)
    return where(rows < 32, table.dispatch_few, table.dispatch)


BLOCK = 16_384
"""Elements of a block: 128 KiB of floats."""


def evaluate(formula: Callable[..., Number], *values: Number) -> Number:
    """`formula(*values)` element by element; the values are numbers, symbols or arrays that broadcast together.

    >>> import numpy
    >>> evaluate(lambda a, b: a * b, numpy.arange(40_000), 2).sum()
    np.float64(1599960000.0)
    """
    values = tuple(widened(value) for value in values)
    arrays = [value for value in values if is_array(value)]
    if not arrays or (max(array.size for array in arrays) <= BLOCK and len({array.shape for array in arrays}) == 1):
        return formula(*values)
    import numpy

    shape = numpy.broadcast_shapes(*(array.shape for array in arrays))
    flat = [numpy.broadcast_to(value, shape).reshape(-1) if is_array(value) else value for value in values]
    size = next(value.size for value in flat if is_array(value))
    result = numpy.empty(size)
    for start in range(0, size, BLOCK):
        part = slice(start, start + BLOCK)
        result[part] = formula(*(value[part] if is_array(value) else value for value in flat))
    return result.reshape(shape)


def memory_seconds(size: Number, profile: KernelProfile) -> Number:
    """Seconds of a kernel that reads and writes `size` bytes in all and computes next to nothing.

    >>> from dragonscale.physics.kernels.profile_file import kernel_profile_for
    >>> from dragonscale.physics.hardware import load_chip
    >>> 8e9 / memory_seconds(8e9, kernel_profile_for(load_chip("h200"))) / 4.8e12
    0.8...
    """
    return profile.stream.launch + size / (profile.bandwidth * profile.stream.bandwidth)


def launch_seconds(profile: KernelProfile, kernels: Number = 1) -> Number:
    """Seconds that so many kernels take even if they do nothing, one after the other inside a graph."""
    return profile.stream.launch * kernels
