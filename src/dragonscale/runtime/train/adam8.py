"""Adam's two moments in 8 bits (Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization").

Every 256 numbers have a scale, the largest of them, and each is the nearest of 256 values between -1 and 1 (0 and 1 for
the second moment) times that. The values lie ever closer towards zero, as bitsandbytes and torchao have them.

A block lies on one chip: it goes along the last dim of a weight whose part on a chip is a multiple of 256, or, where
there is none, along that with the largest power of two, in shorter blocks. Vectors, of which there are few, stay in
fp32.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy
import optax

from dragonscale.runtime.parameters import Shardings, Tree

BLOCK = 256
SHORTEST = 16
"""Below so many numbers to a scale, moments stay in fp32."""
DECADES = 7


def values_between(lowest: int) -> numpy.ndarray:
    """The 256 values, in order, that a number from `lowest` (-1 or 0) to 1 is rounded to: in each of seven decades the
    middles of equal parts, of which the next decade has twice as many.

    >>> len(values_between(-1)), len(values_between(0)), float(values_between(0)[-1])
    (256, 256, 1.0)
    """
    found = [numpy.zeros(1), numpy.ones(1)]
    for decade in range(DECADES):
        edges = numpy.linspace(0.1, 1, 2 ** (decade + 1 + lowest) + 1)
        middles = (edges[:-1] + edges[1:]) / 2 * 10.0 ** (decade + 1 - DECADES)
        found += [middles, -middles] if lowest else [middles]
    return numpy.sort(numpy.concatenate(found)).astype(numpy.float32)


TABLES = {"mu": values_between(-1), "nu": values_between(0)}
"""Of each moment; the second one is never negative."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Blocks:
    """A moment in 8 bits: codes in the shape of their weight, and scales, fewer along one dim."""

    codes: jax.Array
    scale: jax.Array

    def widened(self, table: numpy.ndarray) -> jax.Array:
        """The moment in fp32."""
        cut = _cut(self.codes, self.scale.shape)
        wide = jnp.asarray(table)[cut.astype(jnp.int32)] * jnp.expand_dims(self.scale, cut.ndim - 1)
        return _joined(wide, self.codes.shape, self.scale.shape)

    def having(self, moment: jax.Array, table: numpy.ndarray) -> "Blocks":
        """Another moment in the same blocks."""
        cut = _cut(moment, self.scale.shape)
        scale = jnp.abs(cut).max(-1)
        share = cut / jnp.expand_dims(jnp.where(scale > 0, scale, 1.0), -1)
        return Blocks(_joined(nearest_codes(share, table), moment.shape, self.scale.shape), scale)


def nearest_codes(share: jax.Array, table: numpy.ndarray) -> jax.Array:
    """Of numbers between -1 and 1 the places in a table of the nearest of its values, by arithmetic alone: of a search
    in the table, which is gathers of gathers, XLA makes code that takes long to compile and to run."""
    zero = int(numpy.searchsorted(table, 0.0))
    size, place, before = jnp.abs(share), jnp.zeros(share.shape, jnp.int32), 0
    for decade in range(DECADES):
        parts = 2**decade * (1 if zero else 2)
        part = jnp.floor((size * 10.0 ** (DECADES - 1 - decade) - 0.1) * (parts / 0.9)).astype(jnp.int32)
        edge = (table[zero + before] + table[zero + before + 1]) / 2
        place = jnp.where(size > edge, before + 1 + jnp.clip(part, 0, parts - 1), place)
        before += parts
    place = jnp.where(share > (table[-2] + 1) / 2, before + 1, place)
    return (zero + jnp.where(share < 0, -place, place)).astype(jnp.uint8)


def _along(shape: tuple[int, ...], scales: tuple[int, ...]) -> int:
    return next(at for at, (size, count) in enumerate(zip(shape, scales, strict=True)) if size != count)


def _cut(x: jax.Array, scales: tuple[int, ...]) -> jax.Array:
    """[…, n, …] as […, n / block, …, block], for scales of the shape of the first dims."""
    at = _along(x.shape, scales)
    return jnp.moveaxis(x.reshape(*scales[: at + 1], -1, *scales[at + 1 :]), at + 1, -1)


def _joined(cut: jax.Array, shape: tuple[int, ...], scales: tuple[int, ...]) -> jax.Array:
    return jnp.moveaxis(cut, -1, _along(shape, scales) + 1).reshape(shape)


def scale_shapes(params: Tree, states: Shardings) -> dict[str, dict[str, tuple[int, ...] | None]]:
    """The shape of every weight's scales; None where its moments stay in fp32."""

    def of(name: str, own: str, shape: tuple[int, ...]) -> tuple[int, ...] | None:
        blocks = [math.gcd(size, BLOCK) for size in states[name][own].shard_shape(shape)]
        best = max(range(len(shape)), key=lambda at: (blocks[at], at))
        if not own.startswith("W") or blocks[best] < SHORTEST:
            return None
        return tuple(size // blocks[best] if at == best else size for at, size in enumerate(shape))

    return {name: {own: of(name, own, leaf.shape) for own, leaf in weights.items()} for name, weights in params.items()}


def in_eight_bits(inner: optax.GradientTransformation, states: Shardings) -> optax.GradientTransformation:
    """Moments kept in 8 bits between steps, computed with in fp32. `states` says how each weight's state lies."""

    def init(params: Any) -> Any:
        scales = scale_shapes(params, states)

        def blank(name: str, own: str, leaf: jax.Array, table: numpy.ndarray) -> Any:
            shape = scales[name][own]
            if shape is None:
                return jnp.zeros(leaf.shape, jnp.float32)
            zero = int(numpy.searchsorted(table, 0.0))
            return Blocks(jnp.full(leaf.shape, zero, jnp.uint8), jnp.zeros(shape, jnp.float32))

        def moment(table: numpy.ndarray) -> Tree:
            return {
                name: {own: blank(name, own, leaf, table) for own, leaf in weights.items()}
                for name, weights in params.items()
            }

        return inner.init(params)._replace(**{name: moment(table) for name, table in TABLES.items()})

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        wide = {moment: _each(Blocks.widened, table, getattr(state, moment)) for moment, table in TABLES.items()}
        changed, after = inner.update(updates, state._replace(**wide), params)
        kept = {
            moment: _each(Blocks.having, table, getattr(state, moment), getattr(after, moment))
            for moment, table in TABLES.items()
        }
        return changed, after._replace(**kept)

    return optax.GradientTransformation(init, update)


def _each(change: Callable[..., Any], table: numpy.ndarray, old: Any, *new: Any) -> Any:
    """A change of every moment in 8 bits; of one in fp32, the newest."""

    def one(blocks: Any, *moments: jax.Array) -> Any:
        return change(blocks, *moments, table) if isinstance(blocks, Blocks) else (blocks, *moments)[-1]

    return jax.tree.map(one, old, *new, is_leaf=lambda value: isinstance(value, Blocks))


def block_sizes(state: Any) -> str:
    """How many numbers of an optimizer's (abstract) state have a scale, and how often, as a checkpoint must have it."""
    leaves = jax.tree.leaves(state, is_leaf=lambda value: isinstance(value, Blocks))
    found = Counter(
        math.prod(one.codes.shape) // math.prod(one.scale.shape) for one in leaves if isinstance(one, Blocks)
    )
    return ", ".join(f"{count} of {size}" for size, count in sorted(found.items()))
