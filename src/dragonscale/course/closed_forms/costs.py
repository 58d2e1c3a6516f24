"""Costs that the book writes in closed form: elementwise work, tiled matmuls, attention, padding to a tile."""

from collections.abc import Sequence
from typing import NamedTuple

from dragonscale.errors import InputError
from dragonscale.physics.hardware import Chip, dtype_bytes
from dragonscale.physics.hardware.parts import matrix_tile
from dragonscale.physics.numbers import Number, ceil_to, product
from dragonscale.physics.rooflines import Cost


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


class PaddedShape(NamedTuple):
    """A shape rounded up to a tile, and the part of it that is useful."""

    shape: tuple[Number, ...]
    useful: Number


def padded(shape: Sequence[Number], tile: Sequence[int] | Chip) -> PaddedShape:
    """A shape rounded up to a tile, or to the MXU of a chip in its last two dims, and the part of the padded work that
    is useful.

    >>> padded((64, 128), (128, 128))
    PaddedShape(shape=(128, 128), useful=0.5)
    """
    if isinstance(tile, Chip):
        tile = ((1,) * len(shape) + matrix_tile(tile))[-len(shape) :]
    if len(shape) != len(tile):
        raise InputError(f"A shape of {len(shape)} sizes and a tile of {len(tile)} do not fit; give as many of each.")
    rounded = tuple(ceil_to(size, side) for size, side in zip(shape, tile, strict=True))
    return PaddedShape(rounded, product(shape) / product(rounded))
