"""The parameter tree of a model program: one array for each weight, layers of a kind stacked along a leading dim.

Names, shapes and shardings come from the program and the plan's rules; nothing about a model is written here. Weights
that belong to the whole program (a tied embedding) are kept once, with the section that is first to use them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dragonscale.models.lora import LEFT_OUT, RANK
from dragonscale.models.program import Op, Program, Section
from dragonscale.physics.notation import Array
from dragonscale.physics.sharding.partition_spec import to_partition_spec

Tree = dict[str, dict[str, Any]]
Shardings = dict[str, dict[str, NamedSharding]]
WeightReader = Callable[[str, str, int], Any]
"""A weight by its section's name, its own, and the layer's number among those of its section (0 at the ends)."""


@dataclass(frozen=True)
class Weight:
    """One weight of a section: its array in the program, its shape, whether layers are stacked in front, whether it is
    trained, and whether it belongs to a matmul of layers."""

    array: Array
    shape: tuple[int, ...]
    stacked: bool
    fan_in: int
    trained: bool = True
    multiplied: bool = False


def weights_of(program: Program) -> dict[str, dict[str, Weight]]:
    """Every weight by section and name."""
    found: dict[str, dict[str, Weight]] = {}
    seen: set[str] = set()
    for section in program.sections:
        own: dict[str, Weight] = {}
        for op in section.ops:
            for array in op.weights:
                if array.name in own or (array.name in section.shared and array.name in seen):
                    continue
                if array.name in section.shared:
                    seen.add(array.name)
                own[array.name] = _weight(section, array, op)
        found[section.name] = own
    return found


def _weight(section: Section, array: Array, op: Op) -> Weight:
    shape = tuple(section.dims[dim.name] for dim in array.dims)
    stacked = section.name not in ("embed", "head")
    summed = [size for dim, size in zip(array.dims, shape, strict=True) if not dim.select]
    fan = max(summed[0], 1) if len(summed) > 1 else 1
    multiplied = stacked and op.function == "einsum" and op.part not in LEFT_OUT
    return Weight(array, (section.repeat, *shape) if stacked else shape, stacked, fan, not op.frozen, multiplied)


def each_weight(program: Program, make: Callable[[str, Weight], Any]) -> dict[str, dict[str, Any]]:
    """A tree of what a function makes of every weight and its section's name."""
    found = weights_of(program).items()
    return {name: {own: make(name, weight) for own, weight in weights.items()} for name, weights in found}


def parted(tree: Tree, program: Program) -> tuple[Tree, Tree]:
    """A tree's trained weights, and those that are frozen."""
    known = weights_of(program)

    def part(trained: bool) -> Tree:
        return {
            name: {own: value for own, value in weights.items() if known[name][own].trained is trained}
            for name, weights in tree.items()
        }

    return part(True), part(False)


def merged(first: Tree, second: Tree) -> Tree:
    """Two trees as one; of a weight that both have, the second's."""
    return {name: {**first.get(name, {}), **second.get(name, {})} for name in {**first, **second}}


_SCALES = ("norm", "mixer", "ffn", "final", "block", "hidden")
"""Parts of the names of vectors that multiply (a norm's weight) rather than add."""


def initialise(program: Program, key: jax.Array, dtype: Any = jnp.float32) -> Tree:
    """Random weights: norms at one, biases at zero, matrices with a standard deviation of one over the root of their
    fan-in, the second of an adapter's two at zero; frozen ones in bf16."""

    def random(_: str, weight: Weight) -> jax.Array:
        nonlocal key
        key, here = jax.random.split(key)
        return random_values(weight, here, dtype if weight.trained else jnp.bfloat16, weight.shape)

    return each_weight(program, random)


def random_values(weight: Weight, key: jax.Array, dtype: Any, shape: tuple[int, ...]) -> jax.Array:
    """Of one weight, or of one layer of a stack."""
    name = weight.array.name
    if name.startswith("w"):
        one = not name.endswith("_bias") and any(part in name for part in _SCALES)
        return jnp.ones(shape, dtype) if one else jnp.zeros(shape, dtype)
    if RANK.name in weight.array.names[:-1]:
        return jnp.zeros(shape, dtype)
    return (jax.random.normal(key, shape, jnp.float32) * weight.fan_in**-0.5).astype(dtype)


def random_reader(program: Program, dtype: Any = jnp.bfloat16, seed: int = 0) -> WeightReader:
    """Random weights one at a time, made on the device."""
    known, key = weights_of(program), jax.random.key(seed)
    numbers = {pair: at for at, pair in enumerate((section, name) for section in known for name in known[section])}
    make = jax.jit(random_values, static_argnums=(0, 2, 3))

    def read(section: str, name: str, layer: int) -> jax.Array:
        weight = known[section][name]
        own = jax.random.fold_in(jax.random.fold_in(key, numbers[section, name]), layer)
        return make(weight, own, dtype, weight.shape[1:] if weight.stacked else weight.shape)

    return read


def stacked(read: WeightReader, program: Program, dtype: Any = jnp.float32) -> Tree:
    """A whole tree in the host's memory, of weights that are read one at a time."""

    def whole(section: str, weight: Weight) -> numpy.ndarray:
        layers = range(weight.shape[0] if weight.stacked else 1)
        found = [read(section, weight.array.name, layer).astype(dtype) for layer in layers]
        return numpy.stack(found) if weight.stacked else found[0]

    return each_weight(program, whole)


def abstract(program: Program, dtype: Any = jnp.float32) -> Tree:
    """The tree's shapes without its values."""
    return each_weight(program, lambda _, weight: jax.ShapeDtypeStruct(weight.shape, dtype))


def shardings(program: Program, mesh: Mesh, layout: Callable[[Array], Array]) -> Shardings:
    """Each weight's sharding on a mesh; `layout` says how an array of the program lies (`Rules.weight`, `Rules.state`).
    Axes that the mesh does not have split nothing, and dims that do not divide stay whole."""

    def sharding(_: str, weight: Weight) -> NamedSharding:
        spec = to_partition_spec(layout(weight.array))
        return NamedSharding(mesh, fitted(PartitionSpec(None, *spec) if weight.stacked else spec, mesh, weight.shape))

    return each_weight(program, sharding)


def fitted(spec: PartitionSpec, mesh: Mesh, shape: tuple[int, ...]) -> PartitionSpec:
    """A sharding without axes that the mesh lacks, and without those by which a dim does not divide."""
    fitted: list[Any] = []
    for size, part in zip(shape, (*spec, *[None] * (len(shape) - len(spec))), strict=True):
        axes = tuple(a for a in ((part,) if isinstance(part, str) else part or ()) if a in mesh.shape)
        while size % math.prod(mesh.shape[axis] for axis in axes):
            axes = axes[:-1]
        fitted.append(axes or None)
    return PartitionSpec(*fitted)
