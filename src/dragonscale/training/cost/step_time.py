"""The seconds of one training step: layers put into pipeline stages, and what else the step waits for.

Stages run their microbatches, layer by layer (`dragonscale.training.cost.overlap`), under a pipeline schedule; the
gradients' reduction over replicas hides under the last backward pass; the optimizer updates each chip's share
of the state. The same functions take one plan (floats), a space of plans (arrays) or formulas.
"""

from dataclasses import dataclass
from typing import Any

from dragonscale.physics.hardware import Slice
from dragonscale.physics.numbers import Number, log2, maximum, minimum, where
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.physics.sharding.placement import Wires
from dragonscale.training.cost.layer_passes import StepParts, moves_of_state, reduced_each_microbatch, rerun_policy
from dragonscale.training.cost.move_times import bound_time, expected_move_time
from dragonscale.training.cost.muon import muon_seconds
from dragonscale.training.cost.optimizer_update import rank_sections, update_seconds, updated_bytes
from dragonscale.training.cost.overlap import WAITED, Exposed
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.setting import Setting
from dragonscale.training.plan.stack import Stack
from dragonscale.training.plan.stages import FOLDED, bubble


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step: the fullest rank's layers, what slower stages take longer (`uneven`), the pipeline bubble,
    pipeline sends and the gradients' reduction (each in all, and exposed), and the optimizer."""

    layers: Number
    uneven: Number
    bubble: Number
    sends: Exposed
    reduction: Exposed
    update: Number

    @property
    def exposed(self) -> dict[str, Number]:
        """What the step waits for, by term."""
        return {
            "layers": self.layers,
            "uneven stages": self.uneven,
            "pipeline bubble": self.bubble,
            "pipeline sends": self.sends[1],
            "gradient reduction": self.reduction[1],
            "optimizer": self.update,
        }

    @property
    def seconds(self) -> Number:
        """Seconds of the whole step."""
        return sum(self.exposed.values())


def straggling(stack: Stack, slice_: Slice, plan: Plan, degrees: dict[str, Any]) -> Number:
    """The factor by which the slowest of many machines slows a step: a little more for every doubling of them.

    All wait once a step, when gradients are reduced. Those that gather weights or scatter gradients together (ZeRO-2
    and 3) wait in every layer, where delays that differ from layer to layer add up.
    """
    chips_per_host = max(1, slice_.chip.host_chips)
    delay = stack.host.straggle * log2(maximum(slice_.chips / chips_per_host, 1.0))
    if plan.zero >= 2:
        shards = degrees["fsdp"] * degrees["expert"] * degrees["context"]
        hosts = shards * degrees["tensor"] / chips_per_host
        delay = delay + where(shards > 1, stack.host.layer_straggle * log2(maximum(hosts, 1.0)), 0.0)
    return 1.0 + delay


def step_time(
    setting: Setting, degrees: dict[str, Any], parts: StepParts, wires: Wires, bound: bool = False
) -> StepTime:
    """The time of a step whose passes are known. With `bound` nothing but compute is waited for."""
    plan, layer_counts, microbatches = setting.plan, parts.layers.fullest, parts.microbatches
    # Seconds of one microbatch on the fullest rank: forward, backward, and the weights' part of backward.
    forward = sum(count * parts.forward[kind].seconds for kind, count in layer_counts.items())
    backward = sum(count * parts.backward[kind].seconds for kind, count in layer_counts.items())
    weight_part = sum(count * parts.backward[kind].weight_part for kind, count in layer_counts.items())
    layers = microbatches * (forward + backward)
    waiting = bubble(plan.schedule, degrees["pipe"], degrees["virtual"], forward, backward, weight_part)
    slowest = _slowest_stage(setting, degrees, parts, bound)
    uneven = microbatches * maximum(slowest - (forward + backward), 0.0)
    sends = send_seconds(setting, degrees, microbatches, wires, busy=layers, bound=bound)
    if bound:
        return StepTime(layers, uneven, waiting, (sends[0], 0.0), (reduction_seconds(setting, parts), 0.0), 0.0)
    reduction = _exposed_reduction(setting, parts, degrees, forward, backward)
    return StepTime(layers, uneven, waiting, sends, reduction, update_seconds(setting, parts, wires))


def _slowest_stage(setting: Setting, degrees: dict[str, Any], parts: StepParts, bound: bool) -> Number:
    """Seconds of one microbatch, forward and backward, on the slowest of a pipeline's ranks."""
    plan, layers = setting.plan, parts.layers
    both = {name: parts.forward[name].seconds + parts.backward[name].seconds for name in parts.sums}
    embedding = both["embed"]
    head = sum(both[section.name] for section in setting.ends)

    def rank_seconds(layer_counts: dict[str, Any]) -> Number:
        return sum(count * both[kind] for kind, count in layer_counts.items())

    first, last = rank_seconds(layers.first) + embedding, rank_seconds(layers.last) + head
    if plan.schedule in FOLDED:  # the first rank has both ends
        first, last = first + head, rank_seconds(layers.last)
    elif plan.schedule == "dualpipe":  # both outer ranks run either end, for half of the microbatches each
        first = last = (first + last) / 2
    slowest = maximum(first, last, rank_seconds(layers.fullest))
    if setting.stack.balanced or bound:
        # Layers can be dealt so that no rank is slower than the mean by more than one layer.
        order = setting.program.order  # the kind of every layer of the model
        whole = sum(order.count(kind) * both[kind] for kind in dict.fromkeys(order))
        mean = (whole + embedding + head) / degrees["pipe"]
        kinds = [both[kind] for kind in layers.fullest]
        largest_layer = maximum(*kinds) if len(kinds) > 1 else kinds[0]
        slowest = minimum(slowest, mean + largest_layer)
    return where(degrees["pipe"] == 1, rank_seconds(layers.first) + embedding + head, slowest)


def lower_seconds(setting: Setting, degrees: dict[str, Any], parts: StepParts, wires: Wires) -> Number:
    """The busiest resource at datasheet rates, from sums of bounds: compute with its bubble, the optimizer's memory, or
    the wires of one kind of move."""
    time = step_time(setting, degrees, parts, wires, bound=True)
    no_pipeline = degrees["pipe"] == 1
    # How often the fullest rank has each section: the ends are on it for certain where there is one rank alone.
    counts = {**parts.layers.fullest, "embed": no_pipeline, **{end.name: no_pipeline for end in setting.ends}}
    remat, rerun_layers = rerun_policy(setting, parts.layers, degrees)
    state_moves = moves_of_state(setting.plan, setting.stack, degrees["pipe"], parts.microbatches)

    def moved(name: str, *phases: str) -> Number:
        """Seconds of a bucket of moves in a step, recomputed ones included."""
        total: Number = 0
        for kind, sums in parts.sums.items():
            rerun = sums.rerun.get((name, remat), 0.0) if "block" in kind else 0.0
            total = total + counts[kind] * (sums.total(name, *phases) + rerun_layers * rerun)
        return parts.microbatches * total

    waited = [moved(name, "forward", "backward") for name in WAITED]
    scattered = [state_moves.scatters * moved(name, "gradient") for name in reduced_each_microbatch(setting.plan)]
    fsdp = state_moves.gathers * moved("weight", "forward", "backward") + sum(scattered, 0.0)
    update = updated_bytes(setting, parts) / setting.slice.chip.hbm.bandwidth
    if setting.plan.optimizer == "muon":
        update = update + muon_seconds(setting, parts.layers.fullest, wires, bound=True)
    return maximum(time.layers + time.uneven + time.bubble, update, *waited, fsdp, time.sends[0], time.reduction[0])


def send_bytes(setting: Setting, microbatch: Number, mesh: Mesh) -> Number:
    """Bytes that a chip hands to the next pipeline stage."""
    d_model = setting.program.sections[0].dims["d"]
    moved = microbatch * setting.sequence * d_model * setting.stack.state.activation_bytes
    return moved / (mesh.size("context") * mesh.size("tensor"))


def send_seconds(
    setting: Setting, degrees: dict[str, Any], microbatches: Number, wires: Wires, busy: Number, bound: bool = False
) -> Exposed:
    """Activations sent from stage to stage, and their gradients back: those of the warm-up are waited for, the others
    as far as the stack does not hide them under the `busy` seconds of the layers."""
    pipe, virtual = degrees["pipe"], degrees["virtual"]
    size = send_bytes(setting, degrees["microbatch"], wires.mesh)
    if bound:
        one_send = bound_time("permute", size, ("pipe",), wires)
    else:
        one_send = expected_move_time("permute", size, ("pipe",), wires, setting.network)
    there_and_back = 2 * one_send * (pipe > 1)
    total = there_and_back * virtual * microbatches
    warm_up = there_and_back * minimum(pipe - 1, microbatches)
    steady = maximum(total - warm_up, 0.0)
    return total, warm_up + steady - minimum(setting.stack.overlap.send * steady, busy)


def reduced_once(plan: Plan) -> tuple[str, ...]:
    """Buckets of gradients that travel once a step."""
    return tuple(name for name in ("scatter", "reduce") if name not in reduced_each_microbatch(plan))


def reduction_seconds(setting: Setting, parts: StepParts, *names: str) -> Number:
    """Seconds of what travels once a step: gradients to where their state lies, updated weights back."""
    buckets = names or (*reduced_once(setting.plan), "update")
    total: Number = 0.0
    for section, count in rank_sections(setting, parts):
        for name in buckets:
            phase = "update" if name == "update" else "gradient"
            total = total + count * parts.sums[section].total(name, phase)
    return total


def _exposed_reduction(
    setting: Setting, parts: StepParts, degrees: dict[str, Any], forward: Number, backward: Number
) -> Exposed:
    """The gradients' sum over replicas under the last backward pass, and the gathering of updated weights under the
    next forward pass; with several chunks per rank, each chunk's while the others run."""
    overlap = setting.stack.overlap
    # Microbatches whose passes the reduction of a chunk can hide under.
    passes = where(degrees["virtual"] > 1, minimum(degrees["pipe"], parts.microbatches), 1)
    buckets = reduced_once(setting.plan)
    gradient = reduction_seconds(setting, parts, *buckets) if buckets else 0.0
    update = reduction_seconds(setting, parts, "update")
    exposed = maximum(gradient - overlap.gradient * backward * passes, 0.0)
    exposed = exposed + maximum(update - overlap.gradient * forward * passes, 0.0)
    total = gradient + update
    return total, exposed + overlap.contention * (total - exposed)
