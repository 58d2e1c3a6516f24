"""Attention over queries [b, t, n, h], keys [b, s, k, h] and values [b, s, k, g]: causal, windowed, chunked, with
sinks.

Where the platform has a flash kernel and the shapes allow it, that runs (cuDNN on GPUs); everywhere else the scores are
computed in blocks of queries, so that no more than one block's scores are alive.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from dragonscale.models.attention import ATTENTION_BLOCK, takes_flash


@dataclass(frozen=True)
class Reach:
    """Which keys a query sees: those before it, within its window or its chunk."""

    window: int | None = None
    chunk: int | None = None

    def mask(self, queries: jax.Array, keys: jax.Array) -> jax.Array:
        """[b, t, s] from positions [b, t] and [b, s]; keys at negative positions are never seen. Queries [b, t, 2] also
        have the position where their document begins, before which they see nothing."""
        at, of = places_of(queries)[:, :, None], keys[:, None, :]
        return self.sees(at, of) & (of >= (queries[..., 1:] if queries.ndim > 2 else 0))

    def sees(self, at: jax.Array, of: jax.Array) -> jax.Array:
        """Whether queries `at` some positions see keys `of` others, all of them real."""
        seen = of <= at
        if self.window is not None:
            seen &= of > at - self.window
        if self.chunk is not None:
            seen &= of // self.chunk == at // self.chunk
        return seen


def places_of(queries: jax.Array) -> jax.Array:
    """The positions [b, t] of queries that may also have where their documents begin [b, t, 2]."""
    return queries[..., 0] if queries.ndim > 2 else queries


@dataclass(frozen=True)
class Scoring:
    """How a layer scores keys: which a query sees, the scale, a soft cap (0: none), and a sink's logit for each query
    head."""

    reach: Reach
    scale: float
    cap: float = 0.0
    sinks: jax.Array | None = None


UNSEEN = -1e30
"""The score of a key that is not seen: far below any other, and still finite."""


def grouped(query: jax.Array, key: jax.Array) -> jax.Array:
    """Queries [b, t, n, h] by the key heads that they share: [b, t, k, g, h]."""
    return query.reshape(*query.shape[:2], key.shape[2], -1, query.shape[-1])


def masked_scores(query: jax.Array, key: jax.Array, queries: jax.Array, keys: jax.Array, how: Scoring) -> jax.Array:
    """[b, k, g, t, s] in fp32, of grouped queries and keys at some positions, with a soft cap where there is one."""
    scores = jnp.einsum("btkgh,bskh->bkgts", query, key, preferred_element_type=jnp.float32) * how.scale
    scores = how.cap * jnp.tanh(scores / how.cap) if how.cap else scores
    return jnp.where(how.reach.mask(queries, keys)[:, None, None], scores, UNSEEN)


def attend(
    query: jax.Array, key: jax.Array, value: jax.Array, queries: jax.Array, keys: jax.Array, how: Scoring
) -> jax.Array:
    """softmax(Q·K)·V for queries and keys at some positions; query heads share key heads in equal groups."""
    b, t, *_ = query.shape
    own = grouped(query, key)
    own_sinks = None if how.sinks is None else how.sinks.reshape(own.shape[2:4])

    def block(part: jax.Array, at: jax.Array) -> jax.Array:
        scores = masked_scores(part, key, at, keys, how)
        if own_sinks is not None:
            sink = jnp.broadcast_to(own_sinks[None, :, :, None, None].astype(jnp.float32), (*scores.shape[:-1], 1))
            weights = jax.nn.softmax(jnp.concatenate([scores, sink], -1), -1)[..., :-1]
        else:
            weights = jax.nn.softmax(scores, -1)
        return jnp.einsum("bkgts,bskv->btkgv", weights.astype(value.dtype), value)

    if t > ATTENTION_BLOCK and t % ATTENTION_BLOCK == 0:
        parts = own.reshape(b, t // ATTENTION_BLOCK, ATTENTION_BLOCK, *own.shape[2:]).swapaxes(0, 1)
        places = queries.reshape(b, t // ATTENTION_BLOCK, ATTENTION_BLOCK, *queries.shape[2:]).swapaxes(0, 1)
        found = jax.lax.map(lambda pair: jax.checkpoint(block)(*pair), (parts, places))
        result = found.swapaxes(0, 1).reshape(b, t, *found.shape[3:])
    else:
        result = block(own, queries)
    return result.reshape(b, t, query.shape[2], value.shape[-1])


def flash_possible(query: jax.Array, value: jax.Array, how: Scoring) -> bool:
    """Whether cuDNN's kernel can do it: a GPU, half precision, head sizes that it takes, nothing unusual."""
    if jax.default_backend() != "gpu" or query.dtype not in (jnp.bfloat16, jnp.float16):
        return False
    wide = float(jax.devices()[0].compute_capability) >= 9
    odd = bool(how.cap), how.sinks is not None, how.reach.chunk is not None
    return takes_flash(query.shape[-1], value.shape[-1], *odd, wide)


def matching_heads(heads: jax.Array, shared_by: int, mine: int, block: jax.Array | int) -> jax.Array:
    """Of keys or values [b, s, k, h] with all their heads, those that a chip's `mine` query heads use: its block of all
    query heads, of which every `shared_by` share one. Chips hold all KV heads where there are fewer of them than chips.
    """
    if mine % shared_by and shared_by % mine:
        own = (block * mine + jnp.arange(mine)) // shared_by
        return jnp.take(heads, own, axis=2)
    return jax.lax.dynamic_slice_in_dim(heads, block * mine // shared_by, max(1, mine // shared_by), 2)


def attend_causally(
    query: jax.Array, key: jax.Array, value: jax.Array, queries: jax.Array, keys: jax.Array, how: Scoring
) -> jax.Array:
    """Whole sequences against themselves, as in training and prefill; or a part of the queries against all keys."""
    if query.shape[1] == key.shape[1] and queries.ndim == 2 and flash_possible(query, value, how):
        window = None if how.reach.window is None else (how.reach.window - 1, 0)
        size = value.shape[-1]  # filled up with zeros: JAX wants values as wide as keys
        value = jnp.pad(value, ((0, 0), (0, 0), (0, 0), (0, max(0, key.shape[-1] - size))))
        found = jax.nn.dot_product_attention(
            query, key, value, scale=how.scale, is_causal=True, local_window_size=window, implementation="cudnn"
        )
        return found[..., :size]
    return attend(query, key, value, queries, keys, how)


def attend_cached(query: jax.Array, key: jax.Array, value: jax.Array, positions: jax.Array, how: Scoring) -> jax.Array:
    """The newest tokens of sequences against everything they have cached; `positions` [b, t] are theirs."""
    if positions.shape[1] == 1 and how.reach.window is None and flash_possible(query, value, how):
        return jax.nn.dot_product_attention(
            query, key, value, scale=how.scale, key_value_seq_lengths=positions[:, 0] + 1, implementation="cudnn"
        )
    places = jnp.broadcast_to(jnp.arange(key.shape[1]), key.shape[:2])
    return attend(query, key, value, positions, places, how)
