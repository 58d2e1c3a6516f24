"""Attention of a packed step over a paged cache.

Keys and values of a layer lie in flat arrays, a row for each place of each page; a sequence's table says which pages
are its own. The step's tokens are written first, so that a query finds its own key in the cache like any other: at a
place of its sequence that is not beyond its position. What is here runs anywhere, by gathering the pages of a row;
where the platform has kernels that read pages in place they take over (`gpu_attention`). A `fresh` prompt has all its
keys at hand and needs no page.

Latents (`values` is None) are keys of one head whose leading channels are the values. An int8 cache has scales by token
and head.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp

from dragonscale.runtime.attention import Scoring, attend
from dragonscale.runtime.quantized import quantized, widened_values
from dragonscale.runtime.serve.steps import StepArrays, StepShape

GATHERED = 1 << 16
"""Keys of decoding rows that are gathered at once, at most (of one row, if it has more)."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PagedKeys:
    """A layer's cache on a chip: keys [S, k, h] and values [S, k, g] of S = pages · page places, and scales [S, k] of
    int8 ones."""

    keys: jax.Array
    values: jax.Array | None = None
    key_scale: jax.Array | None = None
    value_scale: jax.Array | None = None

    def written(self, places: jax.Array, key: jax.Array, value: jax.Array) -> "PagedKeys":
        """With the keys and values [N, k, h] of new tokens at their places. Padding shares a place that nobody reads,
        so that places may be called unique."""

        def put(stored: Any, new: jax.Array) -> jax.Array:
            new = new.astype(stored.dtype)
            return stored.at[places].set(new, mode="promise_in_bounds", unique_indices=True)

        found: dict[str, Any] = {}
        for name, new in (("key", key), ("value", value)):
            if (stored := getattr(self, f"{name}s")) is None:
                continue
            if (scales := getattr(self, f"{name}_scale")) is not None:
                new, scale = quantized(new, (-1,), scales.dtype)
                found[f"{name}_scale"] = put(scales, scale[..., 0])
            found[f"{name}s"] = put(stored, new)
        return replace(self, **found)

    def as_kept(self, key: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Keys and values as they would be read back from this cache."""

        def kept(new: jax.Array, scales: jax.Array) -> jax.Array:
            whole, scale = quantized(new, (-1,), scales.dtype)
            return widened_values(whole, scale[..., 0], new.dtype)

        if self.key_scale is None:
            return key, value
        wide = kept(key, self.key_scale)
        return wide, wide[..., : value.shape[-1]] if self.value_scale is None else kept(value, self.value_scale)


@jax.tree_util.register_dataclass
@dataclass(kw_only=True)
class StepRows(StepArrays):
    """A step's arrays as they are on a rank's chips, without the dim of ranks. `platform` is where it runs, `loras` how
    many adapters are served."""

    shape: StepShape = field(metadata={"static": True})
    page: int = field(metadata={"static": True})
    platform: str = field(default="cpu", metadata={"static": True})
    loras: int = field(default=0, metadata={"static": True})

    def adapters_of(self, rank: int) -> jax.Array | None:
        """Of all adapters' columns, those of each token's own [1, N, rank]; None where there are no adapters."""
        if not self.loras or not rank:
            return None
        owner = 1 + jnp.arange(rank) // (rank // self.loras)
        return (self.adapters[:, None] == owner)[None]


def attend_decodes(query: jax.Array, cache: PagedKeys, rows: StepRows, how: Scoring, size: int) -> jax.Array:
    """[D·Q, n, g] of the decoding rows, `queries` tokens each; `size` is g."""
    shape = rows.shape
    each = query.reshape(shape.decodes, shape.queries, *query.shape[1:])
    at = rows.positions[: shape.decodes * shape.queries].reshape(shape.decodes, shape.queries)
    tables = rows.tables[: shape.decodes]

    def some(part: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        own, places, table = part
        key, value = _gathered(cache, table, rows.page, size, query.dtype)
        of = jnp.broadcast_to(jnp.arange(key.shape[1]), key.shape[:2])
        return attend(own, key, value, places, of, how)

    together = max(1, GATHERED // (tables.shape[1] * rows.page))
    if shape.decodes <= together:
        return some((each, at, tables)).reshape(-1, query.shape[1], size)
    one = jax.lax.map(
        lambda part: some(jax.tree.map(lambda x: x[None], part))[0], (each, at, tables), batch_size=together
    )
    return one.reshape(-1, query.shape[1], size)


def attend_chunks(query: jax.Array, cache: PagedKeys, rows: StepRows, how: Scoring, size: int) -> jax.Array:
    """[T, n, g] of the prompts' chunks, one row after the other: each computes as many queries as there are in all and
    keeps its own."""
    shape, t = rows.shape, query.shape[0]
    begins = rows.starts - shape.decodes * shape.queries
    padded = jnp.concatenate([query, jnp.zeros_like(query)])
    steps = jnp.arange(t)

    def row(place: jax.Array, made: jax.Array) -> jax.Array:
        begin, count = begins[place], begins[place + 1] - begins[place]
        own = jax.lax.dynamic_slice_in_dim(padded, begin, t)
        at = rows.lengths[shape.decodes + place] - count + steps
        key, value = _gathered(cache, rows.tables[shape.decodes + place][None], rows.page, size, query.dtype)
        of = jnp.arange(key.shape[1])[None]
        found = attend(own[None], key, value, at[None], of, how)[0]
        before = jax.lax.dynamic_slice_in_dim(made, begin, t)
        kept = jnp.where((steps < count)[:, None, None], found, before)
        return jax.lax.dynamic_update_slice_in_dim(made, kept, begin, 0)

    def real(place: jax.Array, made: jax.Array) -> jax.Array:
        there = begins[place + 1] > begins[place]
        return jax.lax.cond(there, row, lambda _, same: same, place, made)

    empty = jnp.zeros((2 * t, query.shape[1], size), query.dtype)
    return jax.lax.fori_loop(0, shape.prompts, real, empty)[:t]


def _gathered(cache: PagedKeys, tables: jax.Array, page: int, size: int, dtype: Any) -> tuple[jax.Array, jax.Array]:
    """Keys and values [rows, W · page, k, …] of the pages in tables [rows, W]."""

    def pages(stored: jax.Array) -> jax.Array:
        found = stored.reshape(-1, page, *stored.shape[1:])[tables]
        return found.reshape(tables.shape[0], -1, *stored.shape[1:])

    def wide(stored: jax.Array, scale: jax.Array | None) -> jax.Array:
        found = pages(stored)
        return found.astype(dtype) if scale is None else widened_values(found, pages(scale), dtype)

    key = wide(cache.keys, cache.key_scale)
    return key, key[..., :size] if cache.values is None else wide(cache.values, cache.value_scale)
