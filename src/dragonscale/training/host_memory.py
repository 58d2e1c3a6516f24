"""What a plan keeps in the host's memory, and what its trips there take.

`remat=offload` sends each block's input to the host and back, under the passes (`dragonscale.training.passes`).
`offload=optimizer` keeps master copy and moments there: once a step a chip's share of the gradients goes down, the
host's cores update it, and new weights come back (ZeRO-Offload, Ren et al. 2021; Megatron's --optimizer-cpu-offload).
None of that is hidden.
"""

from typing import Any

from dragonscale.physics.hardware import Chip
from dragonscale.physics.numbers import Number
from dragonscale.plan.ledger import HeldLine
from dragonscale.training.memory import Held, owned_bytes
from dragonscale.training.optimizers import UPDATE_BYTES
from dragonscale.training.plan import Plan
from dragonscale.training.stack import Stack
from dragonscale.training.stages import StageLayers, held_microbatches

HOST_UPDATE = 40e9
"""Bytes of state that the host's cores move for each of its chips in a second. Order of magnitude chosen: half of the
614 GB/s that two sockets with eight channels of DDR5-4800 have (DGX H100), shared by eight chips."""
GRADIENT_BYTES, WEIGHT_BYTES = 4.0, 2.0
"""Of a gradient as the host adds to it, and of a weight as it comes back."""


def hosted(
    plan: Plan,
    stack: Stack,
    held: dict[str, Held],
    layers: StageLayers,
    ends: list[str],
    numbers: dict[str, Any],
    microbatches: Number,
) -> list[HeldLine]:
    """What the fullest rank has its host keep, for one chip."""
    found: list[HeldLine] = []
    if plan.offload == "optimizer":
        often = {**layers.fullest, "embed": 1, **dict.fromkeys(ends, 1)}
        share = sum(times * held[name].parameters for name, times in often.items())
        matrices = sum(times * held[name].matrices for name, times in often.items())
        shards = held["embed"].shards  # every section's are, or none's
        found.append(HeldLine("optimizer", "master copy and state", owned_bytes(plan, stack, share, matrices, shards)))
        found.append(HeldLine("gradients", "gradients for the update", GRADIENT_BYTES * share, "backward", "update"))
    if plan.remat == "offload":
        flight = held_microbatches(plan.schedule, numbers["pipe"], numbers["virtual"], microbatches)
        kept = flight * sum(times * held[name].entry for name, times in layers.fullest.items())
        found.append(HeldLine("activations", "saved by layers", kept, "forward", "backward"))
    return found


def host_update_seconds(plan: Plan, chip: Chip, stack: Stack, share: Number) -> Number:
    """Seconds of an update by the host: gradients down, the update, weights up."""
    moved = share * (stack.state.gradient_bytes + WEIGHT_BYTES) / chip.host_link
    return moved + share * UPDATE_BYTES[plan.optimizer] / HOST_UPDATE
