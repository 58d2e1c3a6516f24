"""The memory that a training step takes on one chip when XLA assigns its buffers: named parts, and how many of each are
alive.

State, saved activations and gradients are counted as they are. Beside them lies a workspace, which is largest either
around the head (logits and what the loss makes of them, the head's weights and their gradient) or in a layer's backward
pass (gathered weights, the FFN's hidden dims, attention's block of scores unless a flash kernel has them, residuals,
and their gradients). How many copies of each are alive at once is the compiler's affair: the counts in `ALIVE` were
fitted, for each compiler, on compiled programs (`docs/verify.md` says on which and how far others are off).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dragonscale.models.activations import needed_tensors, saved_tensors
from dragonscale.models.attention import ATTENTION_BLOCK
from dragonscale.models.program import Section
from dragonscale.physics.notation import Array
from dragonscale.physics.numbers import Number, maximum, product, where
from dragonscale.physics.sharding.layout import local_elements
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.plan.ledger import HeldLine
from dragonscale.plan.rules import Rules
from dragonscale.training.memory.memory import frozen_bytes, section_shares, state_bytes
from dragonscale.training.plan.expert_load import expert_room
from dragonscale.training.plan.plan import HOSTED_STATE, Plan, layer_policies
from dragonscale.training.plan.setting import Setting, pass_sizes
from dragonscale.training.plan.stack import ALIVE, Alive
from dragonscale.training.plan.stages import SPLIT_BACKWARD, StageLayers, held_microbatches, share_of_layers

BF16, FP32 = 2.0, 4.0
IN_TRANSIT = 2.0
"""Layers whose activations are on the chip although the host has them: the one that is used, and the next one."""


@dataclass(frozen=True)
class SectionParts:
    """One pass through a section: bytes on one chip, each part once; `used` and `state` are elements of
    trained weights, `every` those of all, `matrices` those of the state that Muon orthogonalizes."""

    used: Number
    state: Number
    matrices: Number
    frozen: Number
    every: Number
    tied: Number
    saved: Number
    entry: Number
    hidden: Number
    scores: Number
    rows: Number
    logits: Number
    put_off: Number


def section_parts(setting: Setting, section: Section, microbatch: Number, mesh: Mesh) -> SectionParts:
    """The parts of one section."""
    plan, stack, rules = setting.plan, setting.stack, setting.rules(section)
    sizes = pass_sizes(setting, section, microbatch, mesh)
    room = expert_room(section, rules, sizes, mesh, stack)
    own = section_shares(setting, section, mesh, apart=False)  # a program that XLA compiles has both ends
    shared = [array for op in section.ops for array in op.weights if array.name in section.shared]
    logits = section.ops[-1].output
    routed = next((op.output for op in section.ops if op.function == "dispatch"), None)

    def elements(array: Array) -> Number:
        if routed is not None and "x" in array.names and array.names[-1] not in ("x", "e"):
            rows = local_elements(rules.activation(routed), sizes, mesh, without=("d",))
            return rows * room * sizes[array.names[-1]]
        return local_elements(rules.activation(array), sizes, mesh)

    acts = [op.output for op in section.ops if op.function == "act" and op.output is not None]
    blocks = [op for op in section.ops if op.function == "attend"]
    return SectionParts(
        used=own.used,
        state=own.state,
        matrices=own.matrices,
        frozen=frozen_bytes(setting, own, sharded=plan.zero == 3),
        every=own.used + own.frozen,
        tied=sum((_table(section, array, rules, mesh) for array in shared), 0.0) if section.name == "head" else 0.0,
        saved=sum((elements(array) for array in _saved(section, plan)), 0.0) * BF16 if "block" in section.name else 0.0,
        entry=elements(saved_tensors(section, "block")[0]) * BF16 if "block" in section.name else 0.0,
        hidden=sum((elements(array) for array in acts), 0.0) * BF16,
        scores=maximum(0.0, *(_score_block(op.inputs[0], rules, sizes, mesh) for op in blocks))
        if blocks and stack.kernels.masked_square
        else 0.0,
        rows=elements(routed) * BF16 if routed is not None else 0.0,
        logits=elements(logits) * BF16 if section.name == "head" and logits is not None else 0.0,
        put_off=sum((ways * elements(array) for ways, array in _put_off(section, plan, rules, mesh)), 0.0) * BF16,
    )


def _put_off(section: Section, plan: Plan, rules: Rules, mesh: Mesh) -> Iterator[tuple[Number, Array]]:
    """What a layer whose backward pass is split keeps until gradients of its weights are made, and on how many chips of
    a row it lies whole: gradients of what weights make, as they came to the matmul; and of what weights and
    nonlinearities read the results of matmuls and attention that the policy does not save."""
    if "block" not in section.name:
        return
    for op in section.ops:
        if op.weights and op.output is not None:
            split = rules.computing(op) if op.function == "einsum" else {}
            summed = {axis for name in (op.einsum.contracted if split else ()) for axis in split.get(name, ())}
            yield mesh.size(*summed.intersection(rules.spread)), op.output
    saved = {array.name for array in _saved(section, plan) if layer_policies(plan.remat)[0] != "block"}
    read = {array.name for op in section.ops if op.weights or op.function == "act" for array in op.inputs}
    for maker, array in needed_tensors(section):
        light = maker is None or maker.function in ("act", "norm")
        if not light and array.name in read - saved:
            yield 1, array


def _table(section: Section, array: Array, rules: Rules, mesh: Mesh) -> Number:
    return product(section.dims[name] for name in array.names) / mesh.size(*rules.used(array).axes)


def _saved(section: Section, plan: Plan) -> list[Array]:
    """What a layer keeps under the plan's policy; its input always, which the scan over layers hands on."""
    if plan.remat == "offload":
        return []
    policy = layer_policies(plan.remat)[0]
    arrays = list(saved_tensors(section, policy))
    entry = saved_tensors(section, "block")[0]
    if policy != "block" and entry.name not in [array.name for array in arrays]:
        arrays.append(entry)
    return arrays


def _score_block(query: Array, rules: Rules, sizes: dict[str, Number], mesh: Mesh) -> Number:
    """A block of queries against all the keys that are there at once. (The steps of a ring overlap: XLA has the scores
    of all of them alive, as many as of gathered keys.)"""
    laid = rules.activation(query)
    tokens = sizes["t"] / mesh.size(*laid.dim("t").axes)
    whole = (tokens <= ATTENTION_BLOCK) | (tokens % ATTENTION_BLOCK != 0)
    block = where(whole, tokens, ATTENTION_BLOCK)
    batch = sizes["b"] / mesh.size(*laid.dim("b").axes)
    heads = product(sizes[dim.name] / mesh.size(*dim.axes) for dim in laid.dims[2:-1])
    return batch * heads * block * sizes["s"] * FP32


def _layer_workspace(
    alive: Alive, blocks: list[SectionParts], gradients: Number, residual: Number
) -> dict[str, Number]:
    """What lies there while a layer's gradients are made, by part."""

    def largest(name: str) -> Number:
        return maximum(0.0, *(getattr(one, name) for one in blocks))

    return {
        "gradients": gradients,
        "gathered weights": alive.weights * largest("every") * BF16,
        "FFN hidden": alive.hidden * largest("hidden"),
        "attention block": alive.scores * largest("scores"),
        "residuals": alive.residual * residual * BF16,
        "rows of experts": alive.rows * largest("rows"),
    }


def xla_held(
    setting: Setting, parts: dict[str, SectionParts], layers: StageLayers, numbers: dict[str, Any], microbatches: Number
) -> list[HeldLine]:
    """The peak by part: what lies there all the time, and the larger of the two workspaces."""
    plan, stack, counts = setting.plan, setting.stack, layers.fullest
    alive, ends = setting.alive or ALIVE[setting.slice.chip.kind], [section.name for section in setting.ends]
    tokens = numbers["microbatch"] * setting.sequence / numbers["context"]  # of a microbatch on one chip
    flight = held_microbatches(plan.schedule, numbers["pipe"], numbers["virtual"], microbatches)
    width = setting.program.sections[0].dims["d"]
    times = {**counts, "embed": 1, **dict.fromkeys(ends, 1)}
    used, state, matrices, frozen = (
        sum(getattr(parts[name], part) * often for name, often in times.items())
        for part in ("used", "state", "matrices", "frozen")
    )
    sharded = plan.zero == 3
    head = parts[ends[0]]
    share = state if plan.zero >= 2 else used
    again = share_of_layers(plan.remat, counts, numbers)
    sent = share_of_layers(plan.offload, counts, numbers)
    kept = {name: (1 - again - sent) * parts[name].saved + again * parts[name].entry for name in counts}
    on_the_way = IN_TRANSIT * maximum(*[parts[name].saved for name in counts]) * where(sent > 0, 1.0, 0.0)
    saved = flight * sum(kept[name] * often for name, often in counts.items()) + on_the_way
    late = flight * sum(parts[name].put_off * often for name, often in counts.items())
    late = late * where(numbers["pipe"] > 1, 1.0, 0.0) * (plan.schedule in SPLIT_BACKWARD)
    # Layers under two policies are two scans, whose gradients are put together into one stack.
    mixed = where((again + sent > 0) & (again + sent < 1), 1.0, 0.0)
    stacked = mixed * sum(
        (parts[name].state if sharded else parts[name].used) * often for name, often in counts.items()
    )
    away = plan.offload in HOSTED_STATE
    here = 0.0 * state if away else state_bytes(plan, stack, state, matrices)
    copied = state if away else 0.0 * state
    lines = [
        HeldLine("weights and optimizer", "master copy and optimizer state", here),
        HeldLine("frozen weights", "weights that are not trained", frozen),
        HeldLine("tokens", "tokens and targets", 2 * 4.0 * tokens * microbatches),
        HeldLine("compute copy", "weights in bf16", (copied if sharded else used) * BF16),
        HeldLine("saved activations", "saved by layers", saved, "forward", "backward"),
        HeldLine("put off", "kept for gradients of weights", late, "backward", "backward"),
        HeldLine("gradients added up", "gradients of earlier microbatches", where(microbatches > 1, share * FP32, 0.0)),
    ]
    # One program runs on all ranks of a pipeline: each has what the embedding makes of every microbatch.
    piped = where(numbers["pipe"] > 1, 2.0 * microbatches, 0.0) * tokens * width * BF16 / numbers["tensor"]
    lines.append(HeldLine("microbatches", "inputs of the stages and their gradients", piped, "forward", "backward"))
    # Where the stack's loss is its own, by what it holds; of our own program's, as many copies as the compiler has.
    copies = stack.memory.logit_bytes / stack.memory.loss_chunks / BF16 or alive.logits
    around = {"logits": copies * head.logits, "head's weights": alive.head * (head.every + head.tied) * BF16}
    gradients = (state + stacked) * FP32 if sharded else (used + stacked) * BF16
    inside = _layer_workspace(alive, [parts[name] for name in counts], gradients, tokens * width)
    outer = sum(around.values()) >= sum(inside.values())
    for name, size in around.items():
        lines.append(HeldLine(name, name, where(outer, size, 0.0), "forward", "backward", "head"))
    for name, size in inside.items():
        lines.append(HeldLine(name, name, where(outer, 0.0, size), "backward", "backward", "layer"))
    return lines
