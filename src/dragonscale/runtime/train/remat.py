"""The plan's remat policy as JAX's: which named tensors of a layer are kept for the backward pass.

Every tensor of a program has a name, and the planner says which of them a policy keeps (`models.activations`). The same
names mark the values in JAX, so that what is kept is what was counted (a name that two lines make, such as a query before
and after its norm, is kept twice). Products with experts have rows instead of named
tensors and are known by their primitive.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax.ad_checkpoint import checkpoint_name

from dragonscale.models.activations import saved_tensors
from dragonscale.models.program import Program
from dragonscale.notation import Array
from dragonscale.runtime.forward import Pin

_RAGGED = ("ragged_dot", "ragged_dot_general")


def named(pin: Pin) -> Pin:
    """A pin that also gives each tensor its name."""

    def pinned(value: jax.Array, array: Array) -> jax.Array:
        return checkpoint_name(pin(value, array), array.name)

    return pinned


def kept_names(program: Program, policy: str) -> frozenset[str]:
    """The tensors that layers keep under a policy."""
    layers = [section for section in program.sections if section.name in program.order]
    return frozenset(array.name for section in layers for array in saved_tensors(section, policy))


def remat_of(program: Program, policy: str) -> Callable[[Any], Any] | None:
    """What to wrap a layer in; None keeps everything."""
    if policy == "none":
        return None
    names = kept_names(program, policy) if policy != "block" else frozenset()

    def keep(prim: Any, *_: Any, **settings: Any) -> bool:
        if prim.name == "name":
            return settings["name"] in names
        return policy != "block" and prim.name in _RAGGED

    return lambda layer: jax.checkpoint(layer, policy=keep, prevent_cse=False)
