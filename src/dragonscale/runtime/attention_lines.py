"""The lines of attention: what is cached, rotary position embeddings (every pair of a head's channels turns at its own
frequency), and softmax(Q·K)·V on whatever part of it a chip has.
"""

import math

import jax
import jax.numpy as jnp

from dragonscale.models.program import Op
from dragonscale.physics.notation import Array
from dragonscale.runtime.attention import Reach, Scoring, attend_causally, matching_heads
from dragonscale.runtime.numerics import Rope
from dragonscale.runtime.one_pass import SectionPass
from dragonscale.runtime.ring_attention import ring_attend


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


def rope_of(run: SectionPass) -> Rope:
    """The rotary embeddings of a layer: those with a window may have their own."""
    return (run.section.span is not None and run.numerics.near_rope) or run.numerics.rope


def cache(op: Op, run: SectionPass) -> None:
    """What decoding remembers: keys turned to their positions, then kept (or added to what was kept before)."""
    for array in op.inputs:
        value = run.tensors[array.name]
        if array.names[-1] in ("h", "r"):  # keys, whole or their rotary part; values and latents stay
            value = rotate(value, run.positions_of(run.held(array)), rope_of(run))
        if run.stored is not None:
            value = run.stored.write(array.name, value)
        run.tensors[array.name] = run.kept[array.name] = value


def _absorbed_inputs(run: SectionPass) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Latent attention without expansion: the query's own part went through the key expansion, its rotary part turns,
    and the latents are keys and values of one head that all share."""
    dims = run.section.dims
    rotary = rotate(run.tensors["Q"], run.positions, rope_of(run), dims["p"])[..., dims["p"] :]
    latent, shared = run.tensors["C"], run.tensors["Kr"]
    query = jnp.concatenate([run.tensors["Qa"], rotary], -1)
    return query, jnp.concatenate([latent, shared], -1)[:, :, None], latent[:, :, None]


def attend(op: Op, run: SectionPass) -> None:
    dims, numerics = run.section.dims, run.numerics
    if "l" in op.inputs[0].names:  # queries over latents: absorbed
        query, key, value = _absorbed_inputs(run)
        scale = numerics.attention_scale or (dims["p"] + dims["r"]) ** -0.5
        assert run.stored is not None
        how = Scoring(Reach(run.section.span, run.section.chunk), scale, numerics.attention_cap)
        return run.put(op, run.stored.attend(query, key, value, how))
    query, key, value = (run.operand(array, op) for array in op.inputs)
    first = dims["p"] if "r" in dims and "p" in dims else 0
    held = run.held(op.inputs[0])
    at = run.positions_of(held)
    query = rotate(query, at, rope_of(run), first)
    split, kept = held.dims[2].axes, run.held(op.inputs[1]).dims[2].axes
    if split and not kept and not ("k" in dims and run.place.copied("k", dims)):
        whole = (dims["n"] // key.shape[2], query.shape[2], run.place.index(split))
        key, value = matching_heads(key, *whole), matching_heads(value, *whole)
    scale = numerics.attention_scale or query.shape[-1] ** -0.5
    sinks = run.weight(op.weights[0], op) if op.weights else None
    how = Scoring(Reach(run.section.span, run.section.chunk), scale, numerics.attention_cap, sinks)
    if run.stored is not None:
        made = run.stored.attend(query, key, value, how)
    elif key.shape[1] < run.positions.shape[1]:
        made = ring_attend(query, key, value, _queries(run, held, query), how)
    else:
        made = attend_causally(query, key, value, _queries(run, held, query), _of_batch(run.positions, query), how)
    return run.put(op, made)


def _queries(run: SectionPass, held: Array, query: jax.Array) -> jax.Array:
    """Positions of queries, with where their documents begin if those are kept apart."""
    at = _of_batch(run.positions_of(held), query)
    return at if run.setting.begins is None else jnp.stack([at, run.begins_of(held)], -1)


def _of_batch(positions: jax.Array, query: jax.Array) -> jax.Array:
    return jnp.broadcast_to(positions, (query.shape[0], positions.shape[1]))
