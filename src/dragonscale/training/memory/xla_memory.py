"""The peak memory of a training step on one chip when XLA assigns its buffers: named parts, and how many copies of each
are alive.

State, saved activations and gradients are counted as they are. Besides them there is a workspace. It is largest either
around the head (the logits and what the loss makes of them, the head's weights and their gradient) or in the backward
pass of a layer (gathered weights, the FFN's hidden activations, a block of attention scores unless a flash kernel has
them, residuals, and the gradients of all these). How many copies of each are alive at once is the compiler's decision:
the counts in `ALIVE` were fitted, for each compiler, on compiled programs (`docs/verify.md` says on which programs, and
how far off they are on others).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dragonscale.models.activations import needed_tensors, saved_tensors
from dragonscale.models.attention import ATTENTION_BLOCK
from dragonscale.models.program import Section
from dragonscale.physics.notation import Array
from dragonscale.physics.numbers import Number, maximum, product, where
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.plan.ledger import HeldLine
from dragonscale.training.memory.section_memory import frozen_bytes, section_weights, state_bytes
from dragonscale.training.plan.expert_load import busiest_row_factor
from dragonscale.training.plan.local_section import LocalSection
from dragonscale.training.plan.plan import HOSTED_STATE, layer_policies
from dragonscale.training.plan.setting import Setting
from dragonscale.training.plan.stack import ALIVE
from dragonscale.training.plan.stages import SPLIT_BACKWARD, StageLayers, held_microbatches, share_of_layers

BF16 = 2.0
FP32 = 4.0
TOKEN_BYTES = 4.0  # an int32

# Layers whose offloaded activations are on the chip all the same: the one in use, and the next one.
IN_TRANSIT = 2.0


@dataclass(frozen=True)
class XlaSection:
    """One section on one chip, everything counted once. The fields `*_weights` are elements, the others bytes."""

    used_weights: Number
    """Trained weights as the section computes with them."""
    state_weights: Number
    """The chip's shard of the trained weights, for which it has the optimizer state."""
    muon_matrices: Number
    """The part of `state_weights` that Muon orthogonalizes."""
    all_weights: Number
    """Trained and frozen weights as the section computes with them."""
    tied_weights: Number
    """In the head: the embedding's table, if the head shares it."""
    frozen: Number
    saved: Number
    """Activations that a layer saves under the remat policy."""
    layer_input: Number
    ffn_hidden: Number
    attention_scores: Number
    """One block of attention scores in fp32."""
    expert_rows: Number
    """The rows that are sent to experts."""
    logits: Number
    deferred: Number
    """What a split backward pass keeps for the gradients of weights, which come later."""


def xla_section(setting: Setting, section: Section, microbatch: Number, mesh: Mesh) -> XlaSection:
    """One section in one microbatch."""
    local = setting.local(section, microbatch, mesh)
    # One program runs on every rank of a pipeline, so each chip has both ends, and a tied embedding once.
    weights = section_weights(setting, section, mesh, separate_ends=False)
    is_head = section.name == "head"
    routed = local.routed()
    row_factor = busiest_row_factor(local)

    def elements(array: Array) -> Number:
        if routed is not None and "x" in array.names and array.names[-1] not in ("x", "e"):
            # Inside the experts: the rows of the busiest chip, each as wide as the array's last dim.
            rows = local.elements(routed, without=("d",))
            return rows * row_factor * local.sizes[array.names[-1]]
        return local.elements(array)

    def bf16_bytes(arrays: list[Array]) -> Number:
        return sum((elements(array) for array in arrays), 0.0) * BF16

    tied: Number = 0.0
    if is_head:
        for op in section.ops:
            for weight in op.weights:
                if weight.name in section.shared:
                    whole = product(section.dims[name] for name in weight.names)
                    tied = tied + whole / mesh.size(*local.rules.used(weight).axes)
    hidden = [op.output for op in section.ops if op.function == "act" and op.output is not None]
    saved, layer_input, logits = 0.0, 0.0, 0.0
    if local.is_block:
        saved = bf16_bytes(_saved(section, setting.plan.remat))
        layer_input = elements(_input_of(section)) * BF16
    output = section.ops[-1].output
    if is_head and output is not None:
        logits = elements(output) * BF16
    deferred: Number = 0.0
    for copies, array in _deferred(local, setting.plan.remat):
        deferred = deferred + copies * elements(array)
    return XlaSection(
        used_weights=weights.used,
        state_weights=weights.state,
        muon_matrices=weights.muon_matrices,
        all_weights=weights.used + weights.frozen,
        tied_weights=tied,
        frozen=frozen_bytes(setting, weights, sharded=setting.plan.zero == 3),
        saved=saved,
        layer_input=layer_input,
        ffn_hidden=bf16_bytes(hidden),
        attention_scores=_score_block(local),
        expert_rows=elements(routed) * BF16 if routed is not None else 0.0,
        logits=logits,
        deferred=deferred * BF16,
    )


def _input_of(section: Section) -> Array:
    """The residual stream that a layer reads."""
    return saved_tensors(section, "block")[0]


def _saved(section: Section, remat: str) -> list[Array]:
    """What a layer saves under a remat policy. Its input is always saved, since the scan over layers carries it."""
    if remat == "offload":
        return []
    policy = layer_policies(remat)[0]
    arrays = list(saved_tensors(section, policy))
    layer_input = _input_of(section)
    if policy != "block" and layer_input.name not in [array.name for array in arrays]:
        arrays.append(layer_input)
    return arrays


def _deferred(local: LocalSection, remat: str) -> Iterator[tuple[Number, Array]]:
    """What a layer with a split backward pass keeps until the gradients of its weights are computed, with the number of
    shards of it that a chip holds.

    These are the gradients of matmul outputs as they arrived, and the inputs of matmuls by a weight and of
    nonlinearities, where those were computed by a matmul or by attention and the policy has not saved them.
    """
    if not local.is_block:
        return
    section, rules = local.section, local.rules
    for op in section.ops:
        if not op.weights or op.output is None:
            continue
        summed: set[str] = set()  # mesh axes over which the matmul's output was a partial sum
        if op.function == "einsum":
            split = rules.computing(op)
            if split:
                summed = {axis for name in op.einsum.contracted for axis in split.get(name, ())}
        # The gradient of a sum that was scattered over `tensor` is gathered before it is used.
        yield local.mesh.size(*summed.intersection(rules.spread)), op.output
    saved = {array.name for array in _saved(section, remat)}
    if layer_policies(remat)[0] == "block":  # all is computed again from the input, which counts as saved elsewhere
        saved = set()
    read = {array.name for op in section.ops if op.weights or op.function == "act" for array in op.inputs}
    for maker, array in needed_tensors(section):
        cheap = maker is None or maker.function in ("act", "norm")
        if not cheap and array.name in read - saved:
            yield 1, array


def _score_block(local: LocalSection) -> Number:
    """Bytes of one block of attention scores, unless a flash kernel has them: a block of queries against all keys.

    The steps of ring attention overlap, so that XLA has the scores of all of them alive: as many as with gathered keys.
    """
    largest: Number = 0.0
    if not local.stack.kernels.masked_square:
        return largest
    sizes, mesh = local.sizes, local.mesh
    for op in local.section.ops:
        if op.function != "attend":
            continue
        queries = local.rules.activation(op.inputs[0])  # (b, t, heads ..., head_dim)
        tokens = sizes["t"] / mesh.size(*queries.dim("t").axes)
        undivided = (tokens <= ATTENTION_BLOCK) | (tokens % ATTENTION_BLOCK != 0)
        block = where(undivided, tokens, ATTENTION_BLOCK)
        batch = sizes["b"] / mesh.size(*queries.dim("b").axes)
        heads = product(sizes[dim.name] / mesh.size(*dim.axes) for dim in queries.dims[2:-1])
        largest = maximum(largest, batch * heads * block * sizes["s"] * FP32)
    return largest


@dataclass(frozen=True)
class _WeightTotals:
    """The weights of a rank: elements, and bytes of frozen ones."""

    used: Number
    state: Number
    muon_matrices: Number
    frozen: Number


def _weight_totals(sections: dict[str, XlaSection], times: dict[str, Any]) -> _WeightTotals:
    """Weights summed over the sections of a rank, each of which it has so many times."""

    def total(part: str) -> Number:
        return sum(getattr(sections[name], part) * count for name, count in times.items())

    return _WeightTotals(total("used_weights"), total("state_weights"), total("muon_matrices"), total("frozen"))


def xla_memory_lines(
    setting: Setting,
    sections: dict[str, XlaSection],
    layers: StageLayers,
    degrees: dict[str, Any],
    microbatches: Number,
) -> list[HeldLine]:
    """The memory at the peak, part by part: what is there during the whole step, and the larger of two workspaces."""
    plan, stack = setting.plan, setting.stack
    layer_counts = layers.fullest  # layers of each kind on the fullest rank
    ends = [section.name for section in setting.ends]
    weights = _weight_totals(sections, {**layer_counts, "embed": 1, **dict.fromkeys(ends, 1)})
    sharded = plan.zero == 3
    tokens = degrees["microbatch"] * setting.sequence / degrees["context"]  # of a microbatch on one chip
    width = setting.program.sections[0].dims["d"]

    # Activations that layers save, for every microbatch in flight.
    in_flight = held_microbatches(plan.schedule, degrees["pipe"], degrees["virtual"], microbatches)
    recomputed = share_of_layers(plan.remat, layer_counts, degrees)
    offloaded = share_of_layers(plan.offload, layer_counts, degrees)
    saved: Number = 0
    deferred: Number = 0
    stacked: Number = 0
    for name, count in layer_counts.items():
        layer = sections[name]
        saved_by_layer = (1 - recomputed - offloaded) * layer.saved + recomputed * layer.layer_input
        saved = saved + saved_by_layer * count
        deferred = deferred + layer.deferred * count
        stacked = stacked + (layer.state_weights if sharded else layer.used_weights) * count
    in_transit = IN_TRANSIT * maximum(*[sections[name].saved for name in layer_counts]) * where(offloaded > 0, 1.0, 0.0)
    deferred = in_flight * deferred * where(degrees["pipe"] > 1, 1.0, 0.0) * (plan.schedule in SPLIT_BACKWARD)
    # Layers under two policies are two scans, whose gradients are copied into one stack.
    two_scans = where((recomputed + offloaded > 0) & (recomputed + offloaded < 1), 1.0, 0.0)
    stacked = two_scans * stacked

    # With the state on the host, a copy of the shards comes to the chip for the forward pass.
    host_has_state = plan.offload in HOSTED_STATE
    state, from_host = state_bytes(plan, stack, weights.state, weights.muon_matrices), 0.0 * weights.state
    if host_has_state:
        state, from_host = 0.0 * weights.state, weights.state
    # Gradients are accumulated in fp32, in shards from ZeRO-2 on.
    accumulated = weights.state if plan.zero >= 2 else weights.used
    # One program runs on all ranks of a pipeline: each has the embedding's output for every microbatch.
    stage_inputs = where(degrees["pipe"] > 1, 2.0 * microbatches, 0.0) * tokens * width * BF16 / degrees["tensor"]
    lines = [
        HeldLine("weights and optimizer", "master copy and optimizer state", state),
        HeldLine("frozen weights", "weights that are not trained", weights.frozen),
        HeldLine("tokens", "tokens and targets", 2 * TOKEN_BYTES * tokens * microbatches),
        HeldLine("compute copy", "weights in bf16", (from_host if sharded else weights.used) * BF16),
        HeldLine("saved activations", "saved by layers", in_flight * saved + in_transit, "forward", "backward"),
        HeldLine("put off", "kept for gradients of weights", deferred, "backward", "backward"),
        HeldLine(
            "gradients added up", "gradients of earlier microbatches", where(microbatches > 1, accumulated * FP32, 0.0)
        ),
        HeldLine("microbatches", "inputs of the stages and their gradients", stage_inputs, "forward", "backward"),
    ]

    gradients = (weights.state + stacked) * FP32 if sharded else (weights.used + stacked) * BF16
    around_head = _head_workspace(setting, sections[ends[0]])
    in_layer = _layer_workspace(setting, [sections[name] for name in layer_counts], gradients, tokens * width)
    head_is_larger = sum(around_head.values()) >= sum(in_layer.values())
    for name, size in around_head.items():
        lines.append(HeldLine(name, name, where(head_is_larger, size, 0.0), "forward", "backward", "head"))
    for name, size in in_layer.items():
        lines.append(HeldLine(name, name, where(head_is_larger, 0.0, size), "backward", "backward", "layer"))
    return lines


def _head_workspace(setting: Setting, head: XlaSection) -> dict[str, Number]:
    """Bytes alive around the head, by part."""
    alive = setting.alive or ALIVE[setting.slice.chip.kind]
    # A stack with a loss of its own says what that holds; of our own program's loss, the compiler's copies are counted.
    memory = setting.stack.memory
    logit_copies = memory.logit_bytes / memory.loss_chunks / BF16 or alive.logits
    return {
        "logits": logit_copies * head.logits,
        "head's weights": alive.head * (head.all_weights + head.tied_weights) * BF16,
    }


def _layer_workspace(
    setting: Setting, layers: list[XlaSection], gradients: Number, residual_elements: Number
) -> dict[str, Number]:
    """Bytes alive while the gradients of a layer are computed, by part; of each part, the kind of layer with most."""
    alive = setting.alive or ALIVE[setting.slice.chip.kind]

    def largest(part: str) -> Number:
        return maximum(0.0, *(getattr(layer, part) for layer in layers))

    return {
        "gradients": gradients,
        "gathered weights": alive.weights * largest("all_weights") * BF16,
        "FFN hidden": alive.hidden * largest("ffn_hidden"),
        "attention block": alive.scores * largest("attention_scores"),
        "residuals": alive.residual * residual_elements * BF16,
        "rows of experts": alive.rows * largest("expert_rows"),
    }
