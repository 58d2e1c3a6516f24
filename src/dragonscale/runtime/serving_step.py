"""A serving plan's two programs, for a mesh: prompts into the cache, and one more token of every sequence.

Each chip runs its own part inside `jax.shard_map`; the cache is given away and comes back written. Shapes without
values are enough to compile them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy
from jax.experimental.layout import Format, Layout
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dragonscale.errors import InputError
from dragonscale.models.program import Program, Section
from dragonscale.physics.notation import Array
from dragonscale.physics.sharding.partition_spec import to_partition_spec
from dragonscale.plan.rules import SERVING
from dragonscale.runtime.decode import cache_of, decode, prefill
from dragonscale.runtime.expert_exchange import Mixing
from dragonscale.runtime.lines import PassSetting
from dragonscale.runtime.meshes import serving_place, serving_sizes
from dragonscale.runtime.numerics import Numerics
from dragonscale.runtime.parameters import Weight, each_weight
from dragonscale.runtime.place import Place
from dragonscale.serving.plan import ServingPlan


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
