"""What each chip must hold, by part: a sum over named tensors.

Weights, gradients and optimizer state are split by every axis that splits the weight, and further by `fsdp` as far as
the ZeRO stage goes. Activations are those that the remat policy keeps, times the layers of the rank and the microbatches
its schedule has in flight. Beside them: the layer whose weights are gathered, the logits and their gradient, buffers of
collectives, and what the framework keeps for itself.
"""

from dataclasses import dataclass

from dragonscale.hardware.chip import dtype_bytes
from dragonscale.models.activations import saved_tensors
from dragonscale.models.count import weight_size
from dragonscale.models.program import Section
from dragonscale.numbers import Number, maximum, product
from dragonscale.sharding.mesh import Mesh
from dragonscale.training.plan import Plan
from dragonscale.training.rules import Rules
from dragonscale.training.stack import Stack

OPTIMIZER_BYTES = {"adam": 8.0, "adam-bf16": 4.0, "adafactor": 0.1, "muon": 4.0, "sgd": 0.0}
"""Bytes of optimizer state per parameter beside the master copy: two fp32 moments for Adam, one momentum for Muon, row
and column sums for Adafactor."""


@dataclass(frozen=True)
class Held:
    """Bytes that one layer keeps on one chip."""

    weights: Number
    gradients: Number
    optimizer: Number
    gathered: Number
    activations: Number
    parameters: Number
    """Parameters of this chip's share of the optimizer's work."""


def section_bytes(
    section: Section, sizes: dict[str, Number], mesh: Mesh, plan: Plan, rules: Rules, stack: Stack
) -> Held:
    """One section's state and saved activations on one chip. `mesh` may hold arrays."""
    weights: Number = 0
    whole: Number = 0
    for op in section.ops:
        for weight in op.weights:
            stored = rules.weight(weight)
            own = tuple(axis for axis in stored.axes if axis != "fsdp")
            size = weight_size(section, weight) / mesh.size(*own)
            whole = whole + size
            weights = weights + (size / mesh.size("fsdp") if "fsdp" in stored.axes else size)
    width = dtype_bytes("bf16")
    shards = mesh.size("fsdp") if plan.zero < 3 else 1
    state = stack.master_bytes + OPTIMIZER_BYTES[plan.optimizer]
    gradients = weights * stack.gradient_bytes
    return Held(
        weights=weights * width,
        gradients=gradients / shards if plan.zero == 2 else gradients,
        optimizer=weights * state / shards if plan.zero >= 1 else weights * state,
        gathered=whole * width if plan.zero == 3 else 0 * whole,
        activations=_saved(section, sizes, mesh, plan, rules),
        parameters=weights / shards if plan.zero >= 1 else weights,
    )


def _saved(section: Section, sizes: dict[str, Number], mesh: Mesh, plan: Plan, rules: Rules) -> Number:
    """Saved activations of one microbatch in one layer, split as they lie; host offload keeps only a layer's worth."""
    policy = "block" if plan.remat in ("block", "offload") else plan.remat
    total: Number = 0
    for array in saved_tensors(section, policy):
        laid = rules.activation(array)
        elements = product(maximum(sizes[dim.name] / mesh.size(*dim.axes), 1) for dim in laid.dims)
        total = total + elements * dtype_bytes(array.dtype or "bf16")
    return total * (0 if plan.remat == "offload" else 1)


def working_set(section: Section, sizes: dict[str, Number], mesh: Mesh, rules: Rules) -> Number:
    """The activations alive while one layer runs forward or backward: everything it saves under no recomputation."""
    total: Number = 0
    for array in saved_tensors(section, "none"):
        laid = rules.activation(array)
        total = total + product(maximum(sizes[d.name] / mesh.size(*d.axes), 1) for d in laid.dims) * dtype_bytes(
            array.dtype or "bf16"
        )
    return total
