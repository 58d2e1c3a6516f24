"""What each chip must hold, by part: a sum over named tensors.

Weights, gradients and optimizer state are split by every axis that splits the weight, and further by the axes that split
its state as far as the ZeRO stage goes. Activations are those that the remat policy keeps, times the layers of the rank
and the microbatches its schedule has in flight. Beside them: the layers whose weights are gathered, the logits and their
gradient, what is alive inside one layer, and what the framework keeps for itself.
"""

from dataclasses import dataclass
from typing import Any

from dragonscale.hardware import Chip
from dragonscale.hardware.chip import dtype_bytes
from dragonscale.models.activations import saved_tensors
from dragonscale.models.count import weight_size
from dragonscale.models.program import Section
from dragonscale.numbers import Number, maximum, product
from dragonscale.sharding.mesh import Mesh
from dragonscale.training.cost import local_size
from dragonscale.training.plan import Plan
from dragonscale.training.rules import Rules
from dragonscale.training.stack import Stack
from dragonscale.training.stages import Deal, held_microbatches

OPTIMIZER_BYTES = {"adam": 8.0, "adam-bf16": 4.0, "adafactor": 0.1, "muon": 4.0, "sgd": 0.0}
"""Bytes of optimizer state per parameter beside the master copy: two fp32 moments for Adam, one momentum for Muon, row
and column sums for Adafactor."""


@dataclass(frozen=True)
class Held:
    """Bytes that one layer keeps on one chip. `parameters` is this chip's share of the optimizer's work; `working` are
    the activations alive while the layer runs; `used` counts the weights that it computes with."""

    weights: Number
    gradients: Number
    optimizer: Number
    gathered: Number
    activations: Number
    working: Number
    logits: Number
    parameters: Number
    used: Number


def section_bytes(
    section: Section, sizes: dict[str, Number], mesh: Mesh, plan: Plan, rules: Rules, stack: Stack
) -> Held:
    """One section's state and saved activations on one chip. `mesh` may hold arrays."""
    stored: Number = 0
    used: Number = 0
    state: Number = 0
    for op in section.ops:
        for weight in op.weights:
            size = weight_size(section, weight)
            stored = stored + size / mesh.size(*rules.weight(weight).axes)
            used = used + size / mesh.size(*rules.used(weight).axes)
            state = state + size / mesh.size(*rules.state(weight).axes)
    moments = stack.master_bytes + OPTIMIZER_BYTES[plan.optimizer]
    sharded = plan.zero == 3
    return Held(
        weights=stored * (0.0 if sharded and stack.master_bytes else weight_bytes(plan, stack)),
        gradients=(state if plan.zero >= 2 else used) * stack.gradient_bytes,
        optimizer=state * moments,
        gathered=used * weight_bytes(plan, stack) if sharded else 0 * used,
        activations=_saved(section, sizes, mesh, plan, rules, stack),
        working=_alive(section, sizes, mesh, rules, "none"),
        logits=_logits(section, sizes, mesh, rules),
        parameters=state,
        used=used,
    )


def weight_bytes(plan: Plan, stack: Stack) -> float:
    """Bytes of a weight as it is used: bf16, with a copy in the narrow format where one is kept."""
    return 2.0 + (dtype_bytes(plan.dtype) * stack.narrow_copy if dtype_bytes(plan.dtype) < 2 else 0.0)


def _alive(section: Section, sizes: dict[str, Number], mesh: Mesh, rules: Rules, policy: str) -> Number:
    total: Number = 0
    for array in saved_tensors(section, policy):
        laid = rules.activation(array)
        elements = product(local_size(dim.name, sizes[dim.name], mesh.size(*dim.axes)) for dim in laid.dims)
        total = total + elements * dtype_bytes(array.dtype or "bf16")
    return total


def _saved(
    section: Section, sizes: dict[str, Number], mesh: Mesh, plan: Plan, rules: Rules, stack: Stack
) -> Number:
    """Saved activations of one microbatch in one layer, split as they lie; host offload keeps none of them."""
    if plan.remat == "offload":
        return 0.0 * mesh.size("tensor")
    kept = _alive(section, sizes, mesh, rules, plan.remat)
    if not stack.flash and plan.remat == "none":
        kept = kept + _squares(section, sizes, mesh)
    return kept


def _squares(section: Section, sizes: dict[str, Number], mesh: Mesh) -> Number:
    """Scores, their softmax and dropout's mask, where attention writes them out: 5 bytes a score."""
    heads = section.dims.get("n", 0) / mesh.size("tensor")
    sequences = sizes["b"] / mesh.size("data", "fsdp", "expert")
    return 5.0 * sequences * heads * sizes["t"] * sizes["s"] / mesh.size("context")


def _logits(section: Section, sizes: dict[str, Number], mesh: Mesh, rules: Rules) -> Number:
    if section.name != "head":
        return 0.0
    logits = section.ops[-1].output
    assert logits is not None
    laid = rules.activation(logits)
    return product(local_size(dim.name, sizes[dim.name], mesh.size(*dim.axes)) for dim in laid.dims)


def rank_bytes(
    words: Plan,
    stack: Stack,
    held: dict[str, Held],
    deal: Deal,
    numbers: dict[str, Any],
    microbatches: Number,
    last: list[str],
    chip: Chip,
) -> dict[str, Number]:
    """The first rank, which holds the most microbatches and the embedding; and the head where it is the only rank."""
    alone = numbers["pipe"] == 1
    copies = 2.0 if words.schedule == "dualpipe" else 1.0
    counts = deal.first
    ends = [("embed", 1), *((name, alone) for name in last)]

    def summed(name: str) -> Number:
        blocks = sum(counts[kind] * getattr(held[kind], name) for kind in counts)
        return blocks + sum(times * getattr(held[end], name) for end, times in ends)

    flight = held_microbatches(words.schedule, numbers["pipe"], numbers["virtual"], microbatches)
    working = maximum(*[held[kind].working for kind in counts], 0.0)
    gathered = maximum(*[held[kind].gathered for kind in counts], 0.0)
    return {
        "weights": copies * summed("weights"),
        "gradients": copies * summed("gradients"),
        "optimizer": summed("optimizer"),
        "activations": flight * sum(counts[kind] * held[kind].activations for kind in counts),
        "gathered weights": stack.prefetch * gathered,
        "working set": (0.5 if words.remat == "none" else 1.0) * working,
        "logits": alone * held["head"].logits * stack.logit_bytes,
        "framework": stack.reserve_bytes + 0 * working + 0 * chip.hbm.capacity,
    }
