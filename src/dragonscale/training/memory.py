"""What each chip must hold, by part: a sum over named tensors.

Weights, gradients and optimizer state are split by every axis that splits the weight, and further by the axes that split
its state as far as the ZeRO stage goes. Activations are those that the remat policy keeps, times the layers of the rank
and the microbatches its schedule has in flight. Beside them: the layers whose weights are gathered, the logits and their
gradient, what is alive inside one layer, and what the framework keeps for itself.
"""

from dataclasses import dataclass
from typing import Any

import numpy

from dragonscale.hardware import Chip
from dragonscale.hardware.chip import dtype_bytes
from dragonscale.models.activations import saved_tensors
from dragonscale.models.count import weight_size
from dragonscale.models.program import Section
from dragonscale.notation import Array
from dragonscale.numbers import Number, maximum, minimum, where
from dragonscale.sharding.mesh import Mesh
from dragonscale.sharding.pieces import local_elements
from dragonscale.training.plan import Plan
from dragonscale.training.rules import Rules
from dragonscale.training.stack import Stack
from dragonscale.training.stages import Deal, held_last, held_microbatches

OPTIMIZER_BYTES = {"adam": 8.0, "adam-bf16": 4.0, "adafactor": 0.1, "muon": 4.0, "sgd": 0.0}
"""Bytes of optimizer state per parameter beside the master copy: two fp32 moments for Adam, one momentum for Muon, row
and column sums for Adafactor."""


@dataclass(frozen=True)
class Held:
    """Bytes that one layer keeps on one chip. `parameters` is this chip's share of the optimizer's work; `used` counts the
    weights that it computes with; `working` are the activations alive while the layer runs."""

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
    section: Section, sizes: dict[str, Number], mesh: Mesh, plan: Plan, rules: Rules, stack: Stack, chip: Chip
) -> Held:
    """One section's state and saved activations on one chip. `mesh` may hold arrays."""
    used: Number = 0
    state: Number = 0
    for op in section.ops:
        for weight in op.weights:
            size = weight_size(section, weight)
            if section.name == "head" and weight.name in section.shared:
                size = size * (
                    mesh.size("pipe") > 1
                )  # a tied embedding is there once, unless the ends are on different chips
            used = used + size / mesh.size(*rules.used(weight).axes)
            state = state + size / _state_ways(section, rules.state(weight), mesh)
    sharded = plan.zero == 3
    width = weight_bytes(plan, stack, chip)
    master = max(stack.master_bytes, 2.0)
    moments = (master if sharded else stack.master_bytes) + OPTIMIZER_BYTES[plan.optimizer]
    return Held(
        weights=0 * used if sharded else used * width,
        gradients=(state if plan.zero >= 2 else used) * stack.gradient_bytes,
        optimizer=state * moments,
        gathered=used * width if sharded else 0 * used,
        activations=_saved(section, sizes, mesh, plan, rules, stack),
        working=_alive(section, sizes, mesh, rules, "none")
        + _whole_residuals(section, sizes, mesh, rules)
        + _whole_keys(section, sizes, mesh, rules),
        logits=_logits(section, sizes, mesh, rules),
        parameters=state,
        used=used,
    )


def _state_ways(section: Section, laid: Array, mesh: Mesh) -> Number:
    """How many ways a weight's state is split: by the axes that divide its dims, one after the other."""
    if not all(isinstance(size, int | numpy.ndarray | numpy.integer) for size in mesh.axes.values()):
        return mesh.size(*laid.axes)
    ways: Number = 1
    for dim in laid.dims:
        own: Number = 1
        for axis in dim.axes:
            more = own * mesh.size(axis)
            own = where(section.dims[dim.name] % more == 0, more, own)
        ways = ways * own
    return ways


def weight_bytes(plan: Plan, stack: Stack, chip: Chip) -> float:
    """Bytes of a weight as it is used: in bf16, or, where the stack keeps weights in the narrow format, in that alone
    (twice on chips whose tensor cores only take it along one dim, which also need it transposed)."""
    narrow = dtype_bytes(plan.dtype)
    if narrow >= 2:
        return 2.0
    if not stack.narrow_weights:
        return 2.0 + narrow
    return narrow if chip.released >= TWO_WAY else 2 * narrow


TWO_WAY = "2024-06"
"""From Blackwell on, tensor cores take fp8 operands laid out along either dim."""


def _alive(
    section: Section, sizes: dict[str, Number], mesh: Mesh, rules: Rules, policy: str, narrow: float = 2.0
) -> Number:
    """The activations that a policy keeps. What only products and nonlinearities read may be kept in a narrow format."""
    wide = {array.name for op in section.ops if op.function not in ("einsum", "act") for array in op.inputs}
    combined = {op.inputs[0].name for op in section.ops if op.function == "combine"}
    total: Number = 0
    for array in saved_tensors(section, policy):
        if array.name in combined:
            continue  # weighted before the last product, so that adding up needs nothing kept
        laid = rules.activation(array)
        elements = local_elements(laid, sizes, mesh)
        total = total + elements * (dtype_bytes(array.dtype) if array.dtype else 2.0 if array.name in wide else narrow)
    return total


def _whole_residuals(section: Section, sizes: dict[str, Number], mesh: Mesh, rules: Rules) -> Number:
    """A layer's input gathered over `tensor`, its gradient before it is scattered, and the next one's: three whole."""
    if not rules.sequence:
        return 0.0
    tokens = sizes["b"] / mesh.size("data", "fsdp", "expert") * sizes["t"] / mesh.size("context")
    return 3.0 * 2.0 * tokens * section.dims["d"] * (1 - 1 / mesh.size("tensor"))


def _whole_keys(section: Section, sizes: dict[str, Number], mesh: Mesh, rules: Rules) -> Number:
    """Keys and values gathered over `context`, and their gradients; round a ring, only the next piece of them."""
    arrays = [array for op in section.ops if op.function == "attend" for array in op.inputs if "s" in array.names]
    whole: Number = 0.0
    for array in arrays:
        laid = rules.activation(array)
        elements = local_elements(laid, sizes, mesh)
        pieces = mesh.size("context") - 1
        whole = whole + 2 * 2.0 * elements * (minimum(pieces, 1) if rules.ring else pieces)
    return whole


def _saved(section: Section, sizes: dict[str, Number], mesh: Mesh, plan: Plan, rules: Rules, stack: Stack) -> Number:
    """Saved activations of one microbatch in one layer, split as they lie; host offload keeps none of them."""
    if plan.remat == "offload":
        return 0.0 * mesh.size("tensor")
    narrow = min(2.0, dtype_bytes(plan.dtype)) if stack.narrow_weights else 2.0
    least = _alive(section, sizes, mesh, rules, "block")
    if plan.remat == "block":
        return least
    kept = _alive(section, sizes, mesh, rules, plan.remat, narrow)
    if plan.remat == "selective":
        # Products that run again free their own outputs, about half of what is kept.
        kept = kept - 0.5 * stack.selective_matmuls * maximum(kept - least, 0.0)
    if not stack.flash and plan.remat == "none":
        kept = kept + _squares(section, sizes, mesh)
    return least + (kept - least) * stack.kept_copies


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
    return local_elements(laid, sizes, mesh)


def rank_bytes(
    words: Plan,
    stack: Stack,
    held: dict[str, Held],
    deal: Deal,
    numbers: dict[str, Any],
    microbatches: Number,
    last: list[str],
) -> dict[str, Number]:
    """The fuller of the first rank, which holds the most microbatches and the embedding, and the last, with the head."""
    alone = numbers["pipe"] == 1
    flight = held_microbatches(words.schedule, numbers["pipe"], numbers["virtual"], microbatches)
    few = minimum(held_last(words.schedule, numbers["virtual"]), microbatches)
    head = [(name, 1) for name in last]
    ends = [
        _one_rank(words, stack, held, deal.first, [("embed", 1), *((name, alone) for name in last)], flight, alone),
        _one_rank(words, stack, held, deal.last, [("embed", alone), *head], where(alone, flight, few), 1),
    ]
    totals = [sum(parts.values()) for parts in ends]
    fuller = totals[1] > totals[0]
    return {name: where(fuller, ends[1][name], ends[0][name]) for name in ends[0]}


def _one_rank(
    words: Plan,
    stack: Stack,
    held: dict[str, Held],
    counts: dict[str, Any],
    ends: list[tuple[str, Any]],
    flight: Number,
    head: Number,
) -> dict[str, Number]:
    copies = 2.0 if words.schedule == "dualpipe" else 1.0

    def summed(name: str) -> Number:
        blocks = sum(counts[kind] * getattr(held[kind], name) for kind in counts)
        return blocks + sum(times * getattr(held[end], name) for end, times in ends)

    working = maximum(*[held[kind].working for kind in counts], 0.0)
    gathered = maximum(*[held[kind].gathered for kind in counts], 0.0)
    return {
        "weights": copies * summed("weights"),
        "gradients": copies * summed("gradients"),
        "optimizer": summed("optimizer"),
        "activations": flight * sum(counts[kind] * held[kind].activations for kind in counts),
        "gathered weights": stack.prefetch * gathered,
        "working set": (0.5 if words.remat == "none" else 1.0) * working,
        "logits": head * held["head"].logits * stack.logit_bytes,
        "framework": stack.reserve_bytes + 0 * working,
    }
