"""Tokens to their experts and back, without padding and without dropping: sorted by expert, multiplied in groups.

A router's choice is a `Chosen`: for every token the experts and their weights. `dispatch` sorts the rows of all tokens by
expert; products with expert weights are `jax.lax.ragged_dot`; `combine` puts the results back and adds them up.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from dragonscale.runtime.numerics import Routing


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Chosen:
    """[b, t, x] experts of each token, and their weights."""

    experts: jax.Array
    weights: jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Rows:
    """Rows sorted by expert: values [r, d], rows of each expert, the expert and the original place of each row."""

    values: jax.Array
    sizes: jax.Array
    experts: jax.Array
    order: jax.Array

    def having(self, values: jax.Array) -> "Rows":
        return Rows(values, self.sizes, self.experts, self.order)


def choose(logits: jax.Array, count: int, routing: Routing, correction: jax.Array | None = None) -> Chosen:
    """The best `count` experts of each token by its router's logits [b, t, e]; `correction` is added for the choice only."""
    logits = logits.astype(jnp.float32)
    scores = jax.nn.sigmoid(logits) if routing.score == "sigmoid" else jax.nn.softmax(logits, -1)
    ranked = logits if routing.score == "after" else scores
    ranked = ranked if correction is None else ranked + correction
    if routing.groups > 1:
        ranked = _best_groups(ranked, routing)
    _, experts = jax.lax.top_k(ranked, count)
    if routing.score == "after":
        weights = jax.nn.softmax(jnp.take_along_axis(logits, experts, -1), -1)
    else:
        weights = jnp.take_along_axis(scores, experts, -1)
    if routing.normalise:
        weights = weights / (weights.sum(-1, keepdims=True) + 1e-20)
    return Chosen(experts, weights * routing.scale)


def _best_groups(ranked: jax.Array, routing: Routing) -> jax.Array:
    """Only experts of the groups whose two best have the highest sum."""
    shape = ranked.shape
    grouped = ranked.reshape(*shape[:-1], routing.groups, -1)
    two, _ = jax.lax.top_k(grouped, 2)
    _, kept = jax.lax.top_k(two.sum(-1), routing.best_groups)
    allowed = jax.nn.one_hot(kept, routing.groups, dtype=bool).any(-2)
    return jnp.where(allowed[..., None], grouped, -jnp.inf).reshape(shape)


def dispatch(x: jax.Array, chosen: Chosen, experts: int) -> Rows:
    """Every token's row once for each of its experts, sorted by expert."""
    count = chosen.experts.shape[-1]
    flat = chosen.experts.reshape(-1)
    order = jnp.argsort(flat, stable=True)
    rows = x.reshape(-1, x.shape[-1])[order // count]
    sizes = jnp.bincount(flat, length=experts).astype(jnp.int32)
    return Rows(rows, sizes, flat[order], order)


def multiply(rows: Rows, weight: jax.Array) -> Rows:
    """Each expert's rows times its matrix: weight [e, d, f]."""
    return rows.having(jax.lax.ragged_dot(rows.values, weight.astype(rows.values.dtype), rows.sizes))


def combine(rows: Rows, chosen: Chosen) -> jax.Array:
    """Results back at their tokens, weighted and added: [b, t, d]."""
    b, t, count = chosen.experts.shape
    back = jnp.zeros_like(rows.values).at[rows.order].set(rows.values)
    weighted = back.reshape(b, t, count, -1) * chosen.weights[..., None].astype(rows.values.dtype)
    return weighted.sum(2)
