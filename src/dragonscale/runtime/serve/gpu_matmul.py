"""Matmuls of a few tokens on NVIDIA GPUs, as fast as the weights can be read: a Pallas kernel that keeps many loads
under way.

With up to 64 tokens a matmul does nothing but read its weights. Programs have a block of columns each, and where these
are too few to fill the GPU also a part of the rows, whose sums are then added up by whatever XLA fuses with them. On an
H200 LLaMA-3-8B's matmuls take 5% less time than XLA's with one token, and 11% less with 64. Weights in int8 are widened
on the chip.
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
WORDS = 16
"""Tokens up to which int8 is read as words of four: a block of more has products that want the widened numbers in
shared memory, and with 64 tokens in blocks of 16 an H200 took 90 us for LLaMA-3-8B's largest matmul rather than 56."""


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
    parts = few_parts(x.reshape(m, k), weight.reshape(k, n))
    if parts is None:
        return None
    made = functools.reduce(operator.add, parts).astype(x.dtype)
    return made.reshape(*x.shape[: len(left) - len(summed)], *weight.shape[len(summed) :])


def few_parts(x: jax.Array, weight: jax.Array, interpret: bool = False) -> jax.Array | None:
    """x [M, K] · weight [K, N] as parts [S, M, N] to be added up, where the kernel takes it; None otherwise."""
    (m, k), n = x.shape, weight.shape[1]
    tile = tile_of(m, k, n, weight.dtype == jnp.int8)
    if m > MOST or x.dtype != jnp.bfloat16 or k % (tile.rows * tile.splits) or n % 16:
        return None
    return skinny_matmul(x, weight, tile, interpret)


def tile_of(m: int, k: int, n: int, narrow: bool = False) -> MatmulTile:
    """The cut that was fastest on an H200 for m tokens and weights [k, n]: one or two programs on each of its 132 SMs,
    and as many bytes under way of `narrow` (int8) weights as of others."""
    deep = narrow and m > WORDS and k > 8192
    if narrow:
        columns, rows, most = 128, 256 if deep else 128, 200
    else:
        columns, rows, most = (64, 128, 132) if m > WORDS and n <= 4224 else (128, 64, 200)
    programs = -(-n // columns)
    fitting = (each for each in (2, 4, 8) if programs * each <= most and k % (rows * each) == 0)
    return MatmulTile(columns, rows, max(fitting, default=1), 8 if deep else 4, 3 if m > WORDS and narrow else 4)


def skinny_matmul(x: jax.Array, weight: jax.Array, tile: MatmulTile, interpret: bool = False) -> jax.Array:
    """x [M, K] · weight [K, N] of few rows M, in the tile's parts [S, M, N], into which K divides. For few tokens int8
    is read as words of four columns."""
    m, n = x.shape[0], weight.shape[1]
    split = tile.splits > 1
    four = 4 if weight.dtype == jnp.int8 and m <= WORDS else 1
    return pl.pallas_call(
        functools.partial(_kernel, tile=tile, four=four, interpret=interpret),
        grid=(pl.cdiv(n, tile.columns), tile.splits),
        out_shape=jax.ShapeDtypeStruct((tile.splits, m, n), jnp.float32 if split else x.dtype),
        compiler_params=gpu.CompilerParams(num_warps=tile.warps, num_stages=tile.stages),
        interpret=interpret,
        name="skinny_matmul",
    )(x, words(weight) if four > 1 else weight)


def words(narrow: jax.Array) -> jax.Array:
    """int8 [..., h] as int32 [..., h / 4], the same bytes; anything else as it is."""
    if narrow.dtype != jnp.int8:
        return narrow
    return jax.lax.bitcast_convert_type(narrow.reshape(*narrow.shape[:-1], -1, 4), jnp.int32)


def bytes_of(block: jax.Array, dtype: Any, interpret: bool = False) -> list[jax.Array]:
    """A block in a kernel in the type of its partner; of words the first of their four bytes each, the second, third
    and last.

    A product wants numbers of a column side by side in a thread's registers, while bytes lie side by side in a row: a
    thread would load them from shared memory one at a time. Of words it loads four. They become bf16 two at a time: the
    bits 0x4300 + u are those of 128 + u up to 127, and 0x4300 with the sign's bit those of 128 or 256, whose difference
    is the number."""
    if block.dtype != jnp.int32:
        return [widened(block, dtype)]
    if interpret or dtype != jnp.bfloat16:
        return [((block << (24 - 8 * at)) >> 24).astype(dtype) for at in range(4)]
    shape = jax.ShapeDtypeStruct(block.shape, jnp.bfloat16)
    found = []
    for at in range(4):
        text = f"""{{
            .reg .b32 both, low, sign, one;
            mov.b32 one, 0x3f803f80;
            prmt.b32 both, $1, $2, {at | (at + 4) << 8};
            lop3.b32 low, both, 0x007f007f, 0x43004300, 0xea;
            lop3.b32 sign, both, 0x00800080, 0xc300c300, 0xea;
            fma.rn.bf16x2 $0, low, one, sign;
        }}"""
        found += gpu.elementwise_inline_asm(
            text, args=[block], constraints="=r,r,r", pack=2, result_shape_dtypes=[shape]
        )
    return found


def dot(one: jax.Array, other: jax.Array, turned: bool = False) -> jax.Array:
    """A product of blocks in a kernel, in fp32; with `turned` of the second one's rows."""
    dims = (((1,), (1 if turned else 0,)), ((), ()))
    return jax.lax.dot_general(one, other, dims, preferred_element_type=jnp.float32)


def widened(block: jax.Array, dtype: Any) -> jax.Array:
    """A block in a kernel in the type of its partner. int8 becomes float by integer arithmetic (the bits of 1.5·2²³ + x
    are those of
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

    spec, grid = pl.BlockSpec((block,), lambda i: (i,)), (weight.size // block,)
    cut = {"grid": grid, "in_specs": [spec], "out_specs": spec, "name": "widened"}
    params = gpu.CompilerParams(num_warps=4, num_stages=1)
    shape = jax.ShapeDtypeStruct((weight.size,), dtype)
    call = pl.pallas_call(kernel, out_shape=shape, compiler_params=params, **cut)
    return call(weight.reshape(-1)).reshape(weight.shape)


def _kernel(x: Any, weight: Any, out: Any, *, tile: MatmulTile, four: int, interpret: bool) -> None:
    (m, k), n, part = x.shape, weight.shape[1], pl.program_id(1)
    tokens = jnp.arange(max(16, pl.next_power_of_2(m)))[:, None]
    columns = (pl.program_id(0) * (tile.columns // four) + jnp.arange(tile.columns // four))[None]
    # Masks only where they are needed: they cost instructions in the loop.
    real = {} if m == tokens.size else {"mask": tokens < m, "other": 0}
    inside = {} if n % (tile.columns // four) == 0 else {"mask": columns < n, "other": 0}
    each = k // tile.splits

    def step(index: Any, totals: list[jax.Array]) -> list[jax.Array]:
        rows = part * each + index * tile.rows + jnp.arange(tile.rows)
        left = gpu.load(x.at[tokens, rows[None]], **real)
        blocks = bytes_of(gpu.load(weight.at[rows[:, None], columns], **inside), left.dtype, interpret)
        return [total + dot(left, block) for total, block in zip(totals, blocks, strict=True)]

    zeros = [jnp.zeros((tokens.size, columns.size), jnp.float32)] * four
    for at, total in enumerate(jax.lax.fori_loop(0, each // tile.rows, step, zeros)):
        place = out.at[part, tokens, columns * four + at]
        gpu.store(place, total.astype(out.dtype), mask=(tokens < m) & (columns < n))
