"""From logits to a distribution and from a distribution to a token, on the device: pure functions over rows of logits
[n, v].

Every filter keeps the tokens above some value, so none of them sorts: top-k keeps those with fewer than k tokens above
them, top-p those whose betters have less than p of the probability. That value is searched for in the bits of the
number, two at a time, which is exact: for 64 rows of 128k logits on an H200 0.16 ms each, where the largest 1,024 take
1.1 ms. Tokens that are equally likely stay or go together.

A token is drawn by adding Gumbel noise to its logit and taking the largest. The noise depends on the request's seed and
on the token's position and on nothing else.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy

TOKEN, ACCEPT, DRAFT = range(3)
"""What noise is for: the three are independent at the same position, as rejection sampling needs them."""
EDITS = 320
"""Tokens of a sequence whose logits are edited: OpenAI's 300 for a bias, and ends."""
STATE = numpy.dtype(
    [("settings", "f4", 7), ("seed", "u4", 2), ("ids", "i4", EDITS), ("added", "f4", EDITS), ("until", "i4", EDITS)]
)
"""What a slot holds: temperature, top-k, top-p, min-p, presence, frequency and repetition; the seed; tokens whose
logits get something added while the sequence is shorter than `until`."""
DIGIT = 2
"""Bits that a pass of a search finds: more are fewer passes with more sums in each, and slower."""

Array = Any


class SlotState(NamedTuple):
    """`STATE` of rows, on the device."""

    settings: Array
    seed: Array
    ids: Array
    added: Array
    until: Array

    @classmethod
    def unpacked(cls, words: Array) -> "SlotState":
        """The fields from the words [n, w] that the host sent."""
        parts = jnp.split(words, numpy.cumsum([7, 2, EDITS, EDITS]), axis=-1)
        kinds = (jnp.float32, jnp.uint32, jnp.int32, jnp.float32, jnp.int32)
        return cls(*(jax.lax.bitcast_convert_type(part, kind) for part, kind in zip(parts, kinds, strict=True)))

    def keys(self, positions: Array, purpose: int) -> Array:
        """A random key for each row."""
        seeded = jax.random.wrap_key_data(self.seed, impl="threefry2x32")
        return jax.vmap(lambda key, position: jax.random.fold_in(jax.random.fold_in(key, position), purpose))(
            seeded, positions
        )

    def noise(self, positions: Array, purpose: int, size: int) -> Array:
        """Noise [n, size] whose sum with log probabilities is largest at a token drawn from them."""
        return jax.vmap(lambda key: jax.random.gumbel(key, (size,), jnp.float32))(self.keys(positions, purpose))


def shaped(x: Array, state: SlotState, positions: Array, counts: Array, bits: Array) -> Array:
    """Logits after penalties, additions and a grammar's mask, in this order. `counts` [n, v] are twice how often a
    token was generated, plus one if the prompt has it; `bits` [n, w] are 32 allowed tokens each."""
    presence, frequency, repetition = (state.settings[:, i, None] for i in (4, 5, 6))
    x = jnp.where(counts > 0, jnp.where(x > 0, x / repetition, x * repetition), x)
    x = x - frequency * (counts >> 1) - presence * (counts > 1)
    added = jnp.where(positions[:, None] + 1 < state.until, state.added, 0)
    x = x.at[jnp.arange(x.shape[0])[:, None], state.ids].add(added)
    allowed = (bits[:, :, None] >> jnp.arange(32, dtype=jnp.uint32)) & 1
    return jnp.where(allowed.reshape(bits.shape[0], -1)[:, : x.shape[1]] > 0, x, -jnp.inf)


def tempered(x: Array, state: SlotState, filters: bool) -> Array:
    """Logits divided by the temperature (of a greedy row as they are) and, with `filters`, with what min-p, then top-k,
    then top-p take away at -inf; top-p is of the probability that the others leave."""
    temperature, top_k, top_p, min_p = (state.settings[:, i] for i in range(4))
    x = x / jnp.where(temperature > 0, temperature, 1)[:, None]
    if not filters:
        return x
    best = jnp.max(x, axis=-1, keepdims=True)
    x = jnp.where(x >= best + jnp.log(min_p)[:, None], x, -jnp.inf)
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32)
    keys = jnp.where(bits >> 31 > 0, ~bits, bits | jnp.uint32(1 << 31))  # these order as the floats do
    kth = _lowest_kept(keys, jnp.ones_like(x), jnp.where(top_k > 0, top_k, jnp.inf))
    weights = jnp.where(keys >= kth[:, None], jnp.exp(x - best), 0)
    enough = jnp.where(top_p < 1, top_p * jnp.sum(weights, axis=-1), jnp.inf)
    floor = jnp.maximum(kth, _lowest_kept(keys, weights, enough))
    return jnp.where(keys >= floor[:, None], x, -jnp.inf)


def _lowest_kept(keys: Array, weights: Array, target: Array) -> Array:
    """For each row the least number that has less than `target` of the weight strictly above it, from its highest bits
    down."""

    def digit(step: Array, found: Array) -> Array:
        shift = (32 - DIGIT - DIGIT * step).astype(jnp.uint32)
        bounds = [found + (jnp.uint32(c) << shift) - 1 for c in range(1, 2**DIGIT)]
        above = [jnp.sum(jnp.where(keys > bound[:, None], weights, 0), axis=-1) for bound in bounds]
        return found + (sum((a >= target).astype(jnp.uint32) for a in above) << shift)

    return jax.lax.fori_loop(0, 32 // DIGIT, digit, jnp.zeros(keys.shape[0], jnp.uint32))


def distribution(x: Array, state: SlotState) -> Array:
    """Probabilities of tempered logits; all on one token in a greedy row."""
    only = jax.nn.one_hot(jnp.argmax(x, axis=-1), x.shape[1], dtype=x.dtype)
    return jnp.where(state.settings[:, :1] > 0, jax.nn.softmax(x, axis=-1), only)


def likeliest(x: Array, count: int) -> tuple[Array, Array]:
    """The `count` largest of each row and where they are. One pass for each: XLA's top-k on a GPU is a sort beyond
    sixteen."""
    rows = jnp.arange(x.shape[0])

    def one(rest: Array, _: Any) -> tuple[Array, tuple[Array, Array]]:
        index = jnp.argmax(rest, axis=-1)
        return rest.at[rows, index].set(-jnp.inf), (index, rest[rows, index])

    ids, values = jax.lax.scan(one, x, length=count)[1]
    return ids.T, values.T
