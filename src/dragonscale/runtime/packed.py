"""Frozen weights in few bits: blocks of 64 numbers along the last dim share a scale, the largest of them.

`nf4` has the sixteen quantiles of a normal distribution (Dettmers et al. 2023, arXiv:2305.14314), `int8` whole numbers
of the scale over 127, `fp8` E4M3 up to 448. Scales are kept in bf16: a weight in nf4 takes 0.53 bytes. A line that uses
one widens it just before, again in the backward pass: a wide copy lives no longer than its matmul.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy

BLOCK = 64
_LEVELS = numpy.array(
    [
        -1.0,
        -0.6961928,
        -0.5250731,
        -0.3949175,
        -0.2844414,
        -0.1847734,
        -0.09105,
        0.0,
        0.0795803,
        0.1609302,
        0.2461123,
        0.3379152,
        0.4407098,
        0.562617,
        0.7229568,
        1.0,
    ],
    numpy.float32,
)
"""The numbers of NF4 (appendix E of the paper)."""
TYPES: dict[str, Any] = {"nf4": jnp.uint4, "int8": jnp.int8, "fp8": jnp.float8_e4m3fn}
_MOST = {jnp.dtype(jnp.int8): 127.0, jnp.dtype(jnp.float8_e4m3fn): 448.0}


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Packed:
    """Codes [..., n] and the scales [..., n / 64] of their blocks, all dims laid out as the weight's."""

    codes: Any
    scale: Any

    def __getitem__(self, at: Any) -> "Packed":
        return Packed(self.codes[at], self.scale[at])

    def map(self, change: Callable[[Any], Any]) -> "Packed":
        """Both, changed alike."""
        return Packed(change(self.codes), change(self.scale))

    def widened(self, dtype: Any) -> jax.Array:
        """The numbers that the codes stand for."""
        if self.codes.dtype == jnp.uint4:
            wide = jnp.asarray(_LEVELS, jnp.bfloat16)[self.codes.astype(jnp.int32)]
        else:
            wide = self.codes.astype(jnp.float32) / _MOST[self.codes.dtype]
        blocks = wide.reshape(*self.scale.shape, BLOCK) * self.scale[..., None]
        return blocks.reshape(self.codes.shape).astype(dtype)


def packed(value: jax.Array, kind: str) -> Packed:
    """A weight in a format of `TYPES`."""
    blocks = value.astype(jnp.float32).reshape(*value.shape[:-1], -1, BLOCK)
    scale = jnp.maximum(jnp.abs(blocks).max(-1), 1e-20).astype(jnp.bfloat16)
    share = (blocks / scale[..., None].astype(jnp.float32)).reshape(value.shape)
    if kind == "nf4":
        levels = jnp.asarray(_LEVELS)
        codes = jnp.searchsorted((levels[1:] + levels[:-1]) / 2, share)
    elif kind == "int8":
        codes = jnp.clip(jnp.round(share * 127), -127, 127)
    else:
        codes = jnp.clip(share * 448, -448, 448)
    return Packed(codes.astype(TYPES[kind]), scale)
