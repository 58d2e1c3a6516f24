"""The cost of einsums.

Bytes are exact by default: every operand read once and the result written once, each in its own dtype. The book's
small-batch rule of thumb, which counts the weights alone, is `counted=(1,)`. FLOPs are the usual 2·(product of dims);
`exact=True` leaves out the one addition that each sum does not need.
"""

from collections.abc import Sequence

from dragonscale.physics.hardware import dtype_bytes
from dragonscale.physics.notation import Array, Einsum
from dragonscale.physics.numbers import Number, product, widened
from dragonscale.physics.rooflines.cost import Cost


def array_bytes(array: Array, sizes: dict[str, Number], dtype: str = "bf16") -> Number:
    """Bytes of a whole array."""
    return product(sizes[dim.name] for dim in array.dims) * dtype_bytes(array.dtype or dtype)


def compute_dtype(line: Einsum, default: str = "bf16") -> str:
    """The dtype that the multiplication runs in: the widest of the operands (int8 weights are multiplied with bf16
    activations as bf16)."""
    return max((array.dtype or default for array in line.operands), key=dtype_bytes)


def all_sizes(line: Einsum, sizes: dict[str, Number]) -> dict[str, Number]:
    """The sizes that a line states, and those given for it, which go before."""
    return line.sizes | {name: widened(size) for name, size in sizes.items()}


def moved_bytes(line: Einsum, sizes: dict[str, Number], counted: Sequence[int] | None = None) -> Number:
    """Bytes of the arrays of a line, each once, or of those at the `counted` positions (the result is the last)."""
    arrays = line.arrays
    if counted is not None:
        arrays = tuple(arrays[position] for position in counted)
    return sum(array_bytes(array, sizes) for array in arrays)


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
    matrix unit; an einsum that sums nothing is elementwise and runs on the vector unit.

    >>> from dragonscale.physics.notation import parse_einsum
    >>> cost = einsum_cost(parse_einsum("bf16[B=64, D=4096] @ bf16[D, F=8192]"))
    >>> cost.total_flops, cost.bytes["hbm"]
    (4294967296, 68681728)
    """
    sizes = all_sizes(line, sizes or {})
    moved = moved_bytes(line, sizes, counted)
    flops = line.flops(sizes)
    if exact and line.contracted:
        flops = flops - product(sizes[name] for name in line.output.names)  # n products need n - 1 additions
    if not unit:
        unit = "matrix" if line.contracted and len(line.operands) > 1 else "vector"
    if not compute:
        compute = compute_dtype(line) if unit == "matrix" else "fp32"
    return Cost(flops={(unit, compute): flops}, bytes={level: moved})
