"""Matmuls in fp8: operands rounded to e4m3, gradients that come back to e5m2, each tensor by a scale of its own.

The scale is that of the tensor as it is now (current scaling, as Transformer Engine and torchao call it), a chip's part
of it for itself, and a power of two, so that nothing but the rounding to eight bits is lost. XLA's compiler for GPUs
takes numbers in fp8, widened and multiplied by a scale, in front of a matmul as the operands of a matmul in fp8; chips
without one multiply the same numbers in bf16.
"""

import functools

import jax
import jax.numpy as jnp

FORWARD, BACKWARD = jnp.float8_e4m3fn, jnp.float8_e5m2
"""Of what is multiplied, and of its gradient, whose numbers lie further apart (Micikevicius et al. 2022)."""


def rounded(x: jax.Array, kind: type) -> jax.Array:
    """Numbers as a format in eight bits has them, its largest at or above the largest of them."""
    most = jnp.abs(x).max().astype(jnp.float32)
    part, power = jnp.frexp(jnp.where(most > 0, most, 1.0) / float(jnp.finfo(kind).max))
    scale = jnp.ldexp(jnp.float32(1.0), jnp.clip(power - (part == 0.5), -100, 100)).astype(x.dtype)
    return (x / scale).astype(kind).astype(x.dtype) * scale


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def narrow_einsum(text: str, x: jax.Array, weight: jax.Array) -> jax.Array:
    """An einsum of an input and a weight in fp8, and so are those of its gradients."""
    return jnp.einsum(text, rounded(x, FORWARD), rounded(weight, FORWARD))


def _backward(text: str, operands: tuple[jax.Array, jax.Array], slope: jax.Array) -> tuple[jax.Array, ...]:
    x, weight = operands
    _, pull = jax.vjp(functools.partial(jnp.einsum, text), rounded(x, FORWARD), rounded(weight, FORWARD))
    return pull(rounded(slope, BACKWARD))


narrow_einsum.defvjp(lambda text, *operands: (narrow_einsum(text, *operands), operands), _backward)
