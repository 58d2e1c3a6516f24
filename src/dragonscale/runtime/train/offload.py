"""Master copy and optimizer state in the host's memory (`offload=optimizer`).

A step fetches the master copy and keeps its matrices on the chip in the compute type. Once there are gradients, layer
by layer comes from the host with its state, is updated on the chip and goes back to where it was: a loop, since all
that is fetched outside of one XLA fetches at once.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from dragonscale.models.program import Program
from dragonscale.runtime.parameters import Tree, weights_of


def on_host(where: Any, blank: Any) -> Any:
    """The same places in the host's memory, but for what is small: counts of steps."""
    return jax.tree.map(lambda at, leaf: at.with_memory_kind("pinned_host") if leaf.ndim else at, where, blank)


def fetched(program: Program, params: Tree, dtype: Any) -> Tree:
    """Weights out of the host's memory, matrices in another type; vectors stay, as a layer casts them."""
    known = weights_of(program)

    def one(name: str, own: str, value: jax.Array) -> jax.Array:
        narrow = dtype if own.startswith("W") else value.dtype
        if not known[name][own].stacked:
            return _fetch(value).astype(narrow)
        away = _send(value)
        return jax.lax.map(lambda layer: _fetch(_layer(away, layer))[0].astype(narrow), jnp.arange(len(value)))

    return {name: {own: one(name, own, value) for own, value in weights.items()} for name, weights in params.items()}


Update = Callable[[Tree, Any, Tree], tuple[Tree, Any]]
"""The next (weights, state) of (gradients, state, weights)."""


def streamed(program: Program, update: Update) -> Update:
    """An update of weights and state that lie in the host's memory; what it does to a weight may not hang on others, or
    on other layers."""
    known = weights_of(program)

    def updated(slopes: Tree, state: Any, params: Tree) -> tuple[Tree, Any]:
        def alike(value: Any) -> bool:
            return isinstance(value, dict) and value.keys() == params.keys()

        changed: Tree = {}
        after = state
        for name in params:
            own = jax.tree.map(lambda one, name=name: {name: one[name]} if alike(one) else one, state, is_leaf=alike)
            step = _over_layers if any(weight.stacked for weight in known[name].values()) else _at_once
            weights, made = step(update, {name: slopes[name]}, ({name: params[name]}, own))
            changed |= weights
            after = jax.tree.map(lambda one, new: one | new if alike(one) else new, after, made, is_leaf=alike)
        return changed, after

    return updated


def _at_once(update: Update, slopes: Tree, own: tuple[Tree, Any]) -> tuple[Tree, Any]:
    weights, state = jax.tree.map(_fetch, own)
    return jax.tree.map(_send, update(slopes, state, weights))


def _over_layers(update: Update, slopes: Tree, own: tuple[Tree, Any]) -> tuple[Tree, Any]:
    leaves, tree = jax.tree.flatten(own)

    def one_layer(layer: jax.Array, stacks: list[jax.Array]) -> list[jax.Array]:
        here = [_fetch(_layer(stack, layer)) if old.ndim else old for stack, old in zip(stacks, leaves, strict=True)]
        weights, state = jax.tree.unflatten(tree, here)
        made = update(jax.tree.map(lambda slope: _layer(slope, layer), slopes), state, weights)
        return [
            jax.lax.dynamic_update_index_in_dim(stack, _send(new), layer, 0) if new.ndim else new
            for stack, new in zip(stacks, jax.tree.leaves(made), strict=True)
        ]

    layers = len(jax.tree.leaves(slopes)[0])
    return jax.tree.unflatten(tree, jax.lax.fori_loop(0, layers, one_layer, [_send(leaf) for leaf in leaves]))


def _layer(stack: jax.Array, layer: jax.Array) -> jax.Array:
    return jax.lax.dynamic_index_in_dim(stack, layer, 0)


def _fetch(leaf: jax.Array) -> jax.Array:
    return jax.device_put(leaf, jax.memory.Space.Device) if leaf.ndim else leaf


def _send(leaf: jax.Array) -> jax.Array:
    return jax.device_put(leaf, jax.memory.Space.Host) if leaf.ndim else leaf
