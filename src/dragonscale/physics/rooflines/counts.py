"""Work that is known only by its amounts: `1e15FLOP`, `2e12FLOP 3GB`, `2e12FLOP int8 3GB`.

>>> asked = parse_counts("2e12FLOP 3GB")
>>> asked.flops, asked.moved, asked.dtype
(2000000000000.0, 3000000000.0, 'bf16')
>>> parse_counts("bf16[B, D]") is None
True

FLOPs by the book's rule of thumb: 2 per parameter and token forward, 6 for training.

Every parameter of a matrix is multiplied and added once per token: 2 FLOPs. The backward pass does it twice, once for
the gradient of the activations and once for that of the weights. Hence 2·params·tokens forward and 6·params·tokens for
training. What it leaves out are attention's dot products, T/(8D) of the rest for a plain Transformer, and it counts an
embedding's rows only if `params` does. Recomputing the forward pass in the backward pass (rematerialisation) adds 2.

The cost of einsums.

Bytes are exact by default: every operand read once and the result written once, each in its own dtype. The book's
small-batch rule of thumb, which counts the weights alone, is `counted=(1,)`. FLOPs are the usual 2·(product of
dims); `exact=True` leaves out the one addition that each sum does not need.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dragonscale.errors import InputError, shorten
from dragonscale.physics.hardware import dtype_bytes
from dragonscale.physics.notation import Array, Einsum
from dragonscale.physics.notation.array import DTYPE_NAMES
from dragonscale.physics.numbers import Number, product, widened
from dragonscale.physics.rooflines.cost import Cost
from dragonscale.physics.units import UNITS, parse, render

_AMOUNT = re.compile(r"(?P<number>[-+]?[\d.][\d_.]*(?:[eE][-+]?\d+)?)\s*(?P<unit>[A-Za-z]+)")


@dataclass(frozen=True)
class GivenCounts:
    """FLOPs of a format on the matrix unit and bytes over one memory; either may be none."""

    flops: float
    moved: float
    dtype: str = "bf16"

    indices: tuple[str, ...] = ()
    axes: tuple[str, ...] = ()
    varied: tuple[str, ...] = ()

    def __str__(self) -> str:
        work = f"{render(self.flops, 'FLOP')} in {self.dtype}" if self.flops else ""
        return " and ".join(part for part in (work, render(self.moved, "bytes") if self.moved else "") if part)

    @property
    def sizes(self) -> dict[str, int]:
        return {}

    def cost(self, _sizes: dict[str, Number], level: str = "hbm", **_counting: object) -> Cost:
        """The amounts as a cost; there are no sizes to count by."""
        flops = {("matrix", self.dtype): self.flops} if self.flops else {}
        return Cost(flops=flops, bytes={level: self.moved} if self.moved else {})


def parse_counts(text: str) -> GivenCounts | None:
    """Amounts of FLOPs and bytes, with a format if one is named; None where the text is something else."""
    found = {"FLOP": 0.0, "bytes": 0.0}
    dtype, rest = "", text
    for match in _AMOUNT.finditer(text):
        dimension = next((name for name in found if match["unit"] in UNITS[name]), None)
        if dimension is None:
            return None
        found[dimension] += parse(match[0], dimension, "the amount")
        rest = rest.replace(match[0], " ", 1)
    for word in re.split(r"[\s,;+]+|\band\b|\bin\b", rest):
        if word in DTYPE_NAMES:
            dtype = word
        elif word:
            return None
    if not any(found.values()):
        return None
    if min(found.values()) < 0:
        raise InputError(f"{shorten(text)} has a negative amount; FLOPs and bytes are at least 0.")
    return GivenCounts(found["FLOP"], found["bytes"], dtype or "bf16")


MOST_RECOMPUTED = 2
"""Forward passes that a backward pass does again: 1 is all of it, 2 leaves room for a block done twice."""


def model_flops(active_params: Number, tokens: Number, training: bool = True, recomputed: Number = 0) -> Number:
    """2 FLOPs for each parameter, token and pass: 1 pass forward, 3 in training, and `recomputed` (0 to 1) done again.

    A model uses `active_params` parameters for each of `tokens` tokens. `recomputed` is the part of the forward pass
    that the backward pass repeats: 1, all of it, if only the inputs of blocks are kept. It is work, but not useful
    work: leave it out of a utilisation.

    >>> model_flops(37e9, 14.8e12)
    3.2856e+24
    >>> model_flops(1, 1, training=False), model_flops(1, 1), model_flops(1, 1, recomputed=1)
    (2, 6, 8)
    """
    if isinstance(recomputed, int | float) and not 0 <= recomputed <= MOST_RECOMPUTED:
        raise InputError(
            f"recomputed is {recomputed:g}; it counts forward passes that are done again, from 0 (nothing) to 1 "
            "(all of it)."
        )
    passes = 3 + recomputed if training else 1
    return 2 * passes * active_params * tokens


def array_bytes(array: Array, sizes: dict[str, Number], dtype: str = "bf16") -> Number:
    """Bytes of a whole array."""
    return product(sizes[dim.name] for dim in array.dims) * dtype_bytes(array.dtype or dtype)


def compute_dtype(line: Einsum, default: str = "bf16") -> str:
    """The dtype that the multiplication runs in: the widest of the operands (int8 weights meet bf16 activations as
    bf16)."""
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
    matrix unit; an einsum that sums nothing is elementwise and runs on the vector unit.

    >>> from dragonscale.physics.notation import parse_einsum
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
