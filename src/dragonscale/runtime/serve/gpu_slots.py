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

from dragonscale.runtime.serve.gpu_matmul import WORDS, MatmulTile, bytes_of, dot, words

PROGRAMS = 512
"""Programs that keep an H200 reading, about four on each of its 132 SMs."""
COLUMNS, ROWS = 64, 64
"""Of a matrix in a block: of 1 to 64 tokens the fastest of eight cuts on an H200, or within 3% of it."""


def tile_of(slots: int, n: int, summed: bool = False) -> MatmulTile:
    """The cut that was fastest on an H200, or within 3% of it, for 1 to 64 tokens. Slots that are added up make as many
    sums as keep it busy: Qwen3-30B-A3B's matmuls read 3.1 and 2.4 TB/s with one token, 4.0 and 3.8 with 32."""
    groups = min(slots, max(1, PROGRAMS // -(-n // COLUMNS))) if summed else slots
    return MatmulTile(COLUMNS, ROWS, groups, 4, 6)


def experts_of_few(
    x: jax.Array, weight: jax.Array, owner: jax.Array, count: jax.Array, summed: bool = False
) -> jax.Array:
    """[A, T, N] of x [T, K] or [A, T, K], as `slot_matmul`; `summed`: [T, N], added up over the slots."""
    made = slot_matmul(x, weight, owner, count, tile_of(owner.shape[0], weight.shape[2], summed))
    return made.sum(0, dtype=jnp.float32).astype(x.dtype) if summed else made


def slot_matmul(
    x: jax.Array, weight: jax.Array, owner: jax.Array, count: jax.Array, tile: MatmulTile, interpret: bool = False
) -> jax.Array:
    """x [T, K] (or [A, T, K], a slot each) times the matrices [e, K, N] of the owners [A] of `count` [1] slots:
    [A, T, N], or sums [S, T, N] over the slots where the tile has fewer splits S than there are slots."""
    m, n, slots = x.shape[-2], weight.shape[2], owner.shape[0]
    four = 4 if weight.dtype == jnp.int8 and m <= WORDS else 1
    return pl.pallas_call(
        functools.partial(_kernel, tile=tile, slots=slots, four=four, interpret=interpret),
        grid=(pl.cdiv(n, tile.columns), tile.splits),
        out_shape=jax.ShapeDtypeStruct((tile.splits, m, n), x.dtype if tile.splits == slots else jnp.float32),
        compiler_params=gpu.CompilerParams(num_warps=tile.warps, num_stages=tile.stages),
        interpret=interpret,
        name="slot_matmul",
    )(x, words(weight) if four > 1 else weight, owner, count)


def _kernel(
    x: Any, weight: Any, owner: Any, count: Any, out: Any, *, tile: MatmulTile, slots: int, four: int, interpret: bool
) -> None:
    m, k, n, group = x.shape[-2], x.shape[-1], weight.shape[2], pl.program_id(1)
    tokens = jnp.arange(max(16, pl.next_power_of_2(m)))[:, None]
    columns = (pl.program_id(0) * (tile.columns // four) + jnp.arange(tile.columns // four))[None]
    real = {} if m == tokens.size else {"mask": tokens < m, "other": 0}
    inside = {} if n % (tile.columns // four) == 0 else {"mask": columns < n, "other": 0}
    each, alone = k // tile.rows, tile.splits == slots
    there = jnp.maximum(count[0] - group + tile.splits - 1, 0) // tile.splits  # slots of this group
    only = owner[group] if alone else None

    def step(index: Any, totals: list[jax.Array]) -> list[jax.Array]:
        slot = group if alone else group + jax.lax.div(index, each) * tile.splits
        own = only if only is not None else owner[slot]
        rows = (index if alone else jax.lax.rem(index, each)) * tile.rows + jnp.arange(tile.rows)
        place = x.at[tokens, rows[None]] if len(x.shape) == 2 else x.at[slot, tokens, rows[None]]
        left = gpu.load(place, **real)
        blocks = bytes_of(gpu.load(weight.at[own, rows[:, None], columns], **inside), left.dtype, interpret)
        return [total + dot(left, block) for total, block in zip(totals, blocks, strict=True)]

    zeros = [jnp.zeros((tokens.size, columns.size), jnp.float32)] * four
    for at, total in enumerate(jax.lax.fori_loop(0, there * each, step, zeros)):
        place = out.at[group, tokens, columns * four + at]
        gpu.store(place, total.astype(out.dtype), mask=(tokens < m) & (columns < n))
