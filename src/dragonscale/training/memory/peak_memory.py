"""The peak memory of a pipeline rank: its layers put together, the moment when most is there, and what the allocator
takes beyond that.

State (weights, master copy, optimizer) is there during the whole step. Besides it, four moments can be the peak:

| moment | what is there |
|---|---|
| head | everything that layers save, the logits and what the loss makes of them |
| layer | everything that layers save, one layer's workspace, gathered weights, gradients being reduced |
| end | all gradients, one layer's workspace, gathered weights |
| update | all gradients, and what the optimizer makes besides its state |

Gradients have a buffer during the whole step in some stacks, and in others from the second microbatch on. Otherwise
each exists once its layer's backward pass is done, when what the layer saved is gone: so either the start or the end of
the backward pass is the peak.

The sum of these tensors is what an allocator counts as allocated. It takes more: blocks that do not fit the free ones
(fragmentation, which must fit too), and blocks that it caches (which it gives back on demand). Outside it are the
driver's context and the network library's buffers.

What a plan keeps in the host's memory: with `remat=offload` each block's input, which travels there and back under the
passes; with `offload=activations:20` everything that twenty layers save (Transformer Engine's cpu_offload spreads the
transfers of those layers over the passes of all, and a layer's tensors stay until its transfer is done). With
`offload=optimizer` master copy and moments: once a step a chip's share of the gradients goes down, the host's cores
update it, and new weights come back (ZeRO-Offload, Ren et al. 2021; Megatron's --optimizer-cpu-offload). With
`offload=parameters` the weights, too: each layer fetches its shard in the forward pass and again in the backward pass
(ZeRO-3 with offload_param, ZeRO-Infinity of Rajbhandari et al. 2021; FSDP's CPU offload). Stacks with
`hosted_gradients` send gradients down with every microbatch, and the host adds them up. None of that is overlapped.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from dragonscale.models.count import parameters
from dragonscale.physics.numbers import Number, maximum, minimum, where
from dragonscale.plan.ledger import HeldLine
from dragonscale.training.memory.section_memory import SectionMemory, optimizer_bytes
from dragonscale.training.plan.optimizers import GALORE, MATRIX_BYTES, OPTIMIZER_BYTES
from dragonscale.training.plan.plan import HOSTED_STATE, HOSTED_WEIGHTS, layers_of
from dragonscale.training.plan.setting import Setting
from dragonscale.training.plan.stack import StackMemory
from dragonscale.training.plan.stages import (
    FOLDED,
    StageLayers,
    held_microbatches,
    held_microbatches_last,
    share_of_layers,
)

OUTSIDE = ("fragmentation", "framework")
"""Parts that are no tensors: what the allocator cannot use, and what is outside it."""

# By part: what it is (of a section), and from when to when it is there.
_TENSORS = {
    "weights": ("weights of {}", "always", "always"),
    "gradients": ("gradients of {}", "backward", "update"),
    "casts": ("16-bit copies of {}", "always", "always"),
    "optimizer": ("optimizer of {}", "always", "always"),
    "activations": ("saved by {}", "forward", "backward"),
    "logits": ("logits and their gradient", "forward", "backward"),
    "workspace": ("alive inside a layer", "backward", "backward"),
    "gathered weights": ("layers gathered at once", "forward", "backward"),
    "reducing": ("gradients on their way", "backward", "backward"),
    "update": ("made by the optimizer", "update", "update"),
    "whole": ("the model as it is loaded", "load", "load"),
    "placeholders": ("zero-filled gradient buffers", "always", "always"),
}

# What is there at each moment besides the state. "early" and "late" are the gradients that exist when the backward pass
# begins and when it is done; "layers" and "ends" are the gathered weights of layers and of the embedding and the head.
_MOMENTS = {
    "head": ("early", "activations", "logits", "ends"),
    "layer": ("early", "activations", "workspace", "layers", "ends", "reducing"),
    "end": ("late", "workspace", "layers", "ends", "reducing"),
    "update": ("late", "update"),
    "load": ("whole",),
}


@dataclass(frozen=True)
class RankMemory:
    """Bytes of one pipeline rank: state by part and section, gradients and saved activations by section, and what comes
    and goes by part of `_MOMENTS`. `early_gradients` is 1 where gradients have memory from the start of the backward
    pass on."""

    stack_memory: StackMemory
    state: dict[tuple[str, str], Number]
    gradients: dict[str, Number]
    saved: dict[str, Number]
    transient: dict[str, Number]
    early_gradients: Number

    @cached_property
    def moments(self) -> dict[str, Number]:
        """Bytes besides the state at each moment."""
        gradients = sum(self.gradients.values())
        sizes = self.transient | {
            "early": self.early_gradients * gradients,
            "late": gradients,
            "activations": sum(self.saved.values()),
        }
        return {moment: sum(sizes[part] for part in parts) for moment, parts in _MOMENTS.items()}

    @cached_property
    def total(self) -> Number:
        """Bytes that must fit."""
        allocated = sum(self.state.values()) + maximum(*self.moments.values())
        return allocated * (1 + self.stack_memory.fragmentation) + self.stack_memory.reserve_bytes

    def lines(self) -> list[HeldLine]:
        """What is there at the peak, tensor by tensor."""
        peak = maximum(*self.moments.values())
        # Each moment is weighted 1 if it is the peak, else 0; of several equal ones the first is taken.
        weights: dict[str, Number] = {}
        remaining: Number = 1.0
        for moment, size in self.moments.items():
            weights[moment] = where(size >= peak, remaining, 0.0)
            remaining = remaining - weights[moment]

        def present(part: str) -> Number:
            return sum((weights[moment] for moment, parts in _MOMENTS.items() if part in parts), 0.0)

        lines: list[HeldLine] = []
        for (part, section), size in self.state.items():
            lines.append(_line(part, section, size))
        gradients_present = self.early_gradients * present("early") + present("late")
        for section, size in self.gradients.items():
            lines.append(_line("gradients", section, gradients_present * size))
        for section, size in self.saved.items():
            lines.append(_line("activations", section, present("activations") * size))
        gathered = present("layers") * self.transient["layers"] + present("ends") * self.transient["ends"]
        lines.append(_line("gathered weights", "", gathered))
        for part in ("workspace", "logits", "reducing", "update", "whole"):
            lines.append(_line(part, "", present(part) * self.transient[part]))
        allocated = sum(line.bytes for line in lines)
        lines.append(HeldLine("fragmentation", "the allocator's", self.stack_memory.fragmentation * allocated))
        # Zero times the sum gives the constant the shape of the others.
        reserve = self.stack_memory.reserve_bytes + 0 * allocated
        lines.append(HeldLine("framework", "context and network buffers", reserve))
        return lines


def _line(part: str, section: str, size: Number) -> HeldLine:
    what, since, until = _TENSORS[part]
    return HeldLine(part, what.format(section), size, since, until, section)


def outer_ranks(
    setting: Setting,
    sections: dict[str, SectionMemory],
    layers: StageLayers,
    degrees: dict[str, Any],
    microbatches: Number,
) -> tuple[RankMemory, RankMemory]:
    """The memory of the two ranks that can be the fullest: the first, with the most microbatches in flight and the
    embedding, and the last, with the head. Schedules that fold the pipeline give the first rank both ends, DualPipe
    gives both ranks both."""
    plan, no_pipeline = setting.plan, degrees["pipe"] == 1
    ends = [section.name for section in setting.ends]
    in_flight = held_microbatches(plan.schedule, degrees["pipe"], degrees["virtual"], microbatches)
    last_in_flight = minimum(held_microbatches_last(plan.schedule, degrees["pipe"], degrees["virtual"]), microbatches)
    early_gradients = where(microbatches > 1, 1.0, 0.0)
    if setting.stack.memory.gradient_buffer:
        early_gradients = 1.0
    # How often each rank has the ends: an array over plans where it depends on whether there is a pipeline.
    folded, both_ways = plan.schedule in FOLDED, plan.schedule == "dualpipe"
    first_ends = {"embed": 1} | dict.fromkeys(ends, 1 if folded or both_ways else no_pipeline)
    last_ends = {"embed": 1 if both_ways else no_pipeline}
    last_ends |= dict.fromkeys(ends, no_pipeline if folded else 1)
    first_sections = _mixed_layers(setting, sections, layers.first, degrees)
    last_sections = _mixed_layers(setting, sections, layers.last, degrees)
    last_in_flight = where(no_pipeline, in_flight, last_in_flight)
    return (
        _rank_memory(setting, first_sections, layers.first, first_ends, in_flight, early_gradients),
        _rank_memory(setting, last_sections, layers.last, last_ends, last_in_flight, early_gradients),
    )


def _mixed_layers(
    setting: Setting, sections: dict[str, SectionMemory], layer_counts: dict[str, Any], degrees: dict[str, Any]
) -> dict[str, SectionMemory]:
    """The sections of a rank, its layers as the mean over recomputed, offloaded and other ones."""
    recomputed = share_of_layers(setting.plan.remat, layer_counts, degrees)
    offloaded = share_of_layers(setting.plan.offload, layer_counts, degrees)
    return sections | {kind: sections[kind].with_mixed_layers(recomputed, offloaded) for kind in layer_counts}


def _rank_memory(
    setting: Setting,
    sections: dict[str, SectionMemory],
    layer_counts: dict[str, Any],
    end_counts: dict[str, Any],
    in_flight: Number,
    early_gradients: Number,
) -> RankMemory:
    """The memory of a rank with so many layers of each kind and so many of each end."""
    stack_memory, counts = setting.stack.memory, layer_counts | end_counts

    def largest(part: str) -> Number:
        """The most that one layer takes, of all kinds."""
        return maximum(*[getattr(sections[kind], part) for kind in layer_counts], 0.0)

    # DualPipe's ranks hold the weights of two stages; the ends of both are counted already.
    stages = 2.0 if setting.plan.schedule == "dualpipe" else 1.0
    copies = dict.fromkeys(layer_counts, stages) | dict.fromkeys(end_counts, 1.0)
    state: dict[tuple[str, str], Number] = {}
    gradients: dict[str, Number] = {}
    for name, count in counts.items():
        section = sections[name]
        state["weights", name] = copies[name] * count * (section.weights - section.casts + section.wide)
        if setting.stack.state.wide_weights:
            state["casts", name] = copies[name] * count * section.casts
        gradients[name] = copies[name] * count * sections[name].gradients
    tower = sum(parameters(setting.towers).values())
    if tower:
        # frozen, and stored and sharded as the embedding is
        embedding = sum(parameters(setting.program.sections[:1]).values())
        state["weights", "the vision tower"] = end_counts["embed"] * sections["embed"].weights * (tower / embedding)
    for name, count in counts.items():
        state["optimizer", name] = count * (sections[name].optimizer - sections[name].wide)
    if stack_memory.placeholders:
        state["placeholders", ""] = largest("placeholders")
    loaded: Number = 0  # bytes where each chip loads the whole model before it shards it
    for name, count in counts.items():
        weights = sections[name].used + sections[name].frozen
        loaded = loaded + count * (sections[name].sharded * WEIGHT_BYTES * weights)
    # The layer with the largest workspace sets the peak; what it saved is counted with the activations already.
    workspace = maximum(*[sections[kind].workspace - sections[kind].activations for kind in layer_counts], 0.0)
    # GaLore's optimizers go through the weights one by one, others make tensors for all at once
    update_bytes = 0.0 if setting.plan.optimizer in GALORE else stack_memory.update_bytes
    transient = {
        "logits": end_counts["head"] * (sections["head"].logits + sections["head"].workspace),
        "workspace": workspace + _unfreed_input_gradients(setting, sections, layer_counts),
        "layers": stack_memory.prefetch * largest("gathered"),
        "ends": _total(sections, end_counts, "gathered"),
        "reducing": largest("reducing"),
        "update": update_bytes * _total(sections, counts, "updated_parameters"),
        "whole": stack_memory.loads_whole * loaded,
    }
    saved = {name: in_flight * count * sections[name].activations for name, count in layer_counts.items()}
    return RankMemory(stack_memory, state, gradients, saved, transient, early_gradients)


def _total(sections: dict[str, SectionMemory], counts: dict[str, Any], part: str) -> Number:
    """A part summed over sections, each of which is there so many times."""
    return sum(count * getattr(sections[name], part) for name, count in counts.items())


def _unfreed_input_gradients(
    setting: Setting, sections: dict[str, SectionMemory], layer_counts: dict[str, Any]
) -> Number:
    """Gradients of layers' inputs that FSDP1 holds, besides the two that a layer's own pass has: for a layer without
    trained weights of its own it waits for gradients of all inputs (`register_multi_grad_hook`), some of which never
    come. The inputs are held as long."""
    if not setting.stack.memory.frozen_gradients or not setting.tuning.rank or setting.plan.zero < 3:
        return 0.0
    total: Number = 0
    for name, count in layer_counts.items():
        total = total + maximum(count - 2, 0) * sections[name].sharded * sections[name].layer_input
    return total


def fullest_bytes(ranks: tuple[RankMemory, RankMemory]) -> Number:
    """Bytes of the fuller rank."""
    first, last = ranks
    return maximum(first.total, last.total)


def fullest_rank_lines(ranks: tuple[RankMemory, RankMemory]) -> list[HeldLine]:
    """What is there at the peak of the fuller rank."""
    first, last = ranks
    last_is_fuller = last.total > first.total
    lines = []
    for of_first, of_last in zip(first.lines(), last.lines(), strict=True):
        lines.append(replace(of_first, bytes=where(last_is_fuller, of_last.bytes, of_first.bytes)))
    return lines


# Of a gradient as the host adds it up, of a weight as it comes back, and of the master copy that the host's cores
# update: in fp32 whatever the chip has (DeepSpeed's CPU Adam).
GRADIENT_BYTES = 4.0
WEIGHT_BYTES = 2.0
HOST_MASTER_BYTES = 4.0
# DeepSpeed's defaults where state is on disks (runtime/zero/offload_config.py, config.py): groups of 1e9 parameters are
# updated at a time, in four fp32 buffers; five buffers of 1e8 bf16 weights.
DISK_GROUP = 1e9
DISK_GROUP_BYTES = 16.0
DISK_BUFFERS = 5 * 1e8 * 2.0


def host_memory_lines(
    setting: Setting,
    sections: dict[str, SectionMemory],
    layers: StageLayers,
    degrees: dict[str, Any],
    microbatches: Number,
) -> list[HeldLine]:
    """What the fullest rank keeps in the host's memory, for one chip."""
    plan = setting.plan
    lines: list[HeldLine] = []
    counts = {**layers.fullest, "embed": 1, **{section.name: 1 for section in setting.ends}}
    if plan.offload == "nvme":
        # state lives on the disk and passes through pinned buffers
        group = minimum(_total(sections, counts, "updated_parameters"), DISK_GROUP)
        return [HeldLine("buffers", "pinned, between disk and chip", group * DISK_GROUP_BYTES + DISK_BUFFERS)]
    if plan.offload in HOSTED_WEIGHTS:
        weights = _total(sections, counts, "hosted_weights")
        lines.append(HeldLine("weights", "weights that layers fetch", weights))
    if plan.offload in HOSTED_STATE:
        parameters = _total(sections, counts, "updated_parameters")
        matrices = _total(sections, counts, "muon_matrices")
        sharded = sections["embed"].sharded  # the same for every section
        state = _hosted_state_bytes(setting, parameters, matrices, sharded)
        lines.append(HeldLine("optimizer", "master copy and state", state))
        if not setting.stack.state.chip_updates:
            gradients = GRADIENT_BYTES * parameters
            lines.append(HeldLine("gradients", "gradients for the update", gradients, "backward", "update"))
    if plan.remat == "offload" or layers_of(plan.offload):
        offloaded = share_of_layers(plan.offload, layers.fullest, degrees)
        saved: Number = 0
        for name, count in layers.fullest.items():
            layer = sections[name]
            sent = layer.layer_input if plan.remat == "offload" else offloaded * layer.activations
            saved = saved + count * sent
        in_flight = held_microbatches(plan.schedule, degrees["pipe"], degrees["virtual"], microbatches)
        lines.append(HeldLine("activations", "saved by layers", in_flight * saved, "forward", "backward"))
    return lines


def _hosted_state_bytes(setting: Setting, parameters: Number, matrices: Number, sharded: Number) -> Number:
    """Bytes of master copy and optimizer state in the host's memory, of which `matrices` elements are Muon's."""
    plan, stack = setting.plan, setting.stack
    if stack.state.chip_updates:  # the state only visits the chip, in the chip's formats
        return optimizer_bytes(plan, stack, parameters, matrices, sharded)
    master = max(stack.state.master_bytes, HOST_MASTER_BYTES)
    moments = OPTIMIZER_BYTES[plan.optimizer]
    return parameters * (master + moments) - matrices * (moments - MATRIX_BYTES.get(plan.optimizer, 0.0))
