"""The cost of operations: einsums, dot products, pointwise work, tiled matmuls and attention.

Bytes are exact by default: every operand read once and the result written once, each in its own dtype. The book's
small-batch rule of thumb, which counts the weights alone, is `counted=(1,)`. FLOPs are the usual 2·(product of
dims); `exact=True` leaves out the one addition that each sum does not need.
"""

from collections.abc import Sequence

from dragonscale.hardware import dtype_bytes
from dragonscale.notation import Array, Einsum
from dragonscale.numbers import Number, ceil_to, product, widened
from dragonscale.roofline.cost import Cost


def array_bytes(array: Array, sizes: dict[str, Number], dtype: str = "bf16") -> Number:
    """Bytes of a whole array."""
    return product(sizes[dim.name] for dim in array.dims) * dtype_bytes(array.dtype or dtype)


def compute_dtype(line: Einsum, default: str = "bf16") -> str:
    """The dtype that the multiplication runs in: the widest of the operands (int8 weights meet bf16 activations as bf16)."""
    return max((array.dtype or default for array in line.operands), key=dtype_bytes)


def einsum_cost(
    line: Einsum,
    sizes: dict[str, Number] | None = None,
    *,
    level: str = "hbm",
    counted: Sequence[int] | None = None,
    exact: bool = False,
    compute: str = "",
    unit: str = "",
) -> Cost:
    """An einsum's FLOPs and the bytes it moves at one memory level.

    `counted` limits the bytes to some operands by position (the result is the last). A sum of products runs on the
    matrix unit; an einsum that sums nothing is pointwise and runs on the vector unit.

    >>> from dragonscale.notation import parse_einsum
    >>> cost = einsum_cost(parse_einsum("bf16[B=64, D=4096] @ bf16[D, F=8192]"))
    >>> cost.total_flops, cost.bytes["hbm"]
    (4294967296, 68681728)
    """
    sizes = line.sizes | {name: widened(size) for name, size in (sizes or {}).items()}
    arrays = (*line.operands, line.output)
    chosen = arrays if counted is None else [arrays[place] for place in counted]
    flops = line.flops(sizes)
    if exact and line.contracted:
        flops = flops - product(sizes[dim.name] for dim in line.output.dims)
    unit = unit or ("matrix" if line.contracted and len(line.operands) > 1 else "vector")
    dtype = compute or (compute_dtype(line) if unit == "matrix" else "fp32")
    return Cost(flops={(unit, dtype): flops}, bytes={level: sum(array_bytes(array, sizes) for array in chosen)})


def pointwise_cost(
    elements: Number, reads: int, writes: int, flops: Number, dtype: str = "fp32", level: str = "hbm"
) -> Cost:
    """Work on the vector unit: so many FLOPs per element, and arrays of that dtype read and written.

    >>> pointwise_cost(1024, reads=2, writes=1, flops=1).intensity()
    0.08333333333333333
    """
    moved = elements * (reads + writes) * dtype_bytes(dtype)
    return Cost(flops={("vector", dtype): elements * flops}, bytes={level: moved})


def tiled_matmul_cost(m: Number, k: Number, n: Number, tile: tuple[int, int, int], dtype: str = "bf16") -> Cost:
    """A matmul cut into tiles (bm, bk, bn) that are read from HBM once for each output tile that needs them."""
    bm, bk, bn = tile
    tiles_m, tiles_k, tiles_n = m / bm, k / bk, n / bn
    elements = tiles_m * tiles_n * (tiles_k * (bm * bk + bk * bn) + bm * bn)
    return Cost(flops={("matrix", dtype): 2 * m * k * n}, bytes={"hbm": elements * dtype_bytes(dtype)})


def attention_cost(
    batch: Number,
    queries: Number,
    keys: Number,
    kv_heads: Number,
    groups: Number,
    head_dim: Number,
    dtype: str = "bf16",
) -> Cost:
    """Flash attention, forward and without a mask: queries, keys, values and the result each cross HBM once.

    `groups` query heads share each KV head.

    >>> attention_cost(1, 1024, 1024, 8, 4, 128).intensity()
    819.2
    """
    flops = 4 * batch * queries * keys * kv_heads * groups * head_dim
    elements = 2 * batch * head_dim * kv_heads * (queries * groups + keys)
    return Cost(flops={("matrix", dtype): flops}, bytes={"hbm": elements * dtype_bytes(dtype)})


def padded(shape: Sequence[Number], tile: Sequence[int]) -> tuple[tuple[Number, ...], Number]:
    """A shape rounded up to the matrix unit's tile, and the part of the padded work that is useful.

    >>> padded((64, 128), (128, 128))
    ((128, 128), 0.5)
    """
    rounded = tuple(ceil_to(size, side) for size, side in zip(shape, tile, strict=True))
    return rounded, product(shape) / product(rounded)
