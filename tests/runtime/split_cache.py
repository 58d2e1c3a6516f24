"""Attention over a cache that is split along the sequence, as a program to hold plans against."""

import jax
import jax.numpy as jnp

from dragonscale.runtime.attention import UNSEEN, Reach, Scoring, grouped, masked_scores


def attend_split_cache(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    positions: jax.Array,
    keys: jax.Array,
    reach: Reach,
    scale: float,
    axes: str | tuple[str, ...],
    cap: float = 0.0,
    sinks: jax.Array | None = None,
) -> jax.Array:
    """`attend_cached` where the chips along `axes` hold parts of the cache, at the positions `keys` [b, s]; inside
    `jax.shard_map`, with the same queries on all of them.

    Each chip attends to its own keys, with the largest score of all chips, and what they find is added up: weighted
    values, in the values' own type, and the sums of weights. So a result as large as one token travels, never the
    cache.
    """
    b, t, n, _ = query.shape
    own = grouped(query, key)
    scores = masked_scores(own, key, positions, keys, Scoring(reach, scale, cap))
    most = jax.lax.pmax(scores.max(-1), axes)
    sink = None if sinks is None else sinks.astype(jnp.float32).reshape(own.shape[2:4])[None, :, :, None]
    most = most if sink is None else jnp.maximum(most, sink)
    weights = jnp.where(scores > UNSEEN, jnp.exp(scores - most[..., None]), 0.0)
    found = jnp.einsum("bkgts,bskv->btkgv", weights.astype(value.dtype), value)
    found, total = jax.lax.psum((found, weights.sum(-1)), axes)
    total = total if sink is None else total + jnp.exp(sink - most)
    result = found.astype(jnp.float32) / jnp.moveaxis(total, -1, 1)[..., None]
    return result.reshape(b, t, n, -1).astype(value.dtype)
