"""Numbers in int8 with scales: weights by output channel, what is cached by token and head.

Symmetric: a value is its integer times its scale, and the largest of those that share a scale is 127. A matmul with
such a weight multiplies integers as they are and scales its result, since a scale belongs to a whole output channel:
the conversion is fused into the matmul's read, and no wide copy of the weight is ever made.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

LARGEST = 127
_TINY = 1e-20


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Quantized:
    """Integers, and scales in the order of the output's dims (of experts: the expert first)."""

    values: jax.Array
    scale: jax.Array


@dataclass(frozen=True)
class Product:
    """What a matmul made, and where a kernel left it as parts [S, tokens, columns] to be added up, these: a kernel that
    reads them itself saves the sum, which XLA drops when nobody reads it."""

    value: jax.Array
    parts: jax.Array | None = None


def quantized(values: jax.Array, axes: tuple[int, ...], dtype: Any = jnp.float32) -> tuple[jax.Array, jax.Array]:
    """int8 and the scales of all that is not in `axes` (as kept dims of one). Integers are those of the scales as
    stored."""
    wide = values.astype(jnp.float32)
    scale = jnp.maximum(jnp.abs(wide).max(axes, keepdims=True) / LARGEST, _TINY).astype(dtype)
    whole = jnp.round(wide / scale.astype(jnp.float32))
    return jnp.clip(whole, -LARGEST, LARGEST).astype(jnp.int8), scale


def widened_values(values: jax.Array, scale: jax.Array, dtype: Any) -> jax.Array:
    """The numbers that integers [..., h] with scales [...] stand for."""
    return (values.astype(jnp.float32) * scale[..., None].astype(jnp.float32)).astype(dtype)
