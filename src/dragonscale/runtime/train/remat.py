"""The plan's remat policy as JAX's: which named tensors of a layer are kept for the backward pass.

Every tensor of a program has a name, and the planner says which of them a policy keeps (`models.activations`). The same
names mark the values in JAX where they rest, so that what is kept is what was counted (a name that two lines make, such
as a query before and after its norm, is kept twice). `none` too keeps just the tensors that some gradient reads: what
lies between two of them is elementwise and cheap to compute again.
"""

from collections.abc import Callable
from typing import Any

import jax

from dragonscale.models.activations import saved_tensors
from dragonscale.models.program import Program

_KEPT = ("dot_product_attention_fwd", "dot_product_attention_fwd_wrapper")
"""What has no name of its own: the sums that a flash kernel hands to its gradient."""


def remat_of(program: Program, policy: str) -> Callable[[Any], Any]:
    """What to wrap a layer in. Weights and activations gathered for a line are never kept: they are gathered again."""
    layers = [section for section in program.sections if section.name in program.order and policy != "block"]
    names = {array.name for section in layers for array in saved_tensors(section, policy)}

    def keep(prim: Any, *_: Any, **settings: Any) -> bool:
        if prim.name == "name":
            return settings["name"] in names
        return policy != "block" and prim.name in _KEPT

    return lambda layer: jax.checkpoint(layer, policy=keep, prevent_cse=False)
