"""Prefill and decode: the same program with a cache of what its `cache(...)` lines name.

Prefill runs whole prompts and keeps their keys and values in arrays as long as the longest sequence will be; decode runs
single tokens against them. Latent attention decodes in its absorbed form, on the latents themselves. Sequences of a batch
may have different lengths: each has its own position, and what lies beyond it is never seen.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from dragonscale.models.absorbed import absorbed
from dragonscale.models.program import Program, Section
from dragonscale.notation import Array
from dragonscale.runtime.forward import Stretch, embed, head, layer_weights, over_layers, stretches
from dragonscale.runtime.lines import PassSetting, SectionPass, Tensors, run_section
from dragonscale.runtime.parameters import Tree

Cache = list[list[Tensors]]
"""For each stretch of layers and each place of its pattern: cached arrays [times, b, s, …]."""


def empty_cache(program: Program, batch: int, length: int, dtype: Any = jnp.bfloat16, listed: bool = False) -> Cache:
    """Room for sequences of up to `length` tokens; `listed` has an array for each layer, to go with unstacked weights."""

    def room(shape: tuple[int, ...], times: int) -> Any:
        return [jnp.zeros(shape, dtype) for _ in range(times)] if listed else jnp.zeros((times, *shape), dtype)

    sizes = {"b": batch, "s": length}
    return cache_of(program, lambda section, array, times: room(_shape(section, array, sizes), times))


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


def _shape(section: Section, array: Array, sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple({**section.dims, **sizes}[name] for name in array.names)


def _layers(
    params: Tree, program: Program, residual: jax.Array, positions: jax.Array, cache: Cache, setting: PassSetting,
    decoding: bool,
) -> tuple[jax.Array, Cache]:  # fmt: skip
    """All layers, and their cache written. A stack of caches is carried along and written in place, layer by layer: handed
    in and out of a scan it would be there twice."""
    sections = {section.name: absorbed(section) if decoding else section for section in program.sections}
    new: Cache = []

    def one(
        pattern: tuple[str, ...], carry: jax.Array, weights: list[Tensors], stored: list[Tensors]
    ) -> tuple[jax.Array, list[Tensors]]:
        kept: list[Tensors] = []
        for name, own, there in zip(pattern, weights, stored, strict=True):
            run = SectionPass(
                sections[name], setting, positions, own, stored=there if decoding else None, tensors={"R": carry}
            )
            carry = run_section(run)["R"]
            kept.append(run.kept if decoding else {n: _put(there[n], value) for n, value in run.kept.items()})
        return carry, kept

    def body(stretch: Stretch) -> Any:
        def layer(carry: Any, both: tuple[list[Tensors], jax.Array]) -> tuple[Any, None]:
            residual, stacks = carry
            weights, place = both
            written: list[Tensors] = []
            for name, own, stack in zip(stretch.pattern, weights, stacks, strict=True):
                stored = jax.tree.map(lambda each: jax.lax.dynamic_index_in_dim(each, place, keepdims=False), stack)
                residual, kept = one((name,), residual, [own], [stored])
                written.append(
                    jax.tree.map(
                        lambda old, new: jax.lax.dynamic_update_index_in_dim(old, new, place, 0), stack, kept[0]
                    )
                )
            return (residual, written), None

        return layer

    for stretch, stored in zip(stretches(program.order), cache, strict=True):
        weights = layer_weights(params, stretch)
        if any(isinstance(each, list) for layer in stored for each in layer.values()):
            residual, kept = over_layers(
                lambda carry, both, pattern=stretch.pattern: one(pattern, carry, *both),
                residual,
                (weights, stored),
                stretch.times,
            )
        else:
            carry = (residual, stored)
            (residual, kept), _ = jax.lax.scan(body(stretch), carry, (weights, jnp.arange(stretch.times)))
        new.append(kept)
    return residual, new


def _put(stored: jax.Array, value: jax.Array) -> jax.Array:
    """A prompt's cache at the beginning of its room."""
    return jax.lax.dynamic_update_slice(stored, value.astype(stored.dtype), (0,) * stored.ndim)


def prefill(
    params: Tree, program: Program, tokens: jax.Array, lengths: jax.Array, cache: Cache, setting: PassSetting
) -> tuple[jax.Array, Cache]:  # fmt: skip
    """Logits [b, v] after the last token of each prompt of `lengths` tokens, and the cache filled."""
    positions = jnp.arange(tokens.shape[1])[None]
    residual = embed(params, program, tokens, positions, setting)
    residual, cache = _layers(params, program, residual, positions, cache, setting, decoding=False)
    last = jnp.take_along_axis(residual, (lengths - 1)[:, None, None], 1)
    return head(params, program, last, setting)[:, 0], cache


def decode(
    params: Tree, program: Program, tokens: jax.Array, positions: jax.Array, cache: Cache, setting: PassSetting
) -> tuple[jax.Array, Cache]:  # fmt: skip
    """Logits [b, v] of the next token of sequences whose newest `tokens` [b] stand at `positions` [b]."""
    residual = embed(params, program, tokens[:, None], positions[:, None], setting)
    residual, cache = _layers(params, program, residual, positions[:, None], cache, setting, decoding=True)
    return head(params, program, residual, setting)[:, 0], cache
