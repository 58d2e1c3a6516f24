"""Matmuls of a few tokens on NVIDIA GPUs, as fast as the weights can be read: a Pallas kernel that keeps many loads under way.

With up to 64 tokens a matmul does nothing but read its weights. Programs have a block of columns each, and where these are too few
to fill the GPU also a part of the rows, whose sums are then added up by whatever XLA fuses with them. On an H200 LLaMA-3-8B's matmuls
take 5% less time than XLA's with one token, and 11% less with 64. Weights in int8 are widened on the chip.
"""

import functools
import math
import operator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as gpu

MOST = 64
"""Tokens beyond which XLA's matmuls are as fast."""


@dataclass(frozen=True)
class MatmulTile:
    """Columns and rows of the weights in a block, parts of the rows, warps, pipeline stages."""

    columns: int
    rows: int
    splits: int = 1
    warps: int = 4
    stages: int = 4


def few_tokens(text: str, x: jax.Array, weight: jax.Array) -> jax.Array | None:
    """An einsum as lines have them, if it is a matmul that this kernel takes; None otherwise."""
    (left, right), out = text.split("->")[0].split(","), text.split("->")[1]
    summed = "".join(letter for letter in left if letter in right)
    if not (
        left.endswith(summed)
        and right.startswith(summed)
        and out == left.removesuffix(summed) + right.removeprefix(summed)
    ):
        return None
    k = math.prod(weight.shape[: len(summed)])
    m, n = x.size // k, weight.size // k
    narrow = weight.dtype == jnp.int8
    if m > MOST and narrow:  # widened while it multiplies, XLA's matmul is far from the tensor cores' rate
        return jnp.einsum(text, x, _widened_ahead(weight, x.dtype))
    tile = tile_of(m, k, n, narrow)
    if m > MOST or x.dtype != jnp.bfloat16 or k % (tile.rows * tile.splits) or n % 16:
        return None
    made = skinny_matmul(x.reshape(m, k), weight.reshape(k, n), tile)
    return made.reshape(*x.shape[: len(left) - len(summed)], *weight.shape[len(summed) :])


def tile_of(m: int, k: int, n: int, narrow: bool = False) -> MatmulTile:
    """The cut that was fastest on an H200 for m tokens and weights [k, n]: one or two programs on each of its 132 SMs, and as many bytes
    under way of `narrow` (int8) weights as of others."""
    short = m > 16 and n <= 4224
    columns, rows = (64, 128) if short else (128, 64)
    rows *= 2 if narrow else 1
    programs, most = -(-n // columns), 132 if short else 200
    fitting = (each for each in (2, 4, 8) if programs * each <= most and k % (rows * each) == 0)
    return MatmulTile(columns, rows, max(fitting, default=1), stages=3 if short and narrow else 4)


def skinny_matmul(x: jax.Array, weight: jax.Array, tile: MatmulTile, interpret: bool = False) -> jax.Array:
    """x [M, K] · weight [K, N] of few rows M; K divides into the tile's parts."""
    m, n = x.shape[0], weight.shape[1]
    split = tile.splits > 1
    made = pl.pallas_call(
        functools.partial(_kernel, tile=tile),
        grid=(pl.cdiv(n, tile.columns), tile.splits),
        out_shape=jax.ShapeDtypeStruct((tile.splits, m, n), jnp.float32 if split else x.dtype),
        compiler_params=gpu.CompilerParams(num_warps=tile.warps, num_stages=tile.stages),
        interpret=interpret,
        name="skinny_matmul",
    )(x, weight)
    return functools.reduce(operator.add, made).astype(x.dtype)


def dot(one: jax.Array, other: jax.Array, turned: bool = False) -> jax.Array:
    """A product of blocks in a kernel, in fp32; with `turned` of the second one's rows."""
    dims = (((1,), (1 if turned else 0,)), ((), ()))
    return jax.lax.dot_general(one, other, dims, preferred_element_type=jnp.float32)


def widened(block: jax.Array, dtype: Any) -> jax.Array:
    """A block in a kernel in the type of its partner. int8 becomes float by integer arithmetic (the bits of 1.5·2²³ + x are those of
    1.5·2²³ plus x): conversions run at an eighth of its rate, and would take longer than the loads."""
    if block.dtype != jnp.int8:
        return block.astype(dtype)
    bits = block.astype(jnp.int32) + 0x4B400000
    return (jax.lax.bitcast_convert_type(bits, jnp.float32) - 12582912.0).astype(dtype)


def _widened_ahead(weight: jax.Array, dtype: Any, block: int = 8192) -> jax.Array:
    """A whole int8 weight, in a pass of its own."""
    if weight.size % block:
        return jax.lax.optimization_barrier(weight.astype(dtype))

    def kernel(given: Any, out: Any) -> None:
        out[...] = widened(given[...], dtype)

    spec = pl.BlockSpec((block,), lambda i: (i,))
    shape = jax.ShapeDtypeStruct((weight.size,), dtype)
    params = gpu.CompilerParams(num_warps=4, num_stages=1)
    call = pl.pallas_call(
        kernel, grid=(weight.size // block,), in_specs=[spec], out_specs=spec, out_shape=shape, compiler_params=params,
        name="widened",
    )  # fmt: skip
    return call(weight.reshape(-1)).reshape(weight.shape)


def _kernel(x: Any, weight: Any, out: Any, *, tile: MatmulTile) -> None:
    (m, k), n, part = x.shape, weight.shape[1], pl.program_id(1)
    tokens = jnp.arange(max(16, pl.next_power_of_2(m)))[:, None]
    columns = (pl.program_id(0) * tile.columns + jnp.arange(tile.columns))[None]
    # Masks only where they are needed: they cost instructions in the loop.
    real = {} if m == tokens.size else {"mask": tokens < m, "other": 0}
    inside = {} if n % tile.columns == 0 else {"mask": columns < n, "other": 0}
    each = k // tile.splits

    def step(index: Any, total: jax.Array) -> jax.Array:
        rows = part * each + index * tile.rows + jnp.arange(tile.rows)
        left = gpu.load(x.at[tokens, rows[None]], **real)
        block = gpu.load(weight.at[rows[:, None], columns], **inside)
        return total + dot(left, widened(block, left.dtype))

    total = jax.lax.fori_loop(0, each // tile.rows, step, jnp.zeros((tokens.size, tile.columns), jnp.float32))
    gpu.store(out.at[part, tokens, columns], total.astype(out.dtype), mask=(tokens < m) & (columns < n))
