"""Prefill and decode: the same program with a cache of what its `cache(...)` lines name.

Prefill runs whole prompts and keeps their keys and values in arrays as long as the longest sequence will be; decode
runs single tokens against them. Latent attention decodes in its absorbed form, on the latents themselves. Sequences of
a batch may have different lengths: each has its own position, and what lies beyond it is never seen.

`serving_step` makes a serving plan's two programs, for a mesh: prompts into the cache, and one more token of every
sequence. Each chip runs its own part inside `jax.shard_map`; the cache is given away and comes back written. Shapes
without values are enough to compile them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy
from jax.experimental.layout import Format, Layout
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dragonscale.errors import InputError
from dragonscale.models.latent import absorbed
from dragonscale.models.program import Program, Section
from dragonscale.physics.notation import Array
from dragonscale.physics.sharding.partition_spec import to_partition_spec
from dragonscale.plan.rules import SERVING
from dragonscale.runtime.attention import Scoring, attend_cached
from dragonscale.runtime.expert_exchange import Mixing
from dragonscale.runtime.forward import embed, head, layer_weights, over_layers, stretches
from dragonscale.runtime.lines import PassSetting, SectionPass, Tensors, run_section
from dragonscale.runtime.numerics import Numerics
from dragonscale.runtime.parameters import Tree, Weight, each_weight
from dragonscale.runtime.place import Place, serving_place, serving_sizes
from dragonscale.serving.engine.plan import ServingPlan

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


@dataclass(frozen=True)
class ServingProgram:
    """A program with the shapes (and shardings) of what it takes: weights, tokens, lengths or positions, and the cache.
    `compiled_free` is the same, to be lowered and compiled, with the cache in whatever layout the compiler likes best.
    """

    run: Callable[..., Any]
    compiled_free: Any
    arguments: tuple[Any, ...]
    place: Place


def serving_mesh(plan: ServingPlan, program: Program, devices: list[Any]) -> Mesh:
    """The plan's mesh, slowest axis first."""
    sizes = serving_sizes(plan, program)
    if plan.chips != len(devices):
        raise InputError(f"The plan {plan} is for {plan.chips} devices and there are {len(devices)}.")
    return Mesh(numpy.array(devices).reshape(tuple(sizes.values())), SERVING)


def check(plan: ServingPlan, narrow: tuple[str, ...] = ()) -> None:
    """Refuse what has no program yet; `narrow` names what may be in int8."""
    for name, allowed in (("context", 1), ("width", 1), ("pipe", 1), ("spread", "copy")):
        if (value := getattr(plan, name)) != allowed:
            raise InputError(f"A serving plan with {name}={value} has no JAX program yet; take {name}={allowed}.")
    for name in ("weights", "kv", "compute"):
        allowed = ("bf16", "int8") if name in narrow else ("bf16",)
        if (value := getattr(plan, name)) not in allowed:
            raise InputError(f"The JAX program serves with {name} in {' or '.join(allowed)}; the plan says {value}.")


def serving_step(
    kind: str,
    plan: ServingPlan,
    program: Program,
    numerics: Numerics,
    mesh: Mesh,
    batch: int,
    length: int,
    mixing: Mixing,
    exchange: bool = False,
    dtype: Any = jnp.bfloat16,
) -> ServingProgram:
    """`prefill` of `batch` prompts of `length` tokens, or `decode` of a token each with room for `length`."""
    check(plan)
    if batch % plan.data:
        raise InputError(f"A batch of {batch} sequences does not divide over data={plan.data}.")
    place = serving_place(plan, program, kind == "prefill", exchange)
    setting = PassSetting(numerics, dtype, place, mixing)
    weights = _weights(program, place, mesh, dtype)
    cache = _cache(program, place, mesh, batch, length, dtype)
    by_batch = NamedSharding(mesh, PartitionSpec("data"))
    shape = (batch, length) if kind == "prefill" else (batch,)
    tokens = jax.ShapeDtypeStruct(shape, jnp.int32, sharding=by_batch)
    places = jax.ShapeDtypeStruct((batch,), jnp.int32, sharding=by_batch)
    arguments = (weights, tokens, places, cache)
    specs = jax.tree.map(lambda each: each.sharding.spec, arguments)
    logits = PartitionSpec("data", place.vocabulary(program) or None)
    function = prefill if kind == "prefill" else decode

    def local(weights: Any, tokens: jax.Array, places: jax.Array, cache: Any) -> Any:
        return function(weights, program, tokens, places, cache, setting)

    mapped = jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=(logits, specs[3]), check_vma=False)
    where = jax.tree.map(lambda each: each.sharding, arguments)
    # The compiler chooses how the cache lies in memory: in the usual order it would turn all of it round before the
    # first
    # layer and back after the last, in a second copy.
    chosen = jax.tree.map(lambda each: Format(Layout.AUTO, each), where[3])
    made = (NamedSharding(mesh, logits), chosen)
    free = jax.jit(mapped, in_shardings=(*where[:3], chosen), out_shardings=made, donate_argnums=3)
    return ServingProgram(jax.jit(mapped, donate_argnums=3), free, arguments, place)


def _weights(program: Program, place: Place, mesh: Mesh, dtype: Any) -> Any:
    sections = {section.name: section for section in program.sections}

    def leaf(name: str, weight: Weight) -> jax.ShapeDtypeStruct:
        spec = to_partition_spec(place.fit(place.at_rest(weight.array), sections[name].dims))
        where = NamedSharding(mesh, PartitionSpec(None, *spec) if weight.stacked else spec)
        return jax.ShapeDtypeStruct(weight.shape, dtype, sharding=where)

    return each_weight(program, leaf)


def _cache(program: Program, place: Place, mesh: Mesh, batch: int, length: int, dtype: Any) -> Any:
    """Where there are fewer KV heads than chips, every chip keeps the one it uses."""

    def room(section: Section, array: Array, times: int) -> jax.ShapeDtypeStruct:
        sizes = {**section.dims, "b": batch, "s": length}
        copies = place.copied("k", section.dims) if "k" in array.names else ()
        if copies:
            sizes["k"] = place.ways(copies)
        laid = place.fit(place.rules.cached(array), sizes)
        shape = (times, *(sizes[name] for name in array.names))
        spec = PartitionSpec(None, *to_partition_spec(laid))
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    return cache_of(program, room)
