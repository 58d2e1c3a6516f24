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
        return jnp.einsum(text, x, jax.lax.optimization_barrier(weight.astype(x.dtype)))
    tile = tile_of(m, n, narrow)
    if m > MOST or x.dtype != jnp.bfloat16 or k % (tile.rows * tile.splits) or n % 16:
        return None
    made = skinny_matmul(x.reshape(m, k), weight.reshape(k, n), tile)
    return made.reshape(*x.shape[: len(left) - len(summed)], *weight.shape[len(summed) :])


def tile_of(m: int, n: int, narrow: bool = False) -> MatmulTile:
    """The cut that was fastest on an H200 for some tokens and columns: one or two programs on each of its 132 SMs, and as many bytes
    under way of `narrow` (int8) weights as of others."""
    deeper = 2 if narrow else 1
    if m > 16 and n <= 4224:
        return MatmulTile(64, 128 * deeper, 2 if n > 2112 else 4, stages=4 if deeper == 1 else 3)
    return MatmulTile(128, 64 * deeper, max(each for each in (1, 2, 4, 8) if each == 1 or -(-n // 128) * each <= 200))


def skinny_matmul(
    x: jax.Array, weight: jax.Array, tile: MatmulTile, dtype: Any = None, interpret: bool = False
) -> jax.Array:
    """x [M, K] · weight [K, N] of few rows M."""
    (m, _), n = x.shape, weight.shape[1]
    dtype = dtype or x.dtype
    shape = ((m, n), dtype) if tile.splits == 1 else ((tile.splits, m, n), jnp.float32)

    def kernel(x: Any, weight: Any, out: Any) -> None:
        (total,) = _sums(x, (weight,), tile)
        _put(out, total, tile.splits > 1)

    made = _call(kernel, (pl.cdiv(n, tile.columns), tile.splits), shape, tile, "skinny_matmul", interpret)(x, weight)
    return made if tile.splits == 1 else functools.reduce(operator.add, made).astype(dtype)


def gated_matmul(
    x: jax.Array, gate: jax.Array, up: jax.Array, act: Any, tile: MatmulTile, interpret: bool = False
) -> jax.Array:
    """act(x · gate) * (x · up) of few rows, in one kernel."""

    def kernel(x: Any, gate: Any, up: Any, out: Any) -> None:
        one, other = (total.astype(out.dtype) for total in _sums(x, (gate, up), tile))
        _put(out, act(one.astype(jnp.float32)).astype(out.dtype) * other)

    shape = ((x.shape[0], gate.shape[1]), x.dtype)
    return _call(kernel, (pl.cdiv(gate.shape[1], tile.columns), 1), shape, tile, "gated_matmul", interpret)(x, gate, up)


def dot(one: jax.Array, other: jax.Array, turned: bool = False) -> jax.Array:
    """A product of blocks in a kernel, in fp32; with `turned` of the second one's rows."""
    dims = (((1,), (1 if turned else 0,)), ((), ()))
    return jax.lax.dot_general(one, other, dims, preferred_element_type=jnp.float32)


def _call(kernel: Any, grid: tuple[int, int], shape: Any, tile: MatmulTile, name: str, interpret: bool) -> Any:
    params = gpu.CompilerParams(num_warps=tile.warps, num_stages=tile.stages)
    out = jax.ShapeDtypeStruct(*shape)
    return pl.pallas_call(kernel, grid=grid, out_shape=out, compiler_params=params, name=name, interpret=interpret)


def _sums(x: Any, weights: tuple[Any, ...], tile: MatmulTile) -> tuple[jax.Array, ...]:
    """This program's columns of x · W, for each of the weights, over its part of the rows; fp32."""
    (m, k), n = x.shape, weights[0].shape[1]
    tokens = jnp.arange(max(16, pl.next_power_of_2(m)))
    columns = pl.program_id(0) * tile.columns + jnp.arange(tile.columns)
    real = None if m == tokens.size else (tokens < m)[:, None]
    inside = None if n % tile.columns == 0 else (columns < n)[None]
    each = k // tile.splits
    begin = pl.program_id(1) * each

    def step(index: Any, totals: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        rows = begin + index * tile.rows + jnp.arange(tile.rows)
        left = gpu.load(x.at[tokens[:, None], rows[None]], mask=real, other=None if real is None else 0)
        blocks = [
            gpu.load(w.at[rows[:, None], columns[None]], mask=inside, other=None if inside is None else 0)
            for w in weights
        ]
        return tuple(total + dot(left, block.astype(left.dtype)) for total, block in zip(totals, blocks, strict=True))

    start = tuple(jnp.zeros((tokens.size, tile.columns), jnp.float32) for _ in weights)
    return jax.lax.fori_loop(0, each // tile.rows, step, start)


def _put(out: Any, total: jax.Array, split: bool = False) -> None:
    m, n = out.shape[-2:]
    tokens, columns = jnp.arange(total.shape[0]), pl.program_id(0) * total.shape[1] + jnp.arange(total.shape[1])
    place = (tokens[:, None], columns[None])
    mask = (tokens < m)[:, None] & (columns < n)[None]
    gpu.store(out.at[(pl.program_id(1), *place) if split else place], total.astype(out.dtype), mask=mask)
