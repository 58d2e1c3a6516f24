"""Rotary position embeddings: every pair of a head's channels turns at its own frequency."""

import math

import jax
import jax.numpy as jnp

from dragonscale.runtime.numerics import Rope


def frequencies(rope: Rope, size: int) -> jax.Array:
    """Radians per position of each pair of `size` channels, stretched for long contexts as the config says."""
    base = rope.theta ** -(jnp.arange(0, size, 2, dtype=jnp.float32) / size)
    if rope.kind == "linear":
        return base / rope.factor
    if rope.kind == "llama3":
        wavelength = 2 * math.pi / base
        smooth = (rope.original / wavelength - rope.low) / (rope.high - rope.low)
        middle = (1 - smooth) * base / rope.factor + smooth * base
        stretched = jnp.where(wavelength > rope.original / rope.low, base / rope.factor, base)
        between = (wavelength <= rope.original / rope.low) & (wavelength >= rope.original / rope.high)
        return jnp.where(between, middle, stretched)
    if rope.kind == "yarn":

        def turning(turns: float) -> float:
            return size * math.log(rope.original / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))

        low, high = turning(rope.beta_fast), turning(rope.beta_slow)
        low, high = (math.floor(low), math.ceil(high)) if rope.whole_turns else (low, high)
        low, high = max(low, 0), min(high, size - 1)
        ramp = jnp.clip((jnp.arange(size // 2, dtype=jnp.float32) - low) / max(high - low, 1e-3), 0, 1)
        return base / rope.factor * ramp + base * (1 - ramp)
    return base


def rotate(x: jax.Array, positions: jax.Array, rope: Rope, first: int = 0) -> jax.Array:
    """Turn the channels of x[b, t, …, h] from `first` on by their positions[b, t]; channels before stay as they are."""
    if rope.kind == "none":
        return x
    whole = x.shape[-1] - first
    size = int(whole * rope.part) // 2 * 2
    angles = positions[..., None].astype(jnp.float32) * frequencies(rope, size)
    angles = angles.reshape(*positions.shape, *[1] * (x.ndim - 3), size // 2)
    cosine, sine = jnp.cos(angles) * rope.magnitude, jnp.sin(angles) * rope.magnitude
    turning = x[..., first : first + size].astype(jnp.float32)
    if rope.interleaved:
        even, odd = turning[..., 0::2], turning[..., 1::2]
        turned = jnp.concatenate([even * cosine - odd * sine, odd * cosine + even * sine], -1)
    else:
        left, right = jnp.split(turning, 2, -1)
        turned = jnp.concatenate([left * cosine - right * sine, right * cosine + left * sine], -1)
    return jnp.concatenate([x[..., :first], turned.astype(x.dtype), x[..., first + size :]], -1)
