"""The parameter tree of a model program: one array for each weight, layers of a kind stacked along a leading dim.

Names, shapes and shardings come from the program and the plan's rules; nothing about a model is written here. Weights that
belong to the whole program (a tied embedding) are kept once, with the section that is first to use them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dragonscale.models.program import Program, Section
from dragonscale.notation import Array
from dragonscale.sharding.partition_spec import to_partition_spec

Tree = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Weight:
    """One weight of a section: its array in the program, its shape, and whether layers are stacked in front."""

    array: Array
    shape: tuple[int, ...]
    stacked: bool
    fan_in: int


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
                own[array.name] = _weight(section, array)
        found[section.name] = own
    return found


def _weight(section: Section, array: Array) -> Weight:
    shape = tuple(section.dims[dim.name] for dim in array.dims)
    stacked = _is_layer(section)
    summed = [size for dim, size in zip(array.dims, shape, strict=True) if not dim.select]
    fan = max(summed[0], 1) if len(summed) > 1 else 1
    return Weight(array, (section.repeat, *shape) if stacked else shape, stacked, fan)


def _is_layer(section: Section) -> bool:
    return section.name not in ("embed", "head")


def initialise(program: Program, key: jax.Array, dtype: Any = jnp.float32) -> Tree:
    """Random weights: norms at one, biases at zero, matrices with a standard deviation of one over the root of their fan-in."""
    tree: Tree = {}
    for name, weights in weights_of(program).items():
        tree[name] = {}
        for own, weight in weights.items():
            key, here = jax.random.split(key)
            tree[name][own] = _random(weight, here, dtype)
    return tree


def _random(weight: Weight, key: jax.Array, dtype: Any) -> jax.Array:
    name = weight.array.name
    if name.startswith("w"):
        zero = name.endswith("_bias") or not _scales(name)
        return jnp.zeros(weight.shape, dtype) if zero else jnp.ones(weight.shape, dtype)
    return (jax.random.normal(key, weight.shape, jnp.float32) * weight.fan_in**-0.5).astype(dtype)


_SCALES = ("norm", "mixer", "ffn", "final", "block", "hidden")


def _scales(name: str) -> bool:
    """Whether a vector multiplies (a norm's weight) rather than adds."""
    return any(part in name for part in _SCALES)


def abstract(program: Program, dtype: Any = jnp.float32) -> Tree:
    """The tree's shapes without its values."""
    return {
        name: {own: jax.ShapeDtypeStruct(weight.shape, dtype) for own, weight in weights.items()}
        for name, weights in weights_of(program).items()
    }


def specs(program: Program, layout: Callable[[Array], Array]) -> dict[str, dict[str, PartitionSpec]]:
    """Each weight's sharding; `layout` says how an array of the program lies (`Rules.weight`, `Rules.state`)."""
    tree: dict[str, dict[str, PartitionSpec]] = {}
    for name, weights in weights_of(program).items():
        tree[name] = {}
        for own, weight in weights.items():
            spec = to_partition_spec(layout(weight.array))
            tree[name][own] = PartitionSpec(None, *spec) if weight.stacked else spec
    return tree


def shardings(program: Program, mesh: Mesh, layout: Callable[[Array], Array]) -> dict[str, dict[str, NamedSharding]]:
    """The same on a mesh; axes that the mesh does not have split nothing, and dims that do not divide stay whole."""
    shapes = abstract(program)
    return {
        name: {own: NamedSharding(mesh, fitted(spec, mesh, shapes[name][own].shape)) for own, spec in own_specs.items()}
        for name, own_specs in specs(program, layout).items()
    }


def fitted(spec: PartitionSpec, mesh: Mesh, shape: tuple[int, ...]) -> PartitionSpec:
    """A sharding without axes that the mesh lacks, and without those by which a dim does not divide."""
    fitted: list[Any] = []
    for size, part in zip(shape, (*spec, *[None] * (len(shape) - len(spec))), strict=True):
        axes = tuple(a for a in ((part,) if isinstance(part, str) else part or ()) if a in mesh.shape)
        while size % math.prod(mesh.shape[axis] for axis in axes):
            axes = axes[:-1]
        fitted.append(axes or None)
    return PartitionSpec(*fitted)


def count(tree: Tree) -> int:
    """Parameters in a tree of arrays or shapes."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree))
