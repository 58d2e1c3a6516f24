"""One training step: layers put into stages, what overlaps what, and how long it takes.

Stages run their microbatches, layer by layer (`dragonscale.training.cost.passes`), under a pipeline schedule; the
gradients' reduction over replicas hides under the last backward pass; the optimizer updates each chip's share
of the state. The same functions take one plan (floats), a space of plans (arrays) or formulas.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dragonscale.models.program import Program
from dragonscale.physics.hardware import Slice
from dragonscale.physics.numbers import Number, log2, maximum, minimum, where
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.physics.sharding.placement import Wires
from dragonscale.training.cost.muon import muon_seconds
from dragonscale.training.cost.passes import (
    WAITED,
    LayerPass,
    LayerRun,
    SectionSums,
    backward_pass,
    forward_pass,
    sum_lines,
)
from dragonscale.training.cost.travel import bound_time, travel_time
from dragonscale.training.memory.memory import Held
from dragonscale.training.memory.peak_memory import WEIGHT_BYTES
from dragonscale.training.plan.optimizers import MATRIX_UPDATE_BYTES, OPTIMIZER_BYTES, SLOWER, UPDATE_BYTES
from dragonscale.training.plan.plan import HOSTED_STATE, Plan, layer_policies, layers_of
from dragonscale.training.plan.setting import PassLine, Setting
from dragonscale.training.plan.stack import Stack
from dragonscale.training.plan.stages import BOTH_WAYS, FOLDED, StageLayers, bubble, share_of_layers

HOST_UPDATE = 40e9
"""Bytes of state that the host's cores move for each of its chips in a second. Order of magnitude chosen: half of the
614 GB/s that two sockets with eight channels of DDR5-4800 have (DGX H100), shared by eight chips."""


@dataclass(frozen=True)
class Parts:
    """Every section's sums and passes, what it holds, and how the layers lie on the ranks."""

    sums: dict[str, SectionSums]
    held: dict[str, Held]
    layers: StageLayers
    microbatches: Number
    forward: dict[str, LayerPass]
    backward: dict[str, LayerPass]


TAKEN = 4.0
"""Bytes moved to take a weight in bf16 out of the stack of layers that a scan goes through."""

Passes = tuple[dict[str, LayerPass], dict[str, LayerPass]]
"""Every section's forward and backward pass."""


def shared_passes(
    setting: Setting, layers: StageLayers, numbers: dict[str, Any], make: Callable[[Setting], Passes]
) -> Passes:
    """Passes of a plan as `make` gives them for one policy; of layers under two, the mean."""
    runs = [make(setting.under(policy)) for policy in layer_policies(setting.plan.remat)]
    if len(runs) == 1:
        return runs[0]
    share, ways = rerun_policy(setting, layers, numbers)[1], zip(*runs, strict=True)
    forward, backward = ({name: run.beside(others[name], share) for name, run in way.items()} for way, others in ways)
    return forward, backward


def layer_passes(
    setting: Setting, sums: dict[str, SectionSums], held: dict[str, Held], pipe: Number, microbatches: Number
) -> Passes:
    """Every section's forward and backward pass; only blocks are recomputed."""
    plan, stack, timer = setting.plan, setting.stack, setting.timer
    assert timer is not None
    forward: dict[str, LayerPass] = {}
    backward: dict[str, LayerPass] = {}
    two_way = pipe > 1 if plan.schedule in BOTH_WAYS else False
    often = state_often(plan, stack, pipe, microbatches)
    for name, one in sums.items():
        # A program that XLA compiles casts weights at every use; others copy what they gather, where there is something
        # to gather.
        # A frozen one needs no cast there, but is taken out of the stack of layers.
        caching = stack.memory.allocator == "caching"
        gathers = held[name].shards if caching else 1.0
        taken = held[name].frozen * (
            stack.state.weight_copies / 2 if caching else min(stack.state.weight_copies, TAKEN)
        )
        every = held[name].used * stack.state.weight_copies / 2 + taken
        copied = timer.copy(gathers * every * (plan.zero == 3))
        added = timer.copy(held[name].used * accumulated_bytes(stack, microbatches))
        remat, kept = plan.remat if "block" in name else "none", 0.0
        if "block" in name:  # layers are scanned
            copied = copied + stack.host.layer_s
            kept = timer.copy(held[name].activations * stack.memory.kept_moves / 2)
        offloads = remat == "offload" or ("block" in name and layers_of(plan.offload) > 0)
        run = LayerRun(one, stack, remat, plan.ring, two_way, often, offloads)
        # Quantised weights are written out in bf16 for each use.
        written = timer.copy(held[name].quantized * (setting.tuning.frozen_bytes + WEIGHT_BYTES))
        again = 2.0 if remat in ("block", "offload") else 1.0
        # Passes without a gradient hand nothing to a backward pass: one of them all does.
        times = 1 + setting.tuning.passes
        forward[name] = forward_pass(run, copied + kept / times + written).repeated(times)
        backward[name] = backward_pass(run, reduced_often(plan), copied + kept + added + again * written)
    return forward, backward


def accumulated_bytes(stack: Stack, microbatches: Number) -> Number:
    """Bytes moved for each weight of a microbatch to add up its gradient."""
    more = stack.state.accumulate_more
    return stack.state.accumulate + (where(microbatches > 1, more, 0.0) if more else 0.0)


def state_often(plan: Plan, stack: Stack, pipe: Number, microbatches: Number) -> tuple[Number, Number]:
    """How often weights are gathered and gradients scattered, over once a microbatch. Under a pipeline some stacks keep
    weights gathered, and gradients whole, for the whole step; ZeRO-2 with interleaving scatters a chunk's gradients
    once a round of the ranks (Llama 3's trainer: Chu et al., ISCA 2025)."""
    if stack.memory.pipe_whole and plan.zero >= 2:
        once = where(pipe > 1, 1 / microbatches, 1.0)
        return once, once
    if plan.zero == 2 and plan.schedule == "interleaved" and not stack.state.sums_everywhere:
        return 1.0, where(pipe > 1, 1 / pipe, 1.0)
    return 1.0, 1.0


def bound_passes(sums: dict[str, SectionSums], plan: Plan, passes: float = 0.0) -> Passes:
    """The same at best: kernels at their bound, everything else hidden."""
    forward, backward = {}, {}
    for name, one in sums.items():
        remat = plan.remat if "block" in name else "none"
        forward[name] = LayerPass(one.of("kernels", "forward") * (1 + passes), 0.0, 0.0, 0.0, 0.0, {})
        kernels, again = one.of("kernels", "dgrad", "wgrad"), one.again.get(("kernels", remat), 0.0)
        backward[name] = LayerPass(kernels, again, one.of("kernels", "wgrad"), 0.0, 0.0, {})
    return forward, backward


def section_sums(setting: Setting, lines: dict[str, list[PassLine]], quantity: str) -> dict[str, SectionSums]:
    """Sums of every section's lines under the plan's remat policy."""
    found = {}
    for section in setting.sections:
        remats = layer_policies(setting.plan.remat) if "block" in section.name else ("none",)
        found[section.name] = sum_lines(lines[section.name], setting.reading(section), setting.stack, remats, quantity)
    return found


@dataclass(frozen=True)
class StepTime:
    """A step's seconds: of the fullest rank's layers, of what other stages have more (`uneven`), waiting for the
    pipeline to fill, sends, the gradients' reduction (both in all and exposed) and the update."""

    layers: Number
    uneven: Number
    waiting: Number
    sends: tuple[Number, Number]
    reduction: tuple[Number, Number]
    update: Number

    @property
    def exposed(self) -> dict[str, Number]:
        """What the step waits for, by term."""
        return {
            "layers": self.layers,
            "uneven stages": self.uneven,
            "pipeline bubble": self.waiting,
            "pipeline sends": self.sends[1],
            "gradient reduction": self.reduction[1],
            "optimizer": self.update,
        }

    @property
    def seconds(self) -> Number:
        """Seconds of the step."""
        return sum(self.exposed.values())


def straggling(stack: Stack, piece: Slice, plan: Plan, numbers: dict[str, Any]) -> Number:
    """The slowest of many machines sets the pace, by a little more for every doubling of them. All wait once a step,
    when gradients are reduced; those that gather weights or scatter gradients together (ZeRO-2 and 3) wait in every
    layer, where delays that differ from layer to layer add up."""
    host = max(1, piece.chip.host_chips)
    waits = stack.host.straggle * log2(maximum(piece.chips / host, 1.0))
    if plan.zero >= 2:
        shared = numbers["fsdp"] * numbers["expert"] * numbers["context"]
        together = shared * numbers["tensor"] / host
        waits = waits + where(shared > 1, stack.host.layer_straggle * log2(maximum(together, 1.0)), 0.0)
    return 1.0 + waits


def step_time(setting: Setting, numbers: dict[str, Any], parts: Parts, wires: Wires, bound: bool = False) -> StepTime:
    """Passes put into stages. With `bound` nothing but compute is waited for."""
    plan, layers = setting.plan, parts.layers
    both = {name: parts.forward[name].seconds + parts.backward[name].seconds for name in parts.sums}
    last = sum(both[section.name] for section in setting.ends)

    def of_rank(counts: dict[str, Any]) -> Number:
        return sum(counts[kind] * both[kind] for kind in counts)

    alone = numbers["pipe"] == 1
    one_end, other_end = of_rank(layers.first) + both["embed"], of_rank(layers.last) + last
    if plan.schedule in FOLDED:  # the first rank has both ends
        one_end, other_end = one_end + last, of_rank(layers.last)
    elif plan.schedule == "dualpipe":  # both outer ranks run either end, for half of the microbatches each
        one_end = other_end = (one_end + other_end) / 2
    ends = maximum(one_end, other_end, of_rank(layers.fullest))
    if setting.stack.balanced or bound:
        whole = sum(number * both[kind] for kind, number in layer_counts(setting.program).items())
        each = [both[kind] for kind in layers.fullest]
        largest = maximum(*each) if len(each) > 1 else each[0]
        ends = minimum(ends, (whole + both["embed"] + last) / numbers["pipe"] + largest)
    slowest = where(alone, of_rank(layers.first) + both["embed"] + last, ends)
    counts = layers.fullest
    per_f = sum(counts[kind] * parts.forward[kind].seconds for kind in counts)
    per_b = sum(counts[kind] * parts.backward[kind].seconds for kind in counts)
    per_w = sum(counts[kind] * parts.backward[kind].weight_part for kind in counts)
    many = parts.microbatches
    waiting = bubble(plan.schedule, numbers["pipe"], numbers["virtual"], per_f, per_b, per_w)
    uneven = many * maximum(slowest - (per_f + per_b), 0.0)
    busy = many * (per_f + per_b)
    sends = send_seconds(setting, numbers, many, wires, busy, bound)
    if bound:
        return StepTime(busy, uneven, waiting, (sends[0], 0.0), (reduction_seconds(setting, parts), 0.0), 0.0)
    reduced = _reduction(setting, parts, numbers, per_f, per_b)
    return StepTime(busy, uneven, waiting, sends, reduced, update_seconds(setting, parts, wires))


def lower_seconds(setting: Setting, numbers: dict[str, Any], parts: Parts, wires: Wires) -> Number:
    """The busiest resource at datasheet rates, from sums of bounds: compute with its bubble, the optimizer's memory, or
    the wires of one kind of move."""
    time = step_time(setting, numbers, parts, wires, bound=True)
    alone = numbers["pipe"] == 1
    often = {**parts.layers.fullest, "embed": alone, **{section.name: alone for section in setting.ends}}
    remat, share = rerun_policy(setting, parts.layers, numbers)

    gathered, scattered = state_often(setting.plan, setting.stack, numbers["pipe"], parts.microbatches)

    def moved(name: str, *phases: str) -> Number:
        again = [one.again.get((name, remat), 0.0) if "block" in kind else 0.0 for kind, one in parts.sums.items()]
        once = [one.of(name, *phases) for one in parts.sums.values()]
        each = zip(parts.sums, once, again, strict=True)
        return parts.microbatches * sum(often[kind] * (first + share * more) for kind, first, more in each)

    wired = [moved(name, "forward", "backward") for name in WAITED]
    reduced = [scattered * moved(name, "gradient") for name in reduced_often(setting.plan)]
    fsdp = gathered * moved("weight", "forward", "backward") + sum(reduced, 0.0)
    update = updated_bytes(setting, parts) / setting.slice.chip.hbm.bandwidth
    update = update + muon_seconds(setting, parts.layers.fullest, wires, bound=True)
    return maximum(time.layers + time.uneven + time.waiting, update, *wired, fsdp, time.sends[0], time.reduction[0])


def rerun_policy(setting: Setting, layers: StageLayers, numbers: dict[str, Any]) -> tuple[str, Number]:
    """The policy of layers that run again, and the share of those layers."""
    remat = setting.plan.remat
    share = share_of_layers(remat, layers.fullest, numbers) if len(layer_policies(remat)) > 1 else 1.0
    return layer_policies(remat)[-1], share


def layer_counts(program: Program) -> dict[str, int]:
    """How often each kind of layer comes."""
    return {kind: program.order.count(kind) for kind in dict.fromkeys(program.order)}


def send_bytes(setting: Setting, microbatch: Number, mesh: Mesh) -> Number:
    """Bytes that a chip hands to the next stage."""
    d = setting.program.sections[0].dims["d"]
    moved = microbatch * setting.sequence * d * setting.stack.state.activation_bytes
    return moved / (mesh.size("context") * mesh.size("tensor"))


def send_seconds(
    setting: Setting, numbers: dict[str, Any], microbatches: Number, wires: Wires, busy: Number, bound: bool = False
) -> tuple[Number, Number]:
    """Activations from stage to stage, and their gradients back, in all and exposed: those of the warm-up are waited
    for, the others as far as the stack does not hide them under the `busy` seconds of the layers."""
    pipe, virtual = numbers["pipe"], numbers["virtual"]
    size = send_bytes(setting, numbers["microbatch"], wires.mesh)
    if bound:
        one = bound_time("permute", size, ("pipe",), wires)
    else:
        one = travel_time("permute", size, ("pipe",), wires, setting.network)
    crossing = 2 * one * (pipe > 1)
    every = crossing * virtual * microbatches
    warm = crossing * minimum(pipe - 1, microbatches)
    later = maximum(every - warm, 0.0)
    return every, warm + later - minimum(setting.stack.overlap.send * later, busy)


def _once(setting: Setting, parts: Parts) -> list[tuple[str, Number]]:
    """Sections of a chip whose gradients are reduced once a step, and how many layers of each."""
    return [*parts.layers.fullest.items(), ("embed", 1), *((section.name, 1) for section in setting.ends)]


def reduced_often(plan: Plan) -> tuple[str, ...]:
    """Buckets of gradients that travel with every microbatch: ZeRO-3 and ZeRO-2 scatter them as they are found. The sum
    over replicas is made once a step (XLA takes it out of the loop over microbatches, too)."""
    return ("scatter",) if plan.zero >= 2 else ()


def reduced_once(plan: Plan) -> tuple[str, ...]:
    """Buckets of gradients that travel once a step."""
    return tuple(name for name in ("scatter", "reduce") if name not in reduced_often(plan))


def reduction_seconds(setting: Setting, parts: Parts, *names: str) -> Number:
    """Seconds of what travels once a step: gradients to where their state lies, updated weights back."""
    chosen = names or (*reduced_once(setting.plan), "update")
    phases = [(name, "update" if name == "update" else "gradient") for name in chosen]
    each = ((number, parts.sums[kind]) for kind, number in _once(setting, parts))
    return sum((number * sums.of(*phase) for number, sums in each for phase in phases), 0.0)


def _reduction(
    setting: Setting, parts: Parts, numbers: dict[str, Any], forward: Number, backward: Number
) -> tuple[Number, Number]:
    """The gradients' sum over replicas under the last backward pass, and the gathering of weights updated in shares
    under the next forward pass; with several chunks to a rank, each chunk's while the others run."""
    overlap = setting.stack.overlap
    passes = where(numbers["virtual"] > 1, minimum(numbers["pipe"], parts.microbatches), 1)
    names = reduced_once(setting.plan)
    gradient = reduction_seconds(setting, parts, *names) if names else 0.0
    update = reduction_seconds(setting, parts, "update")
    exposed = maximum(gradient - overlap.gradient * backward * passes, 0.0)
    exposed = exposed + maximum(update - overlap.gradient * forward * passes, 0.0)
    total = gradient + update
    return total, exposed + overlap.contention * (total - exposed)


def updated_parameters(parts: Parts) -> tuple[Number, Number]:
    """The parameters whose state a chip updates, and how many of them are Muon's matrices."""
    every = (*parts.layers.fullest.items(), ("embed", 1))
    parameters = sum(number * parts.held[kind].parameters for kind, number in every)
    return parameters, sum(number * parts.held[kind].matrices for kind, number in every)


def updated_bytes(setting: Setting, parts: Parts) -> Number:
    """Bytes of state that a chip's update reads and writes."""
    share, matrices = updated_parameters(parts)
    if _updates_on_host(setting):
        return share * (setting.stack.state.gradient_bytes + WEIGHT_BYTES)  # on their way to the host and back
    each = UPDATE_BYTES[setting.plan.optimizer]
    return share * each - matrices * (each - MATRIX_UPDATE_BYTES)


def update_seconds(setting: Setting, parts: Parts, wires: Wires) -> Number:
    """Seconds of the optimizer, and of what it moves between chip and host."""
    own = state_seconds(setting, parts) + hosted_bytes(setting, parts) / setting.slice.chip.host_link
    return own + muon_seconds(setting, parts.layers.fullest, wires)


def _updates_on_host(setting: Setting) -> bool:
    """Whether the host's cores update the state, which is in its memory."""
    return setting.plan.offload in HOSTED_STATE and not setting.stack.state.chip_updates


def hosted_bytes(setting: Setting, parts: Parts) -> Number:
    """Bytes of gradients and weights that a step moves between a chip and its host, where the host updates the weights.

    Gradients go down once, or with every microbatch where the host adds them up: DeepSpeed brings the sum back to the
    chip, adds to it and sends it down again (runtime/zero/stage3.py, partition_grads). New weights come back once;
    where the host keeps them, every microbatch fetches them in its forward and in its backward pass.
    """
    if not _updates_on_host(setting):
        return 0.0
    share, _ = updated_parameters(parts)
    often = WEIGHT_BYTES * (2 * parts.microbatches - 1)
    gradients = where(parts.held["embed"].sends_gradients > 0, often, setting.stack.state.gradient_bytes)
    if setting.plan.offload != "parameters":
        return share * (gradients + WEIGHT_BYTES)
    weights = sum((number * parts.held[kind].hosted_weights for kind, number in _once(setting, parts)), 0.0)
    return share * gradients + 2 * parts.microbatches * weights


def state_seconds(setting: Setting, parts: Parts) -> Number:
    """Seconds of the optimizer's passes over its state, and of the host between two steps."""
    assert setting.timer is not None
    share, _ = updated_parameters(parts)
    if _updates_on_host(setting):
        return share * UPDATE_BYTES[setting.plan.optimizer] / HOST_UPDATE + setting.stack.host.step_s
    travel: Number = 0.0
    if setting.plan.offload == "optimizer":  # the master copy for the forward pass; then all of it, and back
        master = setting.stack.state.master_bytes
        held = master + OPTIMIZER_BYTES[setting.plan.optimizer]
        travel = share * (master + 2 * held) / setting.slice.chip.host_link
    moved = updated_bytes(setting, parts) * setting.stack.state.update_passes
    return travel + setting.timer.copy(moved) * SLOWER.get(setting.plan.optimizer, 1.0) + setting.stack.host.step_s
