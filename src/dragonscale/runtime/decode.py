"""Prefill and decode: the same program with a cache of what its `cache(...)` lines name.

Prefill runs whole prompts and keeps their keys and values in arrays as long as the longest sequence will be; decode runs
single tokens against them. Latent attention decodes in its absorbed form, on the latents themselves. Sequences of a batch
may have different lengths: each has its own position, and what lies beyond it is never seen.
"""

from typing import Any

import jax
import jax.numpy as jnp

from dragonscale.models.absorbed import absorbed
from dragonscale.models.program import Program, Section
from dragonscale.runtime.forward import Stretch, embed, head, layer_weights, over_layers, stretches
from dragonscale.runtime.lines import Pass, Setting, Tensors, run_section
from dragonscale.runtime.parameters import Tree

Cache = list[list[Tensors]]
"""For each stretch of layers and each place of its pattern: cached arrays [times, b, s, …]."""


def empty_cache(program: Program, batch: int, length: int, dtype: Any = jnp.bfloat16, listed: bool = False) -> Cache:
    """Room for sequences of up to `length` tokens; `listed` has an array for each layer, to go with unstacked weights."""
    sections = {section.name: section for section in program.sections}

    def room(shape: tuple[int, ...], times: int) -> Any:
        return [jnp.zeros(shape, dtype) for _ in range(times)] if listed else jnp.zeros((times, *shape), dtype)

    return [
        [
            {name: room(shape, stretch.times) for name, shape in _cached(sections[place], batch, length).items()}
            for place in stretch.pattern
        ]
        for stretch in stretches(program.order)
    ]


def _cached(section: Section, batch: int, length: int) -> dict[str, tuple[int, ...]]:
    sizes = {**section.dims, "b": batch, "s": length}
    return {
        array.name: tuple(sizes[name] for name in array.names)
        for op in section.ops
        if op.function == "cache"
        for array in op.inputs
    }


def _layers(
    params: Tree, program: Program, residual: jax.Array, positions: jax.Array, cache: Cache, setting: Setting,
    decoding: bool,
) -> tuple[jax.Array, Cache]:  # fmt: skip
    sections = {section.name: absorbed(section) if decoding else section for section in program.sections}
    new: Cache = []

    def body(stretch: Stretch) -> Any:
        def layer(carry: jax.Array, both: tuple[list[Tensors], list[Tensors]]) -> tuple[jax.Array, list[Tensors]]:
            kept: list[Tensors] = []
            for name, own, stored in zip(stretch.pattern, *both, strict=True):
                there = stored if decoding else None
                run = Pass(sections[name], setting, positions, own, stored=there, tensors={"R": carry})
                carry = run_section(run)["R"]
                kept.append(run.kept if decoding else {n: _put(stored[n], value) for n, value in run.kept.items()})
            return carry, kept

        return layer

    for stretch, stored in zip(stretches(program.order), cache, strict=True):
        residual, kept = over_layers(body(stretch), residual, (layer_weights(params, stretch), stored), stretch.times)
        new.append(kept)
    return residual, new


def _put(stored: jax.Array, value: jax.Array) -> jax.Array:
    """A prompt's cache at the beginning of its room."""
    return jax.lax.dynamic_update_slice(stored, value.astype(stored.dtype), (0,) * stored.ndim)


def prefill(
    params: Tree, program: Program, tokens: jax.Array, lengths: jax.Array, cache: Cache, setting: Setting
) -> tuple[jax.Array, Cache]:  # fmt: skip
    """Logits [b, v] after the last token of each prompt of `lengths` tokens, and the cache filled."""
    positions = jnp.arange(tokens.shape[1])[None]
    residual = embed(params, program, tokens, positions, setting)
    residual, cache = _layers(params, program, residual, positions, cache, setting, decoding=False)
    last = jnp.take_along_axis(residual, (lengths - 1)[:, None, None], 1)
    return head(params, program, last, setting)[:, 0], cache


def decode(
    params: Tree, program: Program, tokens: jax.Array, positions: jax.Array, cache: Cache, setting: Setting
) -> tuple[jax.Array, Cache]:  # fmt: skip
    """Logits [b, v] of the next token of sequences whose newest `tokens` [b] stand at `positions` [b]."""
    residual = embed(params, program, tokens[:, None], positions[:, None], setting)
    residual, cache = _layers(params, program, residual, positions[:, None], cache, setting, decoding=True)
    return head(params, program, residual, setting)[:, 0], cache
