"""Attention over a sequence that is split over chips: ring attention, where keys and values travel and queries stay.

Every chip holds a part of the queries, keys and values. In as many steps as there are chips, each attends its queries
to the keys that it holds at the moment and passes those on; a running maximum and sum join the parts into one exact
softmax. Only one other part is held at a time, in the backward pass too: that recomputes the scores from the logarithms
of the sums, and gradients of keys and values travel along until they are home. Queries are taken in blocks of
`ATTENTION_BLOCK`, so that no more than one block's scores are alive.

What a query may see is decided by positions, which travel with the keys, so the sequence may be split in any order. In
the plain order the last chip works most; `balanced_order` gives an early and a late block to each, so that all work
alike. Parts of which no query sees any key are skipped.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy
from jax import Array
from jax.sharding import Mesh, PartitionSpec

from dragonscale.errors import InputError
from dragonscale.runtime import attention
from dragonscale.runtime.attention import UNSEEN, Reach, Scoring, grouped, masked_scores, places_of
from dragonscale.runtime.rings import shift


@dataclass(frozen=True)
class AttentionRing:
    """What the steps of a ring share: the mesh axis, and how keys are scored (a sink is the first step's own)."""

    axis: str
    how: Scoring

    def passed(self, parts: tuple[Array, ...]) -> tuple[Array, ...]:
        """Each part at the next chip."""
        return tuple(shift(part, self.axis, 1) for part in parts)


def ring_attend(query: Array, key: Array, value: Array, positions: Array, how: Scoring, axis: str = "context") -> Array:
    """One chip's part of causal attention, inside `jax.shard_map`: as `attention.attend_causally`, with every array's
    sequence split over `axis`."""
    own = grouped(query, key)
    heads = own.shape[2:4]
    sunk = jnp.full(heads, UNSEEN) if how.sinks is None else how.sinks.reshape(heads).astype(jnp.float32)
    result: Array = _ring(AttentionRing(axis, replace(how, sinks=None)), own, key, value, positions, sunk)
    return result.reshape(*query.shape[:3], value.shape[-1]).astype(value.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _ring(ring: AttentionRing, query: Array, key: Array, value: Array, positions: Array, sinks: Array) -> Array:
    return _forward(ring, query, key, value, positions, sinks)[0]


def _forward(
    ring: AttentionRing, query: Array, key: Array, value: Array, positions: Array, sinks: Array
) -> tuple[Array, tuple[Array, ...]]:
    """The result [b, t, k, g, v], and what the backward pass needs: the inputs, the result, and the logarithms of the
    sums."""
    b, t, k, g, _ = query.shape
    mine = (_blocks(query, 1), _blocks(positions, 1))
    most = _blocks(jnp.broadcast_to(sinks[None, :, :, None], (b, k, g, t)), 3)
    total = jnp.where(most > UNSEEN, 1.0, 0.0)
    output = _blocks(jnp.zeros((b, t, k, g, value.shape[-1]), jnp.float32), 1)

    def joined(state: tuple[Array, ...], key: Array, value: Array, places: Array) -> tuple[Array, ...]:
        def block(none: None, each: tuple[Array, ...]) -> tuple[None, tuple[Array, ...]]:
            return none, _joined(ring, each, key, value, places)

        return _each_block(block, None, (*mine, *state))[1]

    state, travelling = (most, total, output), (key, value, places_of(positions))
    for step in range(jax.lax.axis_size(ring.axis)):
        coming = ring.passed(travelling) if step + 1 < jax.lax.axis_size(ring.axis) else travelling
        seen = ring.how.reach.mask(positions, travelling[2]).any()
        state = jax.lax.cond(seen, joined, lambda state, *_: state, state, *travelling)
        travelling = coming
    most, total, output = (_whole(each, dim) for each, dim in zip(state, (3, 3, 1), strict=True))
    total = jnp.maximum(total, jnp.finfo(jnp.float32).tiny)
    result = output / _by_token(total)
    return result, (query, key, value, positions, sinks, result, most + jnp.log(total))


def _joined(ring: AttentionRing, mine: tuple[Array, ...], key: Array, value: Array, places: Array) -> tuple[Array, ...]:
    """The running maximum, sum and result of a block of queries, after some more keys."""
    query, at, most, total, output = mine
    scores = masked_scores(query, key, at, places, ring.how)
    higher = jnp.maximum(most, scores.max(-1))
    weights = jnp.where(scores > UNSEEN, jnp.exp(scores - higher[..., None]), 0.0)
    kept = jnp.exp(most - higher)
    part = jnp.einsum("bkgts,bskv->btkgv", weights.astype(value.dtype), value, preferred_element_type=jnp.float32)
    return higher, total * kept + weights.sum(-1), output * _by_token(kept) + part


def _by_token(x: Array) -> Array:
    """[b, k, g, t] as [b, t, k, g, 1]."""
    return jnp.moveaxis(x, -1, 1)[..., None]


def _blocks(x: Array, dim: int) -> Array:
    """Blocks of queries in front, cut from one of the dims: a single one where there are few queries or they do not
    divide."""
    tokens, size = x.shape[dim], attention.ATTENTION_BLOCK
    count = tokens // size if tokens % size == 0 else 1
    return jnp.moveaxis(x.reshape(*x.shape[:dim], count, tokens // count, *x.shape[dim + 1 :]), dim, 0)


def _whole(x: Array, dim: int) -> Array:
    """The inverse of `_blocks`."""
    joined = jnp.moveaxis(x, 0, dim)
    return joined.reshape(*joined.shape[:dim], -1, *joined.shape[dim + 2 :])


def _each_block(function: Callable[..., Any], carry: Any, mine: tuple[Array, ...]) -> tuple[Any, Any]:
    """A scan over blocks of queries; of a single block, plainly the function."""
    if mine[0].shape[0] > 1:
        return jax.lax.scan(function, carry, mine)
    carry, made = function(carry, jax.tree.map(lambda each: each[0], mine))
    return carry, jax.tree.map(lambda each: each[None], made)


def _backward(
    ring: AttentionRing, saved: tuple[Array, ...], gradient: Array
) -> tuple[Array, Array, Array, None, Array]:
    query, key, value, positions, sinks, result, logarithm = saved
    gradient = gradient.astype(jnp.float32)
    shared = jnp.moveaxis((gradient * result).sum(-1), 1, -1)
    mine = tuple(
        _blocks(each, dim) for each, dim in ((query, 1), (positions, 1), (gradient, 1), (shared, 3), (logarithm, 3))
    )

    def parts(key: Array, value: Array, places: Array) -> tuple[Array, ...]:
        def block(so_far: tuple[Array, ...], each: tuple[Array, ...]) -> tuple[tuple[Array, ...], Array]:
            to_query, *more = _gradients(ring, each, key, value, places)
            return tuple(one + other for one, other in zip(so_far, more, strict=True)), to_query

        zeros = tuple(jnp.zeros(each.shape, jnp.float32) for each in (key, value))
        so_far, to_query = _each_block(block, zeros, mine)
        return _whole(to_query, 1), *so_far

    def nothing(*_: Array) -> tuple[Array, ...]:
        return tuple(jnp.zeros(each.shape, jnp.float32) for each in (query, key, value))

    to_query, *homeward = nothing()
    travelling = (key, value, places_of(positions))
    size = jax.lax.axis_size(ring.axis)
    for step in range(size):
        coming = ring.passed(travelling) if step + 1 < size else travelling
        seen = ring.how.reach.mask(positions, travelling[2]).any()
        to_query_part, *more = jax.lax.cond(seen, parts, nothing, *travelling)
        to_query += to_query_part
        # Gradients are added outside, so that they travel while the next parts are computed; the last hop brings them
        # home.
        homeward = ring.passed(tuple(so_far + part for so_far, part in zip(homeward, more, strict=True)))
        travelling = coming
    to_sinks = -(jnp.exp(sinks[None, :, :, None] - logarithm) * shared).sum((0, 3))
    to_key, to_value = homeward
    return to_query.astype(query.dtype), to_key.astype(key.dtype), to_value.astype(value.dtype), None, to_sinks


def _gradients(
    ring: AttentionRing, mine: tuple[Array, ...], key: Array, value: Array, places: Array
) -> tuple[Array, ...]:
    """What a block of queries and some keys give to the gradients of the queries, the keys and the values."""
    query, at, gradient, shared, logarithm = mine
    scores, of_scores = jax.vjp(lambda q, k: masked_scores(q, k, at, places, ring.how), query, key)
    weights = jnp.where(scores > UNSEEN, jnp.exp(scores - logarithm[..., None]), 0.0)
    slope = jnp.einsum("btkgv,bskv->bkgts", gradient, value.astype(jnp.float32))
    to_query, to_key = of_scores(weights * (slope - shared[..., None]))
    to_value = jnp.einsum("bkgts,btkgv->bskv", weights, gradient)
    return to_query.astype(jnp.float32), to_key.astype(jnp.float32), to_value


_ring.defvjp(_forward, _backward)


def ring_attention(
    mesh: Mesh,
    reach: Reach,
    scale: float,
    cap: float = 0.0,
    axis: str = "context",
    heads: str | None = None,
    batch: tuple[str, ...] = (),
) -> Callable[..., Array]:
    """The function of whole arrays (query, key, value, positions), with sequences split over `axis`, heads over `heads`
    and sequences of the batch over `batch`."""
    missing = {axis, *batch, *([heads] if heads else [])} - set(mesh.shape)
    if missing:
        raise InputError(f"Ring attention over {min(missing)} needs a mesh that has it, not {dict(mesh.shape)}.")
    array, places = PartitionSpec(batch or None, axis, heads), PartitionSpec(batch or None, axis)

    def local(query: Array, key: Array, value: Array, positions: Array) -> Array:
        return ring_attend(query, key, value, positions, Scoring(reach, scale, cap), axis)

    return jax.shard_map(local, mesh=mesh, in_specs=(array, array, array, places), out_specs=array, check_vma=False)


def balanced_order(length: int, chips: int) -> numpy.ndarray:
    """The order in which tokens are split so that every chip has as many pairs of query and key to compute.

    >>> balanced_order(8, 2).tolist()
    [0, 1, 6, 7, 2, 3, 4, 5]
    """
    if length % (2 * chips):
        raise InputError(
            f"A sequence of {length} tokens cannot be split evenly in two blocks to each of {chips} chips; make "
            f"it a multiple of {2 * chips}."
        )
    blocks = numpy.arange(length).reshape(2 * chips, -1)
    return numpy.concatenate([blocks[[chip, 2 * chips - 1 - chip]].reshape(-1) for chip in range(chips)])
