"""The peak of a rank's memory: layers put into ranks, the moment when most is there, and what the allocator takes for
it.

State (weights, master copy, optimizer) is there all the time. Beside it, four moments can be the fullest:

| moment | what is there |
|---|---|
| head | everything that layers keep, the logits and what the loss makes of them |
| layer | everything that layers keep, one layer's workspace, gathered weights, gradients on their way |
| end | all gradients, one layer's workspace, gathered weights |
| update | all gradients, and what the optimizer makes beside its state |

Gradients lie in a buffer all the time in some stacks, and in others from the second microbatch on; otherwise each is
there once its layer's backward pass is done, when what the layer kept is gone: so the start or the end of the backward
pass is the fullest.

What these tensors add up to is what an allocator counts as allocated. It takes more: blocks that do not fit what is
free (fragmentation, which must fit too), and blocks that it keeps for later (which it gives back when asked). Outside
it lie the driver's context and the network library's buffers.

What a plan keeps in the host's memory: `remat=offload` sends each block's input there and back, under the passes;
`offload=activations:20` everything that twenty layers save (Transformer Engine's cpu_offload spreads the transfers of
those layers over the passes of all, and a layer's tensors are there until its transfer is done).
`offload=optimizer` keeps master copy and moments there: once a step a chip's share of the gradients goes down, the
host's cores update it, and new weights come back (ZeRO-Offload, Ren et al. 2021; Megatron's --optimizer-cpu-offload).
`offload=parameters` keeps the weights there, too: each layer fetches its shard in the forward pass and again in the
backward pass (ZeRO-3 with offload_param, ZeRO-Infinity of Rajbhandari et al. 2021; FSDP's CPU offload). Stacks with
`hosted_gradients` send gradients down with every microbatch, where the host adds them up. None of that is hidden.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from dragonscale.physics.numbers import Number, maximum, minimum, where
from dragonscale.plan.ledger import HeldLine
from dragonscale.training.memory.memory import Held, owned_bytes
from dragonscale.training.plan.optimizers import MOMENTUM_BYTES, OPTIMIZER_BYTES
from dragonscale.training.plan.plan import HOSTED_STATE, layers_of
from dragonscale.training.plan.setting import Setting
from dragonscale.training.plan.stack import StackMemory
from dragonscale.training.plan.stages import FOLDED, StageLayers, held_last, held_microbatches, share_of_layers

OUTSIDE = ("fragmentation", "framework")
"""Parts that no tensor has: what an allocator cannot use, and what lies outside of it."""
_TENSORS = {
    "weights": ("weights of {}", "always", "always"),
    "gradients": ("gradients of {}", "backward", "update"),
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
"""By part what it is, of a section, and from when to when it is there."""
_THERE = {
    "head": ("early", "activations", "logits", "ends"),
    "layer": ("early", "activations", "workspace", "layers", "ends", "reducing"),
    "end": ("late", "workspace", "layers", "ends", "reducing"),
    "update": ("late", "update"),
    "load": ("whole",),
}
"""What is there at each moment beside state: gradients as early or as late as that, weights gathered of layers and of
the ends."""


@dataclass(frozen=True)
class Rank:
    """Bytes of one rank: state and gradients by part and section, what layers keep by section, and
    what comes and goes."""

    memory: StackMemory
    state: dict[tuple[str, str], Number]
    gradients: dict[str, Number]
    kept: dict[str, Number]
    passing: dict[str, Number]
    early: Number

    @cached_property
    def moments(self) -> dict[str, Number]:
        """Bytes beside the state at each moment."""
        late = sum(self.gradients.values())
        sizes = self.passing | {"early": self.early * late, "late": late, "activations": sum(self.kept.values())}
        return {name: sum(sizes[part] for part in there) for name, there in _THERE.items()}

    @cached_property
    def total(self) -> Number:
        """Bytes that must fit."""
        allocated = sum(self.state.values()) + maximum(*self.moments.values())
        return allocated * (1 + self.memory.fragmentation) + self.memory.reserve_bytes

    def lines(self) -> list[HeldLine]:
        """What is there at the fullest moment, tensor by tensor."""
        most = maximum(*self.moments.values())
        left: Number = 1.0
        at: dict[str, Number] = {}  # 1 for the fullest moment, the first of several
        for name, size in self.moments.items():
            at[name] = where(size >= most, left, 0.0)
            left = left - at[name]

        def present(part: str) -> Number:
            return sum((at[name] for name, there in _THERE.items() if part in there), 0.0)

        found = [_line(part, section, size) for (part, section), size in self.state.items()]
        often = self.early * present("early") + present("late")
        found += [_line("gradients", section, often * size) for section, size in self.gradients.items()]
        found += [_line("activations", section, present("activations") * size) for section, size in self.kept.items()]
        gathered = present("layers") * self.passing["layers"] + present("ends") * self.passing["ends"]
        found.append(_line("gathered weights", "", gathered))
        for part in ("workspace", "logits", "reducing", "update", "whole"):
            found.append(_line(part, "", present(part) * self.passing[part]))
        allocated = sum(line.bytes for line in found)
        found.append(HeldLine("fragmentation", "the allocator's", self.memory.fragmentation * allocated))
        found.append(HeldLine("framework", "context and network buffers", self.memory.reserve_bytes + 0 * allocated))
        return found


def _line(part: str, section: str, size: Number) -> HeldLine:
    what, since, until = _TENSORS[part]
    return HeldLine(part, what.format(section), size, since, until, section)


def ranks_held(
    setting: Setting, held: dict[str, Held], layers: StageLayers, numbers: dict[str, Any], microbatches: Number
) -> tuple[Rank, Rank]:
    """What two ranks hold: the first, with the most microbatches and the embedding, and the last, with the head; under
    schedules that fold the pipeline the first has both, and under DualPipe each of them."""
    plan, alone, ends = setting.plan, numbers["pipe"] == 1, [section.name for section in setting.ends]
    flight = held_microbatches(plan.schedule, numbers["pipe"], numbers["virtual"], microbatches)
    few = minimum(held_last(plan.schedule, numbers["pipe"], numbers["virtual"]), microbatches)
    early = 1.0 if setting.stack.memory.gradient_buffer else where(microbatches > 1, 1.0, 0.0)
    both = plan.schedule in FOLDED or plan.schedule == "dualpipe"
    first = {"embed": 1} | dict.fromkeys(ends, 1 if both else alone)
    last = {"embed": 1 if plan.schedule == "dualpipe" else alone}
    last |= dict.fromkeys(ends, alone if plan.schedule in FOLDED else 1)
    sides = []
    for counts in (layers.first, layers.last):
        again, sent = (share_of_layers(word, counts, numbers) for word in (plan.remat, plan.offload))
        sides.append(held | {kind: held[kind].with_layers(again, sent) for kind in counts})
    fuller = _one_rank(setting, sides[0], layers.first, first, flight, early)
    return fuller, _one_rank(setting, sides[1], layers.last, last, where(alone, flight, few), early)


def _one_rank(
    setting: Setting, held: dict[str, Held], counts: dict[str, Any], ends: dict[str, Any], flight: Number, early: Number
) -> Rank:
    # DualPipe's ranks hold the layers of two stages; the ends are counted already.
    copies = dict.fromkeys(counts, 2.0 if setting.plan.schedule == "dualpipe" else 1.0) | dict.fromkeys(ends, 1.0)
    memory, often = setting.stack.memory, counts | ends
    blocks = [held[kind] for kind in counts]
    state = {("weights", name): copies[name] * times * held[name].weights for name, times in often.items()}
    state |= {("optimizer", name): times * held[name].optimizer for name, times in often.items()}
    if memory.placeholders:
        state["placeholders", ""] = maximum(*[one.placeholders for one in blocks], 0.0)
    share = sum(times * held[name].parameters for name, times in often.items())
    passing = {
        "logits": ends["head"] * (held["head"].logits + held["head"].working),
        "workspace": maximum(*[one.working - one.activations for one in blocks], 0.0) + _unfreed(setting, held, counts),
        "layers": memory.prefetch * maximum(*[one.gathered for one in blocks], 0.0),
        "ends": sum(times * held[name].gathered for name, times in ends.items()),
        "reducing": maximum(*[one.reducing for one in blocks], 0.0),
        "update": memory.update_bytes * share,
        "whole": memory.loads_whole * sum(times * _loaded(held[name]) for name, times in often.items()),
    }
    gradients = {name: copies[name] * times * held[name].gradients for name, times in often.items()}
    kept = {name: flight * times * held[name].activations for name, times in counts.items()}
    return Rank(memory, state, gradients, kept, passing, early)


def _loaded(one: Held) -> Number:
    return one.shards * WEIGHT_BYTES * (one.used + one.frozen)


def _unfreed(setting: Setting, held: dict[str, Held], counts: dict[str, Any]) -> Number:
    """Gradients of layers' inputs, beside the two that a layer's own pass has, that FSDP1 holds: for a layer without
    trained weights of its own it waits for gradients of all inputs (`register_multi_grad_hook`), some of which never
    come. The inputs are held as long."""
    if not setting.stack.memory.frozen_gradients or not setting.tuning.rank or setting.plan.zero < 3:
        return 0.0
    return sum(maximum(times - 2, 0) * held[name].shards * held[name].entry for name, times in counts.items())


def fullest_bytes(ranks: tuple[Rank, Rank]) -> Number:
    """Bytes of the fuller rank."""
    return maximum(*(rank.total for rank in ranks))


def fullest_rank(ranks: tuple[Rank, Rank]) -> list[HeldLine]:
    """What the fuller rank holds."""
    fuller = ranks[1].total > ranks[0].total
    pairs = zip(*(rank.lines() for rank in ranks), strict=True)
    return [replace(first, bytes=where(fuller, last.bytes, first.bytes)) for first, last in pairs]


GRADIENT_BYTES, WEIGHT_BYTES = 4.0, 2.0
"""Of a gradient as the host adds to it, and of a weight as it comes back."""
HOST_MASTER_BYTES = 4.0
"""Of a weight's master copy that the host's cores update: in fp32 whatever the chip has (DeepSpeed's CPU Adam)."""


def hosted(
    setting: Setting, held: dict[str, Held], layers: StageLayers, numbers: dict[str, Any], microbatches: Number
) -> list[HeldLine]:
    """What the fullest rank has its host keep, for one chip."""
    plan = setting.plan
    found: list[HeldLine] = []
    often = {**layers.fullest, "embed": 1, **{section.name: 1 for section in setting.ends}}
    if plan.offload == "parameters":
        weights = sum(times * held[name].hosted_weights for name, times in often.items())
        found.append(HeldLine("weights", "weights that layers fetch", weights))
    if plan.offload in HOSTED_STATE:
        share = sum(times * held[name].parameters for name, times in often.items())
        matrices = sum(times * held[name].matrices for name, times in often.items())
        state = _hosted_state(setting, share, matrices, held["embed"].shards)  # every section is sharded, or none
        found.append(HeldLine("optimizer", "master copy and state", state))
        if not setting.stack.state.chip_updates:
            found.append(
                HeldLine("gradients", "gradients for the update", GRADIENT_BYTES * share, "backward", "update")
            )
    sent = share_of_layers(plan.offload, layers.fullest, numbers)
    if plan.remat == "offload" or layers_of(plan.offload):
        flight = held_microbatches(plan.schedule, numbers["pipe"], numbers["virtual"], microbatches)
        each = {name: one.entry if plan.remat == "offload" else sent * one.activations for name, one in held.items()}
        kept = flight * sum(times * each[name] for name, times in layers.fullest.items())
        found.append(HeldLine("activations", "saved by layers", kept, "forward", "backward"))
    return found


def _hosted_state(setting: Setting, share: Number, matrices: Number, shards: Number) -> Number:
    """Bytes of master copy and optimizer state of `share` parameters in the host's memory, of which `matrices` are
    Muon's."""
    plan, stack = setting.plan, setting.stack
    if stack.state.chip_updates:
        return owned_bytes(plan, stack, share, matrices, shards)
    master = max(stack.state.master_bytes, HOST_MASTER_BYTES)
    each = OPTIMIZER_BYTES[plan.optimizer]
    return share * (master + each) - matrices * (each - MOMENTUM_BYTES)
