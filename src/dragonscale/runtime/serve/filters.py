"""From logits to a distribution and from a distribution to a token, on the device: pure functions over rows of logits [n, v].

Every filter keeps the tokens above some value, so none of them sorts: top-k keeps those with fewer than k tokens above them, top-p those
whose betters have less than p of the probability. That value is searched for in the bits of the number, four at a time (eight passes
over the logits), which is exact; a sort of 64 rows of 128k logits would take longer than the model's own layers. Tokens that are
equally likely stay or go together, so that the order of the vocabulary has no say.

A token is drawn by adding Gumbel noise to its logit and taking the largest: it needs no sum over the vocabulary. The noise of a
token depends on the request's seed and on the token's position and on nothing else.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy

TEMPERATURE, TOP_K, TOP_P, MIN_P, PRESENCE, FREQUENCY, REPETITION = range(7)
"""Columns of the settings [n, 7] of rows."""

TOKEN, ACCEPT, DRAFT = range(3)
"""What noise is for: the three are independent at the same position, as rejection sampling needs them."""

Array = Any


def largest(x: Array) -> Array:
    """The index of the largest, the first of equals. Two plain reductions, which XLA splits over a GPU; its argmax gives a row to one block."""
    best = jnp.max(x, axis=-1, keepdims=True)
    index = jax.lax.broadcasted_iota(jnp.int32, x.shape, x.ndim - 1)
    return jnp.minimum(jnp.min(jnp.where(x == best, index, x.shape[-1]), axis=-1), x.shape[-1] - 1)


def keys_of(seeds: Array, positions: Array, purpose: int) -> Array:
    """A random key for each row from its seed [n, 2], its position [n] and what it is for."""

    def key(seed: Array, position: Array) -> Array:
        return jax.random.fold_in(
            jax.random.fold_in(jax.random.wrap_key_data(seed, impl="threefry2x32"), position), purpose
        )

    return jax.vmap(key)(seeds, positions)


def gumbel(seeds: Array, positions: Array, purpose: int, size: int) -> Array:
    """Noise [n, size] whose sum with log probabilities is largest at a token drawn from them."""
    return jax.vmap(lambda key: jax.random.gumbel(key, (size,), jnp.float32))(keys_of(seeds, positions, purpose))


def shaped(x: Array, settings: Array, counts: Array, edits: tuple[Array, Array], bits: Array) -> Array:
    """Logits after penalties, additions and a grammar's mask, in this order. `counts` [n, v] are twice how often a token was generated,
    plus one if the prompt has it; edits are token ids [n, e] and what to add to their logits; `bits` [n, w] are 32 allowed tokens each."""
    presence, frequency, repetition = (settings[:, i, None] for i in (PRESENCE, FREQUENCY, REPETITION))
    x = jnp.where(counts > 0, jnp.where(x > 0, x / repetition, x * repetition), x)
    x = x - frequency * (counts >> 1) - presence * (counts > 1)
    ids, values = edits
    x = x.at[jnp.arange(x.shape[0])[:, None], ids].add(values, mode="drop")
    allowed = (bits[:, :, None] >> jnp.arange(32, dtype=jnp.uint32)) & 1
    return jnp.where(allowed.reshape(bits.shape[0], -1)[:, : x.shape[1]] > 0, x, -jnp.inf)


def tempered(x: Array, settings: Array) -> Array:
    """Logits divided by the temperature; those of a greedy row stay."""
    temperature = settings[:, TEMPERATURE, None]
    return x / jnp.where(temperature > 0, temperature, 1)


def lowest_kept(keys: Array, weights: Array, target: Array) -> Array:
    """For each row the least number that has less than `target` of the weight strictly above it: 4 bits at a time, from the top."""

    def digit(step: Array, found: Array) -> Array:
        shift = (28 - 4 * step).astype(jnp.uint32)
        above = [
            jnp.sum(jnp.where(keys > (found + (jnp.uint32(c + 1) << shift) - 1)[:, None], weights, 0), axis=-1)
            for c in range(15)
        ]
        return found + (sum((a >= target).astype(jnp.uint32) for a in above) << shift)

    return jax.lax.fori_loop(0, 8, digit, jnp.zeros(keys.shape[0], jnp.uint32))


def filtered(x: Array, settings: Array) -> Array:
    """Tempered logits with what min-p, then top-k, then top-p take away at -inf; top-p is of the probability that the others leave."""
    top_k, top_p, min_p = (settings[:, i] for i in (TOP_K, TOP_P, MIN_P))
    best = jnp.max(x, axis=-1, keepdims=True)
    x = jnp.where(x >= best + jnp.log(min_p)[:, None], x, -jnp.inf)
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32)
    keys = jnp.where(bits >> 31 > 0, ~bits, bits | jnp.uint32(1 << 31))  # these order as the floats do
    kth = lowest_kept(keys, jnp.ones_like(x), jnp.where(top_k > 0, top_k, jnp.inf))
    weights = jnp.where(keys >= kth[:, None], jnp.exp(x - best), 0)
    enough = jnp.where(top_p < 1, top_p * jnp.sum(weights, axis=-1), jnp.inf)
    floor = jnp.maximum(kth, lowest_kept(keys, weights, enough))
    return jnp.where(keys >= floor[:, None], x, -jnp.inf)


def distribution(x: Array, settings: Array) -> Array:
    """Probabilities of filtered logits; all on one token in a greedy row."""
    only = jax.lax.broadcasted_iota(jnp.int32, x.shape, 1) == largest(x)[:, None]
    return jnp.where(settings[:, TEMPERATURE, None] > 0, jax.nn.softmax(x, axis=-1), only.astype(x.dtype))


def likeliest(x: Array, count: int) -> tuple[Array, Array]:
    """The `count` largest of each row and where they are. One pass for each: XLA's top-k on a GPU is a sort beyond sixteen."""
    rows = jnp.arange(x.shape[0])

    def one(i: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        rest, ids, values = carry
        index = largest(rest)
        return rest.at[rows, index].set(-jnp.inf), ids.at[:, i].set(index), values.at[:, i].set(rest[rows, index])

    start = (x, jnp.zeros((x.shape[0], count), jnp.int32), jnp.zeros((x.shape[0], count), jnp.float32))
    _, ids, values = jax.lax.fori_loop(0, count, one, start)
    return ids, values


def accepted(hits: Array, drafts: Array, chosen: Array) -> tuple[Array, Array]:
    """The tokens [d, q] of rows and how many count: the drafts [d, q-1] up to the first that is no hit, then what was chosen [d, q] there."""
    count = jnp.sum(jnp.cumprod(hits.astype(jnp.int32), axis=1), axis=1)
    padded = jnp.concatenate([drafts, chosen[:, -1:]], axis=1)
    return jnp.where(jnp.arange(chosen.shape[1]) < count[:, None], padded, chosen), count + 1


def before(drafts: Array, drafted: Array, counts: Array) -> Array:
    """Counts [d·q, v] of decoding rows with, for each of their queries, the drafts that precede it counted as generated."""
    d, q = drafts.shape[0], drafts.shape[1] + 1
    first, query = numpy.triu_indices(q, 1)  # every pair of a draft and a query after it
    rows = jnp.arange(d)[:, None] * q + query
    return counts.at[rows, drafts[:, first]].add(2 * (first < drafted[:, None]).astype(counts.dtype))
