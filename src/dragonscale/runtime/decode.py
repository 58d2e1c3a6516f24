"""Prefill and decode: the same program with a cache of what its `cache(...)` lines name.

Prefill runs whole prompts and keeps their keys and values in arrays as long as the longest sequence will be; decode
runs single tokens against them. Latent attention decodes in its absorbed form, on the latents themselves. Sequences of
a batch may have different lengths: each has its own position, and what lies beyond it is never seen.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dragonscale.models.latent import absorbed
from dragonscale.models.program import Program, Section
from dragonscale.physics.notation import Array
from dragonscale.runtime.attention import Scoring, attend_cached
from dragonscale.runtime.forward import embed, head, layer_weights, over_layers, stretches
from dragonscale.runtime.lines import PassSetting, SectionPass, Tensors, run_section
from dragonscale.runtime.parameters import Tree

Cache = list[list[Tensors]]
"""For each stretch of layers and each place of its pattern: cached arrays [times, b, s, …]."""


def empty_cache(program: Program, batch: int, length: int, dtype: Any = jnp.bfloat16, listed: bool = False) -> Cache:
    """Room for sequences of up to `length` tokens; `listed` has an array for each layer, to go with
    unstacked weights."""

    def room(section: Section, array: Array, times: int) -> Any:
        shape = tuple({**section.dims, "b": batch, "s": length}[name] for name in array.names)
        return [jnp.zeros(shape, dtype) for _ in range(times)] if listed else jnp.zeros((times, *shape), dtype)

    return cache_of(program, room)


def cache_of(program: Program, make: Callable[[Section, Array, int], Any]) -> Cache:
    """A cache made by a function of (section, cached array, layers)."""
    sections = {section.name: section for section in program.sections}
    return [
        [
            {array.name: make(sections[place], array, stretch.times) for array in cached(sections[place])}
            for place in stretch.pattern
        ]
        for stretch in stretches(program.order)
    ]


def cached(section: Section) -> list[Array]:
    """What a section keeps."""
    return [array for op in section.ops if op.function == "cache" for array in op.inputs]


@dataclass(frozen=True)
class RowCache:
    """A layer's cached arrays [b, s, …] of sequences whose newest tokens stand at `positions` [b, t]."""

    arrays: Tensors
    positions: jax.Array

    def write(self, name: str, value: jax.Array) -> jax.Array:
        """New tokens put at their places of each sequence."""
        stored = self.arrays[name]
        rows = jnp.arange(stored.shape[0])[:, None]
        return stored.at[rows, self.positions].set(value.astype(stored.dtype))

    def attend(self, query: jax.Array, key: jax.Array, value: jax.Array, how: Scoring) -> jax.Array:
        return attend_cached(query, key, value, self.positions, how)


def _layers(
    params: Tree,
    program: Program,
    residual: jax.Array,
    positions: jax.Array,
    cache: Cache,
    setting: PassSetting,
    decoding: bool,
) -> tuple[jax.Array, Cache]:
    """All layers, and their cache written. A stack of caches is carried along and written in place, layer by layer:
    handed in and out of a scan it would be there twice."""
    sections = {section.name: absorbed(section) if decoding else section for section in program.sections}
    new: Cache = []

    def one(name: str, carry: jax.Array, own: Tensors, there: Tensors) -> tuple[jax.Array, Tensors]:
        stored = RowCache(there, positions) if decoding else None
        run = SectionPass(sections[name], setting, positions, own, stored=stored, tensors={"R": carry})
        carry = run_section(run)["R"]
        return carry, run.kept if decoding else {name: _put(there[name], value) for name, value in run.kept.items()}

    def listed(carry: jax.Array, both: Any, pattern: tuple[str, ...]) -> tuple[jax.Array, list[Tensors]]:
        kept: list[Tensors] = []
        for name, own, there in zip(pattern, *both, strict=True):
            carry, written = one(name, carry, own, there)
            kept.append(written)
        return carry, kept

    def stacked(carry: Any, both: Any, pattern: tuple[str, ...]) -> tuple[Any, None]:
        (residual, stacks), (weights, place) = carry, both
        written: list[Tensors] = []
        for name, own, stack in zip(pattern, weights, stacks, strict=True):
            with jax.named_scope("attention/cache"):
                there = jax.tree.map(lambda each: jax.lax.dynamic_index_in_dim(each, place, keepdims=False), stack)
            residual, kept = one(name, residual, own, there)
            put = partial(jax.lax.dynamic_update_index_in_dim, index=place, axis=0)
            with jax.named_scope("attention/cache"):
                written.append(jax.tree.map(put, stack, kept))
        return (residual, written), None

    for stretch, stored in zip(stretches(program.order), cache, strict=True):
        weights = layer_weights(params, stretch)
        if any(isinstance(each, list) for layer in stored for each in layer.values()):
            layer = partial(listed, pattern=stretch.pattern)
            residual, kept = over_layers(layer, residual, (weights, stored), stretch.times)
        else:
            layer = partial(stacked, pattern=stretch.pattern)
            (residual, kept), _ = jax.lax.scan(layer, (residual, stored), (weights, jnp.arange(stretch.times)))
        new.append(kept)
    return residual, new


@jax.named_scope("attention/cache")
def _put(stored: jax.Array, value: jax.Array) -> jax.Array:
    """A prompt's cache at the beginning of its room."""
    return jax.lax.dynamic_update_slice(stored, value.astype(stored.dtype), (0,) * stored.ndim)


def prefill(
    params: Tree, program: Program, tokens: jax.Array, lengths: jax.Array, cache: Cache, setting: PassSetting
) -> tuple[jax.Array, Cache]:
    """Logits [b, v] after the last token of each prompt of `lengths` tokens, and the cache filled."""
    positions = jnp.arange(tokens.shape[1])[None]
    residual = embed(params, program, tokens, positions, setting)
    residual, cache = _layers(params, program, residual, positions, cache, setting, decoding=False)
    with jax.named_scope("head/last"):
        last = jnp.take_along_axis(residual, (lengths - 1)[:, None, None], 1)
    return head(params, program, last, setting)[:, 0], cache


def decode(
    params: Tree, program: Program, tokens: jax.Array, positions: jax.Array, cache: Cache, setting: PassSetting
) -> tuple[jax.Array, Cache]:
    """Logits [b, v] of the next token of sequences whose newest `tokens` [b] stand at `positions` [b]."""
    residual = embed(params, program, tokens[:, None], positions[:, None], setting)
    residual, cache = _layers(params, program, residual, positions[:, None], cache, setting, decoding=True)
    return head(params, program, residual, setting)[:, 0], cache
