"""What a section of the model (a layer, the embedding, the head) takes of one chip's memory: a sum over named tensors.

Weights, gradients and optimizer state are split by every axis that splits the weight, and further by the axes that
shard its state, as far as the ZeRO stage goes. Activations are those that the remat policy saves, for one microbatch.
Besides them there are gathered weights, logits, and the workspace of the layer's backward pass.
`dragonscale.training.memory.peak_memory` puts layers into pipeline ranks and finds the moment of peak memory; where XLA
assigns the buffers, `dragonscale.training.memory.xla_memory` does.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from dragonscale.models.activations import needed_tensors, saved_tensors
from dragonscale.models.count import weight_size
from dragonscale.models.program import Op, Section
from dragonscale.physics.hardware import Chip
from dragonscale.physics.hardware.chip import dtype_bytes
from dragonscale.physics.numbers import Number, maximum, minimum, where
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.plan.rules import Rules
from dragonscale.training.plan.eager import eager_memory
from dragonscale.training.plan.expert_load import at_busiest
from dragonscale.training.plan.local_section import LocalSection
from dragonscale.training.plan.optimizers import (
    MATRIX_BYTES,
    MOMENTUM_BYTES,
    OPTIMIZER_BYTES,
    matrix_shares,
)
from dragonscale.training.plan.plan import HOSTED_STATE, HOSTED_WEIGHTS, Plan, layer_policies
from dragonscale.training.plan.setting import Setting
from dragonscale.training.plan.stack import Stack, remat_of
from dragonscale.training.plan.tuning import Tuning

BF16 = 2.0

GRADIENTS_ALIVE = 0.5
"""Gradients of activations that are alive at once in a layer's backward pass, over all of its activations: those of an
FFN's two hidden tensors while the third is read. HF's Llama 3 8B with fused loss takes 234 kB a token beside what it
keeps (fms-acceleration's reference runs): 1.5 times a layer's activations, with the copies that its eager norms make.
"""

# From Blackwell on, tensor cores take fp8 operands laid out along either dim; earlier ones need a transposed copy.
FP8_BOTH_LAYOUTS_SINCE = "2024-06"


@dataclass(frozen=True)
class SectionMemory:
    """Bytes that one section takes on one chip, in one microbatch where they depend on it.

    The fields from `updated_parameters` on are not bytes: elements of weights, or flags (1 or 0, arrays over plans)."""

    weights: Number
    gradients: Number
    optimizer: Number
    gathered: Number
    """Weights gathered for the time that the section runs, by ZeRO-3 or from the host."""
    activations: Number
    """What the remat policy saves for the backward pass."""
    workspace: Number
    """Activations alive in the section's backward pass, saved ones included, and their gradients."""
    reducing: Number
    """Gradients on their way to the chips that have their state."""
    placeholders: Number
    """Empty gradients that autograd is handed where the real ones are added to a buffer elsewhere."""
    logits: Number
    layer_input: Number

    updated_parameters: Number
    """This chip's share of the optimizer's work."""
    used: Number
    """Trained weights that the section computes with."""
    sharded: Number
    """1 where an axis shards the state: ZeRO over nothing is plain replicas, whatever its stage."""
    frozen: Number = 0.0
    """Weights that are not trained."""
    quantized: Number = 0.0
    """Those of the frozen weights that are dequantized at each use."""
    muon_matrices: Number = 0.0
    """Those of `updated_parameters` that Muon orthogonalizes."""
    casts: Number = 0.0
    """Those of `weights` that are 16-bit copies of wider ones (autocast)."""
    wide: Number = 0.0
    """Those of `optimizer` that are the model's own wide weights."""
    hosted_weights: Number = 0.0
    """Bytes of its weights at rest in the host's memory (`offload=parameters`)."""
    sends_gradients: Number = 0.0
    """1 where gradients go to the host with every microbatch; the same for all sections of a plan."""

    def with_mixed_layers(self, recomputed: Number, offloaded: Number) -> "SectionMemory":
        """The mean over layers of which a share is recomputed whole (and saves its input alone) and a share is
        offloaded to the host (and keeps nothing)."""
        activations = self.activations + recomputed * (self.layer_input - self.activations)
        activations = activations - offloaded * self.activations
        # The peak is where the backward pass begins, in the last layer. It is recomputed only if all layers are, and of
        # offloaded layers it is the one in transit; the workspace counts its saved activations once.
        last_layer = where(recomputed < 1, self.activations, self.layer_input) * where(offloaded > 0, 0.0, 1.0)
        return replace(self, activations=activations, workspace=self.workspace + activations - last_layer)


@dataclass(frozen=True)
class WeightShare:
    """Elements of one weight on one chip as the section uses it, and of the chip's shard of its optimizer state."""

    name: str
    used: Number
    state: Number


def weight_shares(section: Section, mesh: Mesh, rules: Rules, separate_ends: bool = True) -> Iterator[WeightShare]:
    """Each weight of a section once. With `separate_ends` the ends of a pipeline are on different chips."""
    done: set[str] = set()
    for op in section.ops:
        for weight in op.weights:
            if weight.name in done:
                continue
            done.add(weight.name)
            size = weight_size(section, weight)
            if section.name == "head" and weight.name in section.shared:
                size = size * (mesh.size("pipe") > 1) * separate_ends  # a tied embedding is there once per chip
            elif weight.name in section.shared and section.name != "embed":
                size = size / section.repeat  # layers that share a weight have it once among them
            used = size / mesh.size(*rules.used(weight).axes)
            yield WeightShare(weight.name, used, size / mesh.size(*rules.optimizer_state(weight).axes))


@dataclass(frozen=True)
class SectionWeights:
    """Elements of a section's weights on one chip, by what becomes of them: as they are used, and (`_state`) in the
    chip's shards. `used` and `state` are trained weights, of whose state `muon_matrices` are Muon's; `frozen` are not
    trained, and `quantized` are a part of these."""

    used: Number = 0.0
    state: Number = 0.0
    muon_matrices: Number = 0.0
    frozen: Number = 0.0
    frozen_state: Number = 0.0
    quantized: Number = 0.0
    quantized_state: Number = 0.0

    @property
    def sharded(self) -> Number:
        """1 where an axis shards them, else 0."""
        return where(self.state + self.frozen_state < self.used + self.frozen, 1.0, 0.0)


def section_weights(setting: Setting, section: Section, mesh: Mesh, separate_ends: bool = True) -> SectionWeights:
    """The weights of a section added up, trained and frozen ones apart."""
    totals: dict[str, Number] = dict.fromkeys((field.name for field in fields(SectionWeights)), 0.0)
    frozen: set[str] = set()
    quantized: set[str] = set()
    for op in section.ops:
        names = {weight.name for weight in op.weights}
        if op.frozen:
            frozen |= names
        if quantizes(setting.tuning, section, op):
            quantized |= names
    matrices = matrix_shares(section, setting.plan)
    for share in weight_shares(section, mesh, setting.rules(section), separate_ends):
        # Every total is a sum over all weights times 0 or 1, so that it is an array (or a formula) for every section.
        kinds = (
            ("used", "state", share.name not in frozen),
            ("frozen", "frozen_state", share.name in frozen),
            ("quantized", "quantized_state", share.name in quantized),
        )
        for used, state, belongs in kinds:
            totals[used] = totals[used] + share.used * belongs
            totals[state] = totals[state] + share.state * belongs
        totals["muon_matrices"] = totals["muon_matrices"] + share.state * matrices.get(share.name, 0.0)
    return SectionWeights(**totals)


def quantizes(tuning: Tuning, section: Section, op: Op) -> bool:
    """Whether an op's frozen weights are in a narrow format: those of a layer's matmuls are."""
    return op.frozen and op.function == "einsum" and "block" in section.name and tuning.quantized


def section_memory(setting: Setting, section: Section, microbatch: Number, mesh: Mesh) -> SectionMemory:
    """The memory of one section on the chip with the busiest experts. `mesh` may hold arrays over plans."""
    plan, stack = setting.plan, setting.stack
    if setting.tuning.pairs:
        microbatch = maximum(microbatch, 2.0)
    local = at_busiest(setting.local(section, microbatch, mesh))
    weights = section_weights(setting, section, mesh)
    used, state, sharded = weights.used, weights.state, weights.sharded
    # 1 where a pipeline keeps weights gathered, and gradients whole, for the whole step.
    kept_whole = where(mesh.size("pipe") > 1, 1.0, 0.0) * (plan.zero >= 2 and stack.memory.pipe_whole)
    gathered = (1 - kept_whole) * sharded * (plan.zero == 3)
    at_rest_on_chip = 1.0
    if plan.offload in HOSTED_WEIGHTS:  # a layer's weights are on the chip while it runs, sharded or not
        gathered, at_rest_on_chip = 1.0 + 0 * used, 0.0
    gradients = used
    if plan.zero >= 2:
        gradients = state + kept_whole * (used - state)
    sends_gradients = _sends_gradients(setting, sharded, mesh)
    at_once = 0.0  # gradients of a layer that is updated as they are there
    if plan.optimizer == "galore-layerwise":
        at_once, gradients = gradients, 0.0 * used
    used_bytes = used * weight_bytes(plan, stack, setting.slice.chip)
    resident = (1 - gathered) * (used_bytes + frozen_bytes(setting, weights, sharded=False))
    frozen_shards = frozen_bytes(setting, weights, sharded=True)
    # a model that is loaded in fp32 computes in it, so that every activation is as wide
    wider = max(1.0, setting.tuning.frozen_bytes / BF16)
    saved = wider * sum((size for _, size in saved_tensor_bytes(local, plan)), 0.0 * used)
    scatter_bytes = stack.state.scatter_bytes
    # The gradient as it was computed, in bf16, and the copy that is sent where that is wider.
    reduced_bytes = BF16 + scatter_bytes * (scatter_bytes > BF16)
    wide = stack.state.wide_weights and not setting.tuning.rank and plan.offload not in HOSTED_STATE
    return SectionMemory(
        casts=wide * (1 - gathered) * used_bytes,
        wide=wide * state * stack.state.master_bytes,
        weights=resident + at_rest_on_chip * gathered * frozen_shards,
        gradients=(1 - sends_gradients) * gradients * stack.state.gradient_bytes,
        optimizer=state_bytes(plan, stack, state, weights.muon_matrices, sharded),
        gathered=gathered * (used_bytes + _stored_bytes(setting, weights.frozen, weights.quantized)),
        activations=saved,
        workspace=wider * _workspace(local),
        reducing=sharded * used * reduced_bytes * (plan.zero >= 2) + at_once * stack.state.gradient_bytes,
        placeholders=BF16 * _distinct_weights(local) if stack.memory.placeholders else 0 * used,
        logits=_logit_bytes(local),
        layer_input=wider * _layer_input(local) if local.is_block else 0.0 * used,
        updated_parameters=state,
        used=used,
        sharded=sharded,
        frozen=weights.frozen,
        quantized=weights.quantized,
        muon_matrices=weights.muon_matrices,
        sends_gradients=sends_gradients,
        # With offloaded parameters the host has the chip's shards, in bf16.
        hosted_weights=(1 - at_rest_on_chip) * (BF16 * state + frozen_shards),
    )


def _sends_gradients(setting: Setting, sharded: Number, mesh: Mesh) -> Number:
    """1 where gradients go to the host with every microbatch, else 0: from ZeRO-2 on, and on a chip alone, where there
    is nothing to shard."""
    if setting.plan.offload not in HOSTED_STATE or not setting.stack.state.hosted_gradients:
        return 0.0
    alone = where(mesh.size("data", "fsdp", "expert", "context") > 1, 0.0, 1.0)
    return where(sharded > 0, 1.0 if setting.plan.zero >= 2 else 0.0, alone)


def _stored_bytes(setting: Setting, frozen: Number, quantized: Number) -> Number:
    """Bytes of frozen weights in the formats that they are stored in."""
    return (frozen - quantized) * setting.stack.state.frozen_bytes + quantized * setting.tuning.frozen_bytes


def frozen_bytes(setting: Setting, weights: SectionWeights, sharded: bool) -> Number:
    """Bytes at rest of frozen weights, and of further models in bf16 (a reference, a teacher), whole or sharded."""
    further_models = setting.tuning.copies * BF16
    if sharded:
        stored = _stored_bytes(setting, weights.frozen_state, weights.quantized_state)
        return stored + further_models * (weights.state + weights.frozen_state)
    stored = _stored_bytes(setting, weights.frozen, weights.quantized)
    return stored + further_models * (weights.used + weights.frozen)


def _distinct_weights(local: LocalSection) -> Number:
    """Elements of a layer's matrices on one chip, counting experts of one shape once."""
    section, mesh, rules = local.section, local.mesh, local.rules
    weights = {weight.name: weight for op in section.ops for weight in op.weights if len(weight.dims) > 1}
    total: Number = 0.0
    for weight in weights.values():
        size = weight_size(section, weight) / mesh.size(*rules.used(weight).axes)
        for dim in weight.dims:
            if dim.select:  # the dim that experts are chosen by, of which a chip has 1/dealt
                size = size / section.dims[dim.name] * mesh.size(*rules.dealt)
                break
        total = total + size
    return total


def state_bytes(plan: Plan, stack: Stack, state: Number, matrices: Number, sharded: Number = 1.0) -> Number:
    """Bytes on a chip of master copy and optimizer state of `state` parameters, of which `matrices` are Muon's. Where
    the host has the state, only the shards of ZeRO-3's weights stay."""
    if plan.offload in HOSTED_WEIGHTS:
        return 0.0 * state
    if plan.offload == "optimizer":
        return sharded * state * (BF16 if plan.zero == 3 else 0.0)
    return optimizer_bytes(plan, stack, state, matrices, sharded)


def optimizer_bytes(plan: Plan, stack: Stack, state: Number, matrices: Number, sharded: Number = 1.0) -> Number:
    """The same wherever they are, on the chip or on the host. Under ZeRO-3 the shards are all that stays of the
    weights, so that a stack without master copies has bf16 weights here."""
    weight_shards = sharded * (BF16 if plan.zero == 3 else 0.0)
    master = maximum(stack.state.master_bytes, weight_shards)
    moments = OPTIMIZER_BYTES[plan.optimizer]
    return state * (master + moments) - matrices * (moments - MATRIX_BYTES.get(plan.optimizer, 0.0))


def checkpoint_bytes(parameters: float, plan: Plan, stack: Stack) -> float:
    """Bytes of a run's checkpoint: weights in bf16, their master copy and the optimizer's state; 14 bytes a parameter
    under Adam, of which BLOOM's 2.3 TiB are 13."""
    moments = MOMENTUM_BYTES if plan.optimizer == "muon" else OPTIMIZER_BYTES[plan.optimizer]
    return parameters * (BF16 + stack.state.master_bytes + moments)


def weight_bytes(plan: Plan, stack: Stack, chip: Chip) -> float:
    """Bytes of a weight as it is used: in bf16, with a narrow copy beside it, or in the narrow format alone where the
    stack keeps no other (twice on chips whose tensor cores want both layouts)."""
    narrow = dtype_bytes(plan.dtype)
    if narrow >= BF16:
        return BF16
    if not stack.state.narrow_weights:
        return BF16 + narrow
    return narrow if chip.released >= FP8_BOTH_LAYOUTS_SINCE else 2 * narrow


def _policy_bytes(local: LocalSection, policy: str, narrow: float = BF16) -> Iterator[tuple[str, Number]]:
    """Name and bytes of each activation that a policy saves. What only matmuls and nonlinearities read may be saved in
    a narrow format."""
    wide: set[str] = set()
    combined: set[str] = set()
    for op in local.section.ops:
        if op.function not in ("einsum", "act"):
            wide |= {array.name for array in op.inputs}
        if op.function == "combine":
            combined.add(op.inputs[0].name)
    for array in saved_tensors(local.section, policy):
        if array.name in combined:
            continue  # rows are weighted before the experts' last matmul, so that adding them up needs nothing saved
        width = BF16 if array.name in wide else narrow
        if array.dtype:
            width = dtype_bytes(array.dtype)
        yield array.name, local.elements(array) * width


def _policy_total(local: LocalSection, policy: str) -> Number:
    return sum((size for _, size in _policy_bytes(local, policy)), 0.0)


def _layer_input(local: LocalSection) -> Number:
    """Bytes of the residual stream that a layer reads."""
    return _policy_total(local, "block") * local.stack.eager.residual / 2


def _workspace(local: LocalSection) -> Number:
    """Bytes alive in the backward pass of a section."""
    if local.section.name == "head":
        # What the head reads, whole over `tensor`, and its gradient.
        return 2 * BF16 * local.tokens * local.sizes["d"]
    # Activations and their gradients that are alive in a layer's backward pass.
    needed = _policy_total(local, "none")
    workspace = (1 + GRADIENTS_ALIVE) * local.stack.memory.kept_copies * needed
    if local.stack.eager.counted and local.is_block:
        workspace = needed + sum(eager_memory(local))
    spread = local.rules.spread
    if spread:
        # Three whole tensors over `tensor`: the layer's gathered input, its gradient before it is scattered, and the
        # next one's.
        workspace = workspace + 3.0 * BF16 * local.tokens * local.sizes["d"] * (1 - 1 / local.mesh.size(*spread))
    workspace = workspace + _gathered_keys(local)
    if local.is_block and not local.stack.kernels.flash:
        workspace = workspace + _score_bytes(local, local.stack.kernels.score_peak_bytes)
    return workspace


def _gathered_keys(local: LocalSection) -> Number:
    """Keys and values gathered over `context`, and their gradients."""
    others = local.mesh.size("context") - 1
    if local.rules.ring or local.rules.trades:
        # A ring has the next chip's keys on their way; Ulysses trades as many heads as it gets tokens.
        others = minimum(others, 1)
    total: Number = 0.0
    for op in local.section.ops:
        if op.function != "attend":
            continue
        for array in op.inputs:
            if "s" in array.names:
                total = total + 2 * BF16 * local.elements(array) * others
    return total


def saved_tensor_bytes(local: LocalSection, plan: Plan) -> Iterator[tuple[str, Number]]:
    """Name and bytes of each activation that one layer saves of one microbatch on a chip. Host offload saves none on
    the chip; of layers under two policies, these are those under the first."""
    stack = local.stack
    remat = remat_of(stack, layer_policies(plan.remat)[0])
    if remat == "offload":
        return
    if remat == "block":
        yield "input", _layer_input(local)
        return
    if remat == "selective" and stack.recompute.selective_matmuls:
        yield from _saved_op_by_op(local)
        return
    narrow = min(BF16, dtype_bytes(plan.dtype)) if stack.state.narrow_weights else BF16
    tensors = list(_policy_bytes(local, remat, narrow))
    total = sum((size for _, size in tensors), 0.0)
    extra: Number = 0.0
    if remat == "none":
        if not stack.kernels.flash:
            extra = extra + _score_bytes(local, stack.kernels.score_bytes)
        if stack.eager.counted:
            extra = extra + eager_memory(local)[0]
    yield from tensors
    # Some programs save more copies than gradients need, of everything but the layer's input.
    layer_input = _policy_total(local, "block")
    yield "copies and scores", extra + (total + extra - layer_input) * (stack.memory.kept_copies - 1)


def _saved_op_by_op(local: LocalSection) -> Iterator[tuple[str, Number]]:
    """What checkpointing op by op (torchtitan's selective mode) saves: the layer's input, the outputs of attention, and
    those of matmuls that do not run again (of every two the second does, with a share of a half). Everything else, sums
    included, is computed again from these."""
    recompute = local.stack.recompute
    matmuls = [op for op in local.section.ops if op.function == "einsum"]
    share = recompute.selective_matmuls
    rerun = [op for index, op in enumerate(matmuls) if int((index + 1) * share) > int(index * share)]
    needed = needed_tensors(local.section)
    for op, array in needed:
        if op is None or op.function == "attend" or (op.function == "einsum" and op not in rerun):
            yield array.name, BF16 * local.elements(array)
    # Outputs that no gradient reads: sums scattered over `tensor`, with which the block goes on. A program that is not
    # compiled saves every scattered sum, and the whole output of the matmul before it.
    ways, keeps_unread = local.mesh.size(*local.rules.spread), recompute.keeps_unread
    for op in matmuls:
        if op.output is not None and all(op is not maker for maker, _ in needed):
            scattered = where(ways > 1, 1.0, 0.0) * (keeps_unread or op is not matmuls[-1])
            size = BF16 * local.elements(op.output)
            yield op.output.name, size * (scattered + ways * (keeps_unread and op not in rerun))


def _score_bytes(local: LocalSection, each: float) -> Number:
    """Bytes of attention's scores where they are written out, `each` of a score.

    Scores are (sequences, heads, queries, keys) on one chip."""
    sizes, mesh = local.sizes, local.mesh
    heads = sizes.get("n", 0) / mesh.size("tensor")
    sequences = sizes["b"] / mesh.size("data", "fsdp", "expert")
    return each * sequences * heads * sizes["t"] * sizes["s"] / mesh.size("context")


def _logit_bytes(local: LocalSection) -> Number:
    """Bytes of the logits that exist at once, and of what the loss makes of them."""
    if local.section.name != "head":
        return 0.0
    logits, memory = local.section.ops[-1].output, local.stack.memory
    assert logits is not None
    per_logit = memory.logit_bytes + memory.split_logit_bytes * where(local.mesh.size("tensor") > 1, 1.0, 0.0)
    return local.elements(logits) * per_logit / memory.loss_chunks
