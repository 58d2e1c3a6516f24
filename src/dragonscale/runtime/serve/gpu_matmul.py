"""Matmuls of a few tokens on NVIDIA GPUs, as fast as the weights can be read: a Pallas kernel that keeps many loads
under way.

With up to 64 tokens a matmul does nothing but read its weights. Programs have a block of columns each, and where these
are too few to fill the GPU also a part of the rows, whose sums are then added up by whatever XLA fuses with them. On an
H200 LLaMA-3-8B's matmuls take 5% less time than XLA's with one token, and 11% less with 64. Weights in int8 are widened
on the chip, their scales multiplied in there. Of two weights side by side, one of which gates the other, the kernel
computes what the gate lets through.
"""

import functools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as gpu

from dragonscale.runtime.quantized import Product, Quantized

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


Gate = Callable[[jax.Array, jax.Array], jax.Array]
"""Of the halves of a product, one of which gates the other: what it lets through."""


def few_tokens(text: str, x: jax.Array, weight: jax.Array | Quantized, interpret: bool = False) -> Product | None:
    """An einsum as lines have them, if it is a matmul that this kernel takes; None otherwise."""
    (left, right), out = text.split("->")[0].split(","), text.split("->")[1]
    summed = "".join(letter for letter in left if letter in right)
    if not (
        left.endswith(summed)
        and right.startswith(summed)
        and out == left.removesuffix(summed) + right.removeprefix(summed)
    ):
        return None
    values, scale = (weight.values, weight.scale) if isinstance(weight, Quantized) else (weight, None)
    k = math.prod(values.shape[: len(summed)])
    m, n = x.size // k, values.size // k
    if m > MOST and scale is not None:  # widened while it multiplies, XLA's matmul is far from the tensor cores' rate
        made = jnp.einsum(text, x, widened_ahead(values, x.dtype))
        return Product((made * scale).astype(made.dtype))
    tile = tile_of(m, k, n, scale is not None)
    if not _fits(x, m, k, n, tile):
        return None
    scale = None if scale is None else scale.reshape(-1)
    parts = skinny_matmul(x.reshape(m, k), values.reshape(k, n), tile, scale, interpret=interpret)
    made = functools.reduce(operator.add, parts).astype(x.dtype)
    return Product(made.reshape(*x.shape[: len(left) - len(summed)], *values.shape[len(summed) :]), parts)


def few_gated(x: jax.Array, weight: jax.Array | Quantized, gate: Gate, interpret: bool = False) -> jax.Array | None:
    """Of x [..., K] and two weights [K, 2 N] side by side what `gate` makes of the halves of their product, [..., N];
    None where the kernel does not take it."""
    values, scale = (weight.values, weight.scale) if isinstance(weight, Quantized) else (weight, None)
    (k, n), m = values.shape, x.size // x.shape[-1]
    whole = tile_of(m, k, n, scale is not None)
    tile = replace(whole, columns=whole.columns // 2)
    if whole.splits > 1 or not _fits(x, m, k, n // 2, tile):
        return None
    made = skinny_matmul(x.reshape(m, k), values, tile, scale, gate, interpret)
    return made.reshape(*x.shape[:-1], n // 2)


def _fits(x: jax.Array, m: int, k: int, n: int, tile: MatmulTile) -> bool:
    return m <= MOST and x.dtype == jnp.bfloat16 and k % (tile.rows * tile.splits) == 0 and n % 16 == 0


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


def skinny_matmul(
    x: jax.Array,
    weight: jax.Array,
    tile: MatmulTile,
    scale: jax.Array | None = None,
    gate: Gate | None = None,
    interpret: bool = False,
) -> jax.Array:
    """x [M, K] · weight [K, N] (times the `scale` [N] of its columns) of few rows M, in the tile's parts [S, M, N],
    into which K divides; with a `gate` [1, M, N / 2]. For few tokens int8 is read as words of four columns."""
    m, n = x.shape[0], weight.shape[1] // (2 if gate else 1)
    split = tile.splits > 1
    four = 4 if weight.dtype == jnp.int8 and m <= WORDS else 1
    return pl.pallas_call(
        functools.partial(_kernel, tile=tile, four=four, gate=gate, interpret=interpret),
        grid=(pl.cdiv(n, tile.columns), tile.splits),
        out_shape=jax.ShapeDtypeStruct((tile.splits, m, n), jnp.float32 if split else x.dtype),
        compiler_params=gpu.CompilerParams(num_warps=tile.warps, num_stages=tile.stages),
        interpret=interpret,
        name="gated_matmul" if gate else "skinny_matmul",
    )(x, words(weight) if four > 1 else weight, scale)


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


def widened_ahead(weight: jax.Array, dtype: Any, block: int = 8192) -> jax.Array:
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


@dataclass(frozen=True)
class ColumnBlock:
    """The columns [1, C] of what a program makes, `n` in all, read as words of `four`; with a gate those of both
    halves of a weight. `inside` says which there are, where some are not."""

    first: jax.Array
    n: int
    four: int
    gate: Gate | None
    inside: jax.Array | None

    def places(self, begin: int = 0) -> jax.Array:
        return self.first + begin // self.four

    @property
    def halves(self) -> tuple[int, ...]:
        return (0, self.n) if self.gate else (0,)

    def blocks(self, weight: Any, rows: Any, dtype: Any, interpret: bool) -> list[jax.Array]:
        """The weight's rows (places of all dims before the columns), widened: of each half each byte of a word."""
        given = {} if self.inside is None else {"mask": self.inside, "other": 0}
        loaded = [gpu.load(weight.at[(*rows, self.places(begin))], **given) for begin in self.halves]
        return [block for one in loaded for block in bytes_of(one, dtype, interpret)]

    def scaled(self, totals: list[jax.Array], scale: Any, *own: Any) -> list[jax.Array]:
        """Sums of such blocks times the scales of their columns."""
        if scale is None:
            return totals
        at = [self.places() * self.four + byte + begin for begin in self.halves for byte in range(self.four)]
        real = {"mask": at[0] < self.n, "other": 0}
        return [one * gpu.load(scale.at[(*own, where)], **real) for one, where in zip(totals, at, strict=True)]

    def put(
        self, out: Any, totals: list[jax.Array], rows: Any, mask: jax.Array, times: jax.Array | None = None
    ) -> None:
        """What the sums are worth at their places of the result."""
        for byte in range(self.four):
            halves = totals[byte :: self.four]
            made = self.gate(*(each.astype(out.dtype) for each in halves)) if self.gate else halves[0]
            if times is not None:
                made = made.astype(jnp.float32) * times
            columns = self.places() * self.four + byte
            gpu.store(out.at[(*rows, columns)], made.astype(out.dtype), mask=mask & (columns < self.n))


def column_block(columns: int, n: int, four: int, gate: Gate | None) -> ColumnBlock:
    """Those of the program at hand."""
    first = (pl.program_id(0) * (columns // four) + jnp.arange(columns // four))[None]
    # Masks only where they are needed: they cost instructions in the loop.
    return ColumnBlock(first, n, four, gate, None if n % columns == 0 else first * four < n)


def _kernel(
    x: Any, weight: Any, scale: Any, out: Any, *, tile: MatmulTile, four: int, gate: Gate | None, interpret: bool
) -> None:
    (m, k), part = x.shape, pl.program_id(1)
    tokens = jnp.arange(max(16, pl.next_power_of_2(m)))[:, None]
    block = column_block(tile.columns, out.shape[2], four, gate)
    real = {} if m == tokens.size else {"mask": tokens < m, "other": 0}
    each = k // tile.splits

    def step(index: Any, totals: list[jax.Array]) -> list[jax.Array]:
        rows = part * each + index * tile.rows + jnp.arange(tile.rows)
        left = gpu.load(x.at[tokens, rows[None]], **real)
        blocks = block.blocks(weight, (rows[:, None],), left.dtype, interpret)
        return [total + dot(left, one) for total, one in zip(totals, blocks, strict=True)]

    zeros = [jnp.zeros((tokens.size, tile.columns // four), jnp.float32)] * (four * len(block.halves))
    totals = jax.lax.fori_loop(0, each // tile.rows, step, zeros)
    block.put(out, block.scaled(totals, scale), (part, tokens), tokens < m)
