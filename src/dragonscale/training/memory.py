"""What each chip must hold, by part: a sum over named tensors.

Weights, gradients and optimizer state are split by every axis that splits the weight, and further by the axes that split
its state as far as the ZeRO stage goes. Activations are those that the remat policy keeps, times the layers of the rank
and the microbatches its schedule has in flight. Beside them: the layers whose weights are gathered, the logits and their
gradient, what is alive inside one layer, and what the framework keeps for itself. Where XLA assigns the buffers, the workspace is
counted otherwise (`dragonscale.training.xla_memory`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dragonscale.hardware import Chip
from dragonscale.hardware.chip import dtype_bytes
from dragonscale.models.activations import saved_tensors
from dragonscale.models.count import weight_size
from dragonscale.models.program import Section
from dragonscale.numbers import Number, maximum, minimum, where
from dragonscale.plan.ledger import HeldLine
from dragonscale.plan.rules import Rules
from dragonscale.sharding.mesh import Mesh
from dragonscale.sharding.pieces import local_elements
from dragonscale.training.expert_load import at_busiest
from dragonscale.training.optimizers import MOMENTUM_BYTES, OPTIMIZER_BYTES, matrix_names
from dragonscale.training.plan import Plan
from dragonscale.training.stack import Stack
from dragonscale.training.stages import StageLayers, held_last, held_microbatches


@dataclass(frozen=True)
class Held:
    """Bytes that one layer keeps on one chip. `parameters` is this chip's share of the optimizer's work; of these `matrices` are those that
    Muon orthogonalizes; `used` counts the weights that it computes with; `working` are the activations alive while the layer runs."""

    weights: Number
    gradients: Number
    optimizer: Number
    gathered: Number
    activations: Number
    working: Number
    logits: Number
    parameters: Number
    used: Number
    matrices: Number = 0.0


def weight_shares(section: Section, mesh: Mesh, rules: Rules) -> Iterator[tuple[str, Number, Number]]:
    """Each weight of a section: elements on one chip as it is used, and of its optimizer state."""
    seen: set[str] = set()
    for op in section.ops:
        for weight in op.weights:
            if weight.name in seen:
                continue
            seen.add(weight.name)
            size = weight_size(section, weight)
            if section.name == "head" and weight.name in section.shared:
                size = size * (mesh.size("pipe") > 1)  # a tied embedding is there once, unless the ends lie apart
            used = size / mesh.size(*rules.used(weight).axes)
            yield weight.name, used, size / mesh.size(*rules.optimizer_state(weight).axes)


def section_bytes(
    section: Section, sizes: dict[str, Number], mesh: Mesh, plan: Plan, rules: Rules, stack: Stack, chip: Chip
) -> Held:
    """One section's state and saved activations on one chip, that with the busiest experts. `mesh` may hold arrays."""
    sizes = at_busiest(section, rules, sizes, mesh, stack)
    used: Number = 0
    state: Number = 0
    orthogonal: Number = 0.0
    names = matrix_names(section, plan)
    for name, one, share in weight_shares(section, mesh, rules):
        used, state = used + one, state + share
        orthogonal = orthogonal + share * (name in names)
    sharded = plan.zero == 3
    width = weight_bytes(plan, stack, chip)
    return Held(
        weights=0 * used if sharded else used * width,
        gradients=(state if plan.zero >= 2 else used) * stack.state.gradient_bytes,
        optimizer=state_bytes(plan, stack, state, orthogonal),
        gathered=used * width if sharded else 0 * used,
        activations=sum((size for _, size in saved_bytes(section, sizes, mesh, plan, rules, stack)), 0.0 * used),
        working=_alive(section, sizes, mesh, rules, "none")
        + _whole_residuals(sizes, mesh, rules)
        + _whole_keys(section, sizes, mesh, rules),
        logits=_logits(section, sizes, mesh, rules),
        parameters=state,
        used=used,
        matrices=orthogonal,
    )


def state_bytes(plan: Plan, stack: Stack, state: Number, matrices: Number) -> Number:
    """Bytes of master copy and optimizer state of `state` parameters, of which `matrices` are Muon's."""
    master = max(stack.state.master_bytes, 2.0) if plan.zero == 3 else stack.state.master_bytes
    each = OPTIMIZER_BYTES[plan.optimizer]
    return state * (master + each) - matrices * (each - MOMENTUM_BYTES)


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
    """Bytes of the activations that a policy keeps. What only matmuls and nonlinearities read may be kept in a narrow format."""
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


def _whole_residuals(sizes: dict[str, Number], mesh: Mesh, rules: Rules) -> Number:
    """A layer's input gathered over `tensor`, its gradient before it is scattered, and the next one's: three whole."""
    if not rules.spread:
        return 0.0
    tokens = sizes["b"] / mesh.size(*rules.batch) * sizes["t"] / mesh.size(*rules.tokens)
    return 3.0 * 2.0 * tokens * sizes["d"] * (1 - 1 / mesh.size(*rules.spread))


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
    """Saved activations of one microbatch in one layer by tensor, split as they lie; host offload keeps none of them."""
    if plan.remat == "offload":
        return
    if plan.remat == "block":
        yield from kept_tensors(section, sizes, mesh, rules, "block")
        return
    narrow = min(2.0, dtype_bytes(plan.dtype)) if stack.state.narrow_weights else 2.0
    least = _alive(section, sizes, mesh, rules, "block")
    kept = list(kept_tensors(section, sizes, mesh, rules, plan.remat, narrow))
    total = sum((size for _, size in kept), 0.0)
    more: Number = 0.0
    if plan.remat == "selective":
        # Matmuls that run again free their own outputs, about half of what is kept.
        more = -0.5 * stack.recompute.selective_matmuls * maximum(total - least, 0.0)
    if not stack.kernels.flash and plan.remat == "none":
        more = more + _squares(sizes, mesh)
    yield from kept
    yield "copies and scores", more + (total + more - least) * (stack.memory.kept_copies - 1)


def _squares(sizes: dict[str, Number], mesh: Mesh) -> Number:
    """Scores, their softmax and dropout's mask, where attention writes them out: 5 bytes a score."""
    heads = sizes.get("n", 0) / mesh.size("tensor")
    sequences = sizes["b"] / mesh.size("data", "fsdp", "expert")
    return 5.0 * sequences * heads * sizes["t"] * sizes["s"] / mesh.size("context")


def _logits(section: Section, sizes: dict[str, Number], mesh: Mesh, rules: Rules) -> Number:
    if section.name != "head":
        return 0.0
    logits = section.ops[-1].output
    assert logits is not None
    return local_elements(rules.activation(logits), sizes, mesh)


def ranks_held(
    plan: Plan, stack: Stack, held: dict[str, Held], layers: StageLayers, numbers: dict[str, Any], microbatches: Number,
    ends: list[str],
) -> tuple[list[HeldLine], list[HeldLine]]:  # fmt: skip
    """What two ranks hold: the first, with the most microbatches and the embedding, and the last, with the head."""
    alone = numbers["pipe"] == 1
    flight = held_microbatches(plan.schedule, numbers["pipe"], numbers["virtual"], microbatches)
    few = minimum(held_last(plan.schedule, numbers["pipe"], numbers["virtual"]), microbatches)
    head = [(name, 1) for name in ends]
    return (
        _one_rank(plan, stack, held, layers.first, [("embed", 1), *((name, alone) for name in ends)], flight, alone),
        _one_rank(plan, stack, held, layers.last, [("embed", alone), *head], where(alone, flight, few), 1),
    )


def fullest_bytes(ranks: tuple[list[HeldLine], list[HeldLine]]) -> Number:
    """Bytes of the fuller rank."""
    return maximum(*(sum(line.bytes for line in lines) for lines in ranks))


def fullest_rank(ranks: tuple[list[HeldLine], list[HeldLine]]) -> list[HeldLine]:
    """What the fuller rank holds."""
    totals = [sum(line.bytes for line in lines) for lines in ranks]
    fuller = totals[1] > totals[0]
    both = {(line.part, line.section): [0.0, 0.0, line] for lines in ranks for line in lines}
    for place, lines in enumerate(ranks):
        for line in lines:
            both[line.part, line.section][place] = line.bytes
    return [
        HeldLine(part, line.what, where(fuller, last, first), line.since, line.until, section)
        for (part, section), (first, last, line) in both.items()
    ]


_UNTIL = {"activations": ("forward", "backward"), "gradients": ("backward", "update")}


def _one_rank(
    plan: Plan, stack: Stack, held: dict[str, Held], counts: dict[str, Any], ends: list[tuple[str, Any]], flight: Number,
    head: Number,
) -> list[HeldLine]:  # fmt: skip
    copies = 2.0 if plan.schedule == "dualpipe" else 1.0
    lines: list[HeldLine] = []

    def add(part: str, what: str, name: str, section: str, times: Number) -> None:
        since, until = _UNTIL.get(part, ("always", "always"))
        lines.append(HeldLine(part, what, times * getattr(held[section], name), since, until, section))

    for section, times in (*counts.items(), *ends):
        for part, name, often in (
            ("weights", "weights", copies),
            ("gradients", "gradients", copies),
            ("optimizer", "optimizer", 1),
        ):
            add(part, f"{part} of {section}", name, section, often * times)
    for section, times in counts.items():
        add("activations", f"saved by {section}", "activations", section, flight * times)
    working = maximum(*[held[kind].working for kind in counts], 0.0)
    gathered = maximum(*[held[kind].gathered for kind in counts], 0.0)
    share = 0.5 if plan.remat == "none" else 1.0
    lines.append(
        HeldLine("gathered weights", "layers gathered at once", stack.memory.prefetch * gathered, "forward", "backward")
    )
    lines.append(HeldLine("workspace", "alive inside a layer", share * working, "forward", "backward"))
    logits = head * held["head"].logits * stack.memory.logit_bytes
    lines.append(HeldLine("logits", "logits and their gradient", logits, "forward", "backward"))
    lines.append(HeldLine("framework", "the framework's own", stack.memory.reserve_bytes + 0 * working))
    return lines
