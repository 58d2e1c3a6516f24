"""Experts of a few tokens on NVIDIA GPUs, as fast as their weights can be read: a Pallas kernel.

With up to 64 tokens an expert's matmul does nothing but read its matrix, whether one token chose it or all of them: a
tensor core takes 16 to 64 rows at once. So nothing is sorted and no row is moved. Every expert that a token chose has a
slot, and multiplies all tokens; the router's weights are zero for those that did not choose it. The matmul that narrows
adds slots up as it goes, so that its result has the size of the tokens.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as gpu

from dragonscale.runtime.quantized import Quantized
from dragonscale.runtime.serve.gpu_matmul import WORDS, Gate, MatmulTile, column_block, dot, words

PROGRAMS = 512
"""Programs that keep an H200 reading, about four on each of its 132 SMs."""
COLUMNS, ROWS = 64, 64
"""Of a matrix in a block: of 1 to 64 tokens the fastest of eight cuts on an H200, or within 3% of it (with a gate: of
each half). A block of int8 with a gate has twice the columns; with one token, one without has twice the rows and half
the warps."""


def tile_of(x: jax.Array, weight: jax.Array | Quantized, slots: int, how: str = "") -> MatmulTile:
    """The cut that was fastest on an H200, or within 3% of it, for 1 to 64 tokens. Slots that are `summed` up make as
    many sums as keep it busy: Qwen3-30B-A3B's matmuls read 3.1 and 2.4 TB/s with one token, 4.0 and 3.8 with 32;
    `gated` ones read 2.9 and 4.0, in int8 1.1 and 1.8, as widening it takes longer than reading it."""
    narrow, few = isinstance(weight, Quantized), x.shape[-2] <= WORDS
    k, n = (weight.values if isinstance(weight, Quantized) else weight).shape[1:]
    groups = min(slots, max(1, PROGRAMS // -(-n // COLUMNS))) if how == "summed" else slots
    if narrow and how == "gated":
        return MatmulTile(2 * COLUMNS, ROWS, groups, 4 if few else 8, 4)
    if narrow and few and k % (2 * ROWS) == 0:
        return MatmulTile(COLUMNS, 2 * ROWS, groups, 2, 4)
    return MatmulTile(COLUMNS, ROWS, groups, 4, 6)


def experts_of_few(
    x: jax.Array, weight: jax.Array | Quantized, owner: jax.Array, count: jax.Array, summed: bool = False
) -> jax.Array:
    """[A, T, N] of x [T, K] or [A, T, K], as `slot_matmul`; of what is to be `summed` over the slots maybe fewer parts
    than these."""
    tile = tile_of(x, weight, owner.shape[0], "summed" if summed else "")
    return slot_matmul(x, weight, owner, count, tile)


def gated_experts_of_few(
    x: jax.Array, weight: jax.Array | Quantized, slots: Any, gate: Gate, times: jax.Array | None, interpret: bool
) -> jax.Array:
    """[A, T, N] of x [T, K] and the experts' two weights [e, K, 2 N] side by side: what `gate` makes of the halves of
    their product, `times` [A, T] what tokens give their experts."""
    tile = tile_of(x, weight, slots.owner.shape[0], "gated")
    return slot_matmul(x, weight, slots.owner, slots.count, tile, gate, times, interpret)


def slot_matmul(
    x: jax.Array,
    weight: jax.Array | Quantized,
    owner: jax.Array,
    count: jax.Array,
    tile: MatmulTile,
    gate: Gate | None = None,
    times: jax.Array | None = None,
    interpret: bool = False,
) -> jax.Array:
    """x [T, K] (or [A, T, K], a slot each) times the matrices [e, K, N] of the owners [A] of `count` [1] slots:
    [A, T, N], or sums [S, T, N] over the slots where the tile has fewer splits S than there are slots; with a `gate`
    [A, T, N / 2]."""
    values, scale = (weight.values, weight.scale) if isinstance(weight, Quantized) else (weight, None)
    m, n, slots = x.shape[-2], values.shape[2] // (2 if gate else 1), owner.shape[0]
    four = 4 if values.dtype == jnp.int8 and m <= WORDS else 1
    return pl.pallas_call(
        functools.partial(_kernel, tile=tile, slots=slots, four=four, gate=gate, interpret=interpret),
        grid=(pl.cdiv(n, tile.columns), tile.splits),
        out_shape=jax.ShapeDtypeStruct((tile.splits, m, n), x.dtype if tile.splits == slots else jnp.float32),
        compiler_params=gpu.CompilerParams(num_warps=tile.warps, num_stages=tile.stages),
        interpret=interpret,
        name="gated_slots" if gate else "slot_matmul",
    )(x, words(values) if four > 1 else values, scale, times, owner, count)


def _kernel(
    x: Any,
    weight: Any,
    scale: Any,
    times: Any,
    owner: Any,
    count: Any,
    out: Any,
    *,
    tile: MatmulTile,
    slots: int,
    four: int,
    gate: Gate | None,
    interpret: bool,
) -> None:
    m, k, group = x.shape[-2], x.shape[-1], pl.program_id(1)
    tokens = jnp.arange(max(16, pl.next_power_of_2(m)))[:, None]
    block = column_block(tile.columns, out.shape[2], four, gate)
    real = {} if m == tokens.size else {"mask": tokens < m, "other": 0}
    each, alone = k // tile.rows, tile.splits == slots
    there = jnp.maximum(count[0] - group + tile.splits - 1, 0) // tile.splits  # slots of this group
    only = owner[group] if alone else None

    def step(index: Any, totals: list[jax.Array]) -> list[jax.Array]:
        slot = group if alone else group + jax.lax.div(index, each) * tile.splits
        own = only if only is not None else owner[slot]
        rows = (index if alone else jax.lax.rem(index, each)) * tile.rows + jnp.arange(tile.rows)
        place = x.at[tokens, rows[None]] if len(x.shape) == 2 else x.at[slot, tokens, rows[None]]
        left = gpu.load(place, **real)
        made = [dot(left, one) for one in block.blocks(weight, (own, rows[:, None]), left.dtype, interpret)]
        made = made if alone else block.scaled(made, scale, own)
        return [total + one for total, one in zip(totals, made, strict=True)]

    zeros = [jnp.zeros((tokens.size, tile.columns // four), jnp.float32)] * (four * len(block.halves))
    totals = jax.lax.fori_loop(0, there * each, step, zeros)
    totals = block.scaled(totals, scale, only) if alone else totals
    given = None if times is None else gpu.load(times.at[group, tokens], mask=tokens < m, other=0)
    block.put(out, totals, (group, tokens), tokens < m, given)
