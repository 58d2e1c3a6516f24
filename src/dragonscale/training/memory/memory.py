"""What one layer has a chip hold, by part: a sum over named tensors.

Weights, gradients and optimizer state are split by every axis that splits the weight, and further by the axes that
split its state as far as the ZeRO stage goes. Activations are those that the remat policy keeps, for one microbatch.
Beside them: gathered weights, logits, and what is alive while the layer runs. `dragonscale.training.memory.peak_memory`
puts layers into ranks and finds the moment when most is there; where XLA assigns the buffers,
`dragonscale.training.memory.xla_memory` does.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from dragonscale.models.activations import needed_tensors, saved_tensors
from dragonscale.models.count import weight_size
from dragonscale.models.program import Op, Section
from dragonscale.physics.hardware import Chip
from dragonscale.physics.hardware.chip import dtype_bytes
from dragonscale.physics.numbers import Number, maximum, minimum, where
from dragonscale.physics.sharding.layout import local_elements
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.plan.rules import Rules
from dragonscale.training.plan.eager import kept_bytes
from dragonscale.training.plan.expert_load import at_busiest
from dragonscale.training.plan.optimizers import MOMENTUM_BYTES, OPTIMIZER_BYTES, matrix_names
from dragonscale.training.plan.plan import HOSTED_STATE, Plan, layer_policies
from dragonscale.training.plan.setting import Setting, pass_sizes
from dragonscale.training.plan.stack import Stack, remat_of
from dragonscale.training.plan.tuning import Tuning

GRADIENTS_ALIVE = 0.5
"""Gradients of activations that are alive at once in a layer's backward pass, over all of its activations: those of an
FFN's two hidden tensors while the third is read. HF's Llama 3 8B with fused loss takes 234 kB a token beside what it
keeps (fms-acceleration's reference runs): 1.5 times a layer's activations, with the copies that its eager norms make.
"""


@dataclass(frozen=True)
class Held:
    """Bytes that one layer keeps on one chip. `parameters` is this chip's share of the optimizer's work; of these
    `matrices` are those that Muon orthogonalizes; `used` counts the trained weights that it computes with, `frozen`
    those that are not trained, of which `quantized` are dequantised at each use; `working` are the activations alive in
    the layer's backward pass, saved ones too, and their gradients; `reducing` the gradients on their way to where their
    state lies; `entry` is what the layer reads of one microbatch; `placeholders` what autograd is given for weights
    whose gradients are added to a buffer elsewhere."""

    weights: Number
    gradients: Number
    optimizer: Number
    gathered: Number
    activations: Number
    working: Number
    reducing: Number
    placeholders: Number
    logits: Number
    entry: Number
    parameters: Number
    used: Number
    shards: Number
    """1 where an axis shards the state, else 0: ZeRO over nothing is plain replicas, whatever its stage."""
    frozen: Number = 0.0
    quantized: Number = 0.0
    matrices: Number = 0.0
    hosted_weights: Number = 0.0
    """Bytes of its weights at rest in the host's memory (`offload=parameters`)."""
    sends_gradients: Number = 0.0
    """1 where gradients go to the host's memory with every microbatch, else 0; every section's do, or none's."""

    def with_layers(self, again: Number, sent: Number) -> "Held":
        """The mean of layers of which a share is recomputed whole, and keeps its input, and a share is sent to the
        host, and keeps nothing. Most is there where the backward pass begins: the last layer, which is recomputed only
        if all are, has its own then, and of layers that go to the host one is on its way."""
        kept = self.activations + again * (self.entry - self.activations) - sent * self.activations
        last = where(again < 1, self.activations, self.entry) * where(sent > 0, 0.0, 1.0)
        return replace(self, activations=kept, working=self.working + kept - last)


def weight_shares(
    section: Section, mesh: Mesh, rules: Rules, apart: bool = True
) -> Iterator[tuple[str, Number, Number]]:
    """Each weight of a section: elements on one chip as it is used, and of its optimizer state. `apart`: the ends of a
    pipeline lie on different chips."""
    seen: set[str] = set()
    for op in section.ops:
        for weight in op.weights:
            if weight.name in seen:
                continue
            seen.add(weight.name)
            size = weight_size(section, weight)
            if section.name == "head" and weight.name in section.shared:
                size = size * (mesh.size("pipe") > 1) * apart  # a tied embedding is there once, unless ends lie apart
            elif weight.name in section.shared and section.name != "embed":
                size = size / section.repeat  # layers that share it hold it once among them
            used = size / mesh.size(*rules.used(weight).axes)
            yield weight.name, used, size / mesh.size(*rules.optimizer_state(weight).axes)


@dataclass(frozen=True)
class WeightShares:
    """Elements of a section's weights on one chip as they are used, and of their shards: trained ones, of which
    `matrices` are Muon's, frozen ones, and of these the quantised."""

    used: Number = 0.0
    state: Number = 0.0
    matrices: Number = 0.0
    frozen: Number = 0.0
    frozen_state: Number = 0.0
    quantized: Number = 0.0
    quantized_state: Number = 0.0

    @property
    def shards(self) -> Number:
        """Whether an axis shards them: 1 or 0."""
        return where(self.state + self.frozen_state < self.used + self.frozen, 1.0, 0.0)


def section_shares(setting: Setting, section: Section, mesh: Mesh, apart: bool = True) -> WeightShares:
    """A section's weights by what becomes of them."""
    rules, sums = setting.rules(section), dict.fromkeys((one.name for one in fields(WeightShares)), 0.0)
    frozen = {weight.name for op in section.ops if op.frozen for weight in op.weights}
    narrow = {weight.name for op in section.ops if quantizes(setting.tuning, section, op) for weight in op.weights}
    matrices = matrix_names(section, setting.plan)
    for name, one, share in weight_shares(section, mesh, rules, apart):
        for kind, counts in (("", name not in frozen), ("frozen", name in frozen), ("quantized", name in narrow)):
            use, held = (kind or "used", f"{kind}_state" if kind else "state")
            sums[use], sums[held] = sums[use] + one * counts, sums[held] + share * counts
        sums["matrices"] = sums["matrices"] + share * (name in matrices)
    return WeightShares(**sums)


def quantizes(tuning: Tuning, section: Section, op: Op) -> bool:
    """Whether a line's frozen weights are in a narrow format: those of a layer's matmuls."""
    return op.frozen and op.function == "einsum" and "block" in section.name and tuning.frozen != "bf16"


def section_bytes(setting: Setting, section: Section, microbatch: Number, mesh: Mesh) -> Held:
    """One section's state and saved activations on one chip, that with the busiest experts. `mesh` may hold arrays."""
    plan, stack, rules = setting.plan, setting.stack, setting.rules(section)
    sizes = at_busiest(section, rules, pass_sizes(setting, section, microbatch, mesh), mesh, stack)
    own = section_shares(setting, section, mesh)
    used, state, shards = own.used, own.state, own.shards
    piped = where(mesh.size("pipe") > 1, 1.0, 0.0) * (plan.zero >= 2 and stack.memory.pipe_whole)
    width = weight_bytes(plan, stack, setting.slice.chip)
    gathered = (1 - piped) * shards * (plan.zero == 3)
    on_chip = 1.0
    if plan.offload == "parameters":  # a layer's weights are there while it runs, sharded or not
        gathered, on_chip = 1.0 + 0 * used, 0.0
    gradients = state + piped * (used - state) if plan.zero >= 2 else used
    sent = _sends_gradients(setting, shards, mesh)
    at_rest = (1 - gathered) * (used * width + frozen_bytes(setting, own, False))
    return Held(
        weights=at_rest + on_chip * gathered * frozen_bytes(setting, own, True),
        gradients=(1 - sent) * gradients * stack.state.gradient_bytes,
        optimizer=state_bytes(plan, stack, state, own.matrices, shards),
        gathered=gathered * (used * width + _stored(setting, own.frozen, own.quantized)),
        activations=sum((size for _, size in saved_bytes(section, sizes, mesh, plan, rules, stack)), 0.0 * used),
        working=_head_input(sizes, mesh, rules)
        if section.name == "head"
        else _backward_bytes(section, sizes, mesh, rules, stack)
        + _whole_residuals(sizes, mesh, rules)
        + _whole_keys(section, sizes, mesh, rules)
        + (0.0 if stack.kernels.flash or "block" not in section.name else _squares(sizes, mesh)),
        reducing=shards * used * (2.0 + stack.state.scatter_bytes * (stack.state.scatter_bytes > 2)) * (plan.zero >= 2),
        placeholders=2.0 * _distinct(section, mesh, rules) if stack.memory.placeholders else 0 * used,
        logits=_logits(section, sizes, mesh, rules, stack),
        entry=_entry(section, sizes, mesh, rules, stack) if "block" in section.name else 0.0 * used,
        parameters=state,
        used=used,
        shards=shards,
        frozen=own.frozen,
        quantized=own.quantized,
        matrices=own.matrices,
        sends_gradients=sent,
        hosted_weights=(1 - on_chip) * (2.0 * state + frozen_bytes(setting, own, True)),
    )


def _sends_gradients(setting: Setting, shards: Number, mesh: Mesh) -> Number:
    """1 where gradients go to the host with every microbatch, else 0: from ZeRO-2 on, and on a chip alone, where there
    is nothing to shard."""
    if setting.plan.offload not in HOSTED_STATE or not setting.stack.state.hosted_gradients:
        return 0.0
    alone = where(mesh.size("data", "fsdp", "expert", "context") > 1, 0.0, 1.0)
    return where(shards > 0, 1.0 if setting.plan.zero >= 2 else 0.0, alone)


def _stored(setting: Setting, frozen: Number, quantized: Number) -> Number:
    """Bytes of frozen weights as they are stored."""
    return (frozen - quantized) * setting.stack.state.frozen_bytes + quantized * setting.tuning.frozen_bytes


def frozen_bytes(setting: Setting, own: WeightShares, sharded: bool) -> Number:
    """Bytes of frozen weights at rest, and of models that lie beside the trained one, in bf16."""
    others = setting.tuning.copies * 2.0
    if sharded:
        return _stored(setting, own.frozen_state, own.quantized_state) + others * (own.state + own.frozen_state)
    return _stored(setting, own.frozen, own.quantized) + others * (own.used + own.frozen)


def _distinct(section: Section, mesh: Mesh, rules: Rules) -> Number:
    """Elements of a layer's weights on one chip, experts of one shape once."""
    weights = {weight.name: weight for op in section.ops for weight in op.weights if len(weight.dims) > 1}
    total: Number = 0.0
    for weight in weights.values():
        size = weight_size(section, weight) / mesh.size(*rules.used(weight).axes)
        experts = [dim.name for dim in weight.dims if dim.select]
        total = total + (size / section.dims[experts[0]] * mesh.size(*rules.dealt) if experts else size)
    return total


def state_bytes(plan: Plan, stack: Stack, state: Number, matrices: Number, shards: Number = 1.0) -> Number:
    """Bytes of master copy and optimizer state of `state` parameters, of which `matrices` are Muon's; where the host's
    memory has them, of the shards of weights that stay (`shards`: 0 where none are sharded)."""
    if plan.offload == "parameters":
        return 0.0 * state
    if plan.offload == "optimizer":
        return shards * state * (2.0 if plan.zero == 3 else 0.0)
    return owned_bytes(plan, stack, state, matrices, shards)


def owned_bytes(plan: Plan, stack: Stack, state: Number, matrices: Number, shards: Number = 1.0) -> Number:
    """The same wherever they lie. Shards of ZeRO-3 are all that stays of weights, master copy or not."""
    least = shards * (2.0 if plan.zero == 3 else 0.0)
    master = maximum(stack.state.master_bytes, least)
    each = OPTIMIZER_BYTES[plan.optimizer]
    return state * (master + each) - matrices * (each - MOMENTUM_BYTES)


def checkpoint_bytes(parameters: float, plan: Plan, stack: Stack) -> float:
    """What a checkpoint of a run holds: weights in bf16, their master copy and the optimizer's state; 14 bytes a
    parameter under Adam, of which BLOOM's 2.3 TiB are 13."""
    state = MOMENTUM_BYTES if plan.optimizer == "muon" else OPTIMIZER_BYTES[plan.optimizer]
    return parameters * (2.0 + stack.state.master_bytes + state)


def weight_bytes(plan: Plan, stack: Stack, chip: Chip) -> float:
    """Bytes of a weight as it is used: in bf16, or, where the stack keeps weights in the narrow format, in that alone
    (twice on chips whose tensor cores only take it along one dim, which also need it transposed)."""
    narrow = dtype_bytes(plan.dtype)
    if narrow >= 2:
        return 2.0
    if not stack.state.narrow_weights:
        return 2.0 + narrow
    return narrow if chip.released >= TWO_WAY else 2 * narrow


TWO_WAY = "2024-06"
"""From Blackwell on, tensor cores take fp8 operands laid out along either dim."""


def kept_tensors(
    section: Section, sizes: dict[str, Number], mesh: Mesh, rules: Rules, policy: str, narrow: float = 2.0
) -> Iterator[tuple[str, Number]]:
    """Bytes of the activations that a policy keeps. What only matmuls and nonlinearities read may be kept in a narrow
    format."""
    wide = {array.name for op in section.ops if op.function not in ("einsum", "act") for array in op.inputs}
    combined = {op.inputs[0].name for op in section.ops if op.function == "combine"}
    for array in saved_tensors(section, policy):
        if array.name in combined:
            continue  # weighted before the last matmul, so that adding up needs nothing kept
        elements = local_elements(rules.activation(array), sizes, mesh)
        width = dtype_bytes(array.dtype) if array.dtype else 2.0 if array.name in wide else narrow
        yield array.name, elements * width


def _alive(section: Section, sizes: dict[str, Number], mesh: Mesh, rules: Rules, policy: str) -> Number:
    return sum((size for _, size in kept_tensors(section, sizes, mesh, rules, policy)), 0.0)


def _entry(section: Section, sizes: dict[str, Number], mesh: Mesh, rules: Rules, stack: Stack) -> Number:
    return _alive(section, sizes, mesh, rules, "block") * stack.eager.residual / 2


def _backward_bytes(section: Section, sizes: dict[str, Number], mesh: Mesh, rules: Rules, stack: Stack) -> Number:
    """Activations and their gradients that are alive in a layer's backward pass."""
    needed = _alive(section, sizes, mesh, rules, "none")
    if stack.eager.counted and "block" in section.name:
        return needed + sum(kept_bytes(section, sizes, mesh, rules, stack.eager))
    return (1 + GRADIENTS_ALIVE) * stack.memory.kept_copies * needed


def _whole_residuals(sizes: dict[str, Number], mesh: Mesh, rules: Rules) -> Number:
    """A layer's input gathered over `tensor`, its gradient before it is scattered, and the next one's: three whole."""
    if not rules.spread:
        return 0.0
    tokens = sizes["b"] / mesh.size(*rules.batch) * sizes["t"] / mesh.size(*rules.tokens)
    return 3.0 * 2.0 * tokens * sizes["d"] * (1 - 1 / mesh.size(*rules.spread))


def _head_input(sizes: dict[str, Number], mesh: Mesh, rules: Rules) -> Number:
    """What the head reads, whole over `tensor`, and its gradient."""
    return 2 * 2.0 * sizes["b"] / mesh.size(*rules.batch) * sizes["t"] / mesh.size(*rules.tokens) * sizes["d"]


def _whole_keys(section: Section, sizes: dict[str, Number], mesh: Mesh, rules: Rules) -> Number:
    """Keys and values gathered over `context`, and their gradients; round a ring only the next piece of them, and
    where heads are traded for the sequence as many as there were."""
    arrays = [array for op in section.ops if op.function == "attend" for array in op.inputs if "s" in array.names]
    whole: Number = 0.0
    for array in arrays:
        elements = local_elements(rules.activation(array), sizes, mesh)
        pieces = mesh.size("context") - 1
        whole = whole + 2 * 2.0 * elements * (minimum(pieces, 1) if rules.ring or rules.trades else pieces)
    return whole


def saved_bytes(
    section: Section, sizes: dict[str, Number], mesh: Mesh, plan: Plan, rules: Rules, stack: Stack
) -> Iterator[tuple[str, Number]]:
    """Saved activations of one microbatch in one layer by tensor, split as they lie; host offload
    keeps none of them. Of layers under two policies, what those under the first save."""
    remat = remat_of(stack, layer_policies(plan.remat)[0])
    if remat == "offload":
        return
    if remat == "block":
        yield "input", _entry(section, sizes, mesh, rules, stack)
        return
    narrow = min(2.0, dtype_bytes(plan.dtype)) if stack.state.narrow_weights else 2.0
    least = _alive(section, sizes, mesh, rules, "block")
    if remat == "selective" and stack.recompute.selective_matmuls:
        yield from _by_op(section, sizes, mesh, rules, stack)
        return
    kept = list(kept_tensors(section, sizes, mesh, rules, remat, narrow))
    total = sum((size for _, size in kept), 0.0)
    more: Number = 0.0
    if not stack.kernels.flash and remat == "none":
        more = more + _squares(sizes, mesh)
    if stack.eager.counted and remat == "none":
        more = more + kept_bytes(section, sizes, mesh, rules, stack.eager)[0]
    yield from kept
    yield "copies and scores", more + (total + more - least) * (stack.memory.kept_copies - 1)


def _by_op(
    section: Section, sizes: dict[str, Number], mesh: Mesh, rules: Rules, stack: Stack
) -> Iterator[tuple[str, Number]]:
    """What checkpointing op by op keeps: the layer's input, what attention puts out, and the outputs of matmuls, but
    for those that run again (of every two the second, with a half); all else, sums too, is made from these. Of outputs
    that no gradient reads: sums scattered over `tensor`, from which the block goes on; without a compiler everything
    that is scattered, and what matmuls put out before, whole."""
    again, matmuls = stack.recompute.selective_matmuls, [op for op in section.ops if op.function == "einsum"]
    rerun = [op for place, op in enumerate(matmuls) if int((place + 1) * again) > int(place * again)]
    needed = needed_tensors(section)
    for op, array in needed:
        if op is None or op.function == "attend" or (op.function == "einsum" and op not in rerun):
            yield array.name, 2.0 * local_elements(rules.activation(array), sizes, mesh)
    ways, unread = mesh.size(*rules.spread), stack.recompute.keeps_unread
    for op in matmuls:
        if op.output is not None and all(op is not maker for maker, _ in needed):
            scattered = where(ways > 1, 1.0, 0.0) * (unread or op is not matmuls[-1])
            size = 2.0 * local_elements(rules.activation(op.output), sizes, mesh)
            yield op.output.name, size * (scattered + ways * (unread and op not in rerun))


def _squares(sizes: dict[str, Number], mesh: Mesh) -> Number:
    """Scores, their softmax and dropout's mask, where attention writes them out: 5 bytes a score."""
    heads = sizes.get("n", 0) / mesh.size("tensor")
    sequences = sizes["b"] / mesh.size("data", "fsdp", "expert")
    return 5.0 * sequences * heads * sizes["t"] * sizes["s"] / mesh.size("context")


def _logits(section: Section, sizes: dict[str, Number], mesh: Mesh, rules: Rules, stack: Stack) -> Number:
    """Bytes of the logits that are there at once, and of what the loss makes of them."""
    if section.name != "head":
        return 0.0
    logits, memory = section.ops[-1].output, stack.memory
    assert logits is not None
    each = memory.logit_bytes + memory.split_logit_bytes * where(mesh.size("tensor") > 1, 1.0, 0.0)
    return local_elements(rules.activation(logits), sizes, mesh) * each / memory.loss_chunks
