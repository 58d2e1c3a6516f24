"""The optimizer's part of a step: the state that a chip updates, what travels between chip and host where the host has
the state, and the seconds of both."""

from dragonscale.physics.numbers import Number, where
from dragonscale.physics.sharding.placement import Wires
from dragonscale.training.cost.layer_passes import StepParts
from dragonscale.training.cost.muon import muon_seconds
from dragonscale.training.memory.peak_memory import HOST_MASTER_BYTES, WEIGHT_BYTES
from dragonscale.training.plan.optimizers import MATRIX_UPDATE_BYTES, OPTIMIZER_BYTES, SLOWER, UPDATE_BYTES
from dragonscale.training.plan.plan import HOSTED_STATE, HOSTED_WEIGHTS
from dragonscale.training.plan.setting import Setting

HOST_UPDATE = 40e9
"""Bytes of state that the host's cores move for each of its chips in a second. Order of magnitude chosen: half of the
614 GB/s that two sockets with eight channels of DDR5-4800 have (DGX H100), shared by eight chips."""


DISK = 3e9
"""Bytes that one NVMe disk reads or writes in a second: drives on four lanes of PCIe 3.0 (3.5 and 3.0 GB/s of a Samsung
980). Servers with several striped disks are faster by as much."""


def rank_sections(setting: Setting, parts: StepParts) -> list[tuple[str, Number]]:
    """The sections of a chip of the fullest rank, and how many layers of each it has: what is moved once a step."""
    return [*parts.layers.fullest.items(), ("embed", 1), *((section.name, 1) for section in setting.ends)]


def updated_parameters(parts: StepParts) -> tuple[Number, Number]:
    """The parameters whose state a chip updates, and how many of them are Muon's matrices."""
    sections = (*parts.layers.fullest.items(), ("embed", 1))
    parameters = sum(count * parts.memory[name].updated_parameters for name, count in sections)
    return parameters, sum(count * parts.memory[name].muon_matrices for name, count in sections)


def updated_bytes(setting: Setting, parts: StepParts) -> Number:
    """Bytes of a chip's HBM that its update reads and writes."""
    parameters, matrices = updated_parameters(parts)
    if host_updates(setting):  # gradients on their way to the host, and weights on their way back
        return parameters * (setting.stack.state.gradient_bytes + WEIGHT_BYTES)
    moved = UPDATE_BYTES[setting.plan.optimizer]
    if setting.plan.optimizer != "muon":
        matrices = 0.0 * matrices
    return parameters * moved - matrices * (moved - MATRIX_UPDATE_BYTES)


def update_seconds(setting: Setting, parts: StepParts, wires: Wires) -> Number:
    """Seconds of the optimizer, and of what it moves between chip and host."""
    seconds = state_seconds(setting, parts) + travel_seconds(setting, parts)
    if setting.plan.optimizer == "muon":
        seconds = seconds + muon_seconds(setting, parts.layers.fullest, wires)
    return seconds


def travel_seconds(setting: Setting, parts: StepParts) -> Number:
    """Seconds of what travels between a chip and its host, and between the host and its disk where state lives there:
    one after the other, since public steps show neither under compute."""
    link_s = host_link_bytes(setting, parts) / setting.slice.chip.host_link
    return link_s + disk_bytes(setting, parts) / disk_share(setting)


def host_updates(setting: Setting) -> bool:
    """Whether the host's cores update the state, which is in the host's memory."""
    return setting.plan.offload in HOSTED_STATE and not setting.stack.state.chip_updates


def host_link_bytes(setting: Setting, parts: StepParts) -> Number:
    """Bytes of gradients and weights that a step moves between a chip and its host, where the host updates the weights.

    Gradients go down once, or with every microbatch where the host adds them up: DeepSpeed brings the sum back to the
    chip, adds to it and sends it down again (runtime/zero/stage3.py, partition_grads). New weights come back once;
    where the host keeps them, every microbatch fetches them in its forward and in its backward pass.
    """
    if not host_updates(setting):
        return 0.0
    parameters, _ = updated_parameters(parts)
    # Down with each of M microbatches, and back up before each but the first.
    accumulated_on_host = WEIGHT_BYTES * (2 * parts.microbatches - 1)
    sends_gradients = parts.memory["embed"].sends_gradients > 0
    gradients = where(sends_gradients, accumulated_on_host, setting.stack.state.gradient_bytes)
    if setting.plan.offload not in HOSTED_WEIGHTS:
        return parameters * (gradients + WEIGHT_BYTES)
    sections = rank_sections(setting, parts)
    weights = sum((count * parts.memory[name].hosted_weights for name, count in sections), 0.0)
    return parameters * gradients + 2 * parts.microbatches * weights


def disk_bytes(setting: Setting, parts: StepParts) -> Number:
    """Bytes that a step reads from the host's disk and writes to it for one chip, where state lives there: weights as
    often as layers fetch them, gradients and new weights once, master copy and optimizer state in and out."""
    if setting.plan.offload != "nvme":
        return 0.0
    parameters, _ = updated_parameters(parts)
    state = max(setting.stack.state.master_bytes, HOST_MASTER_BYTES) + OPTIMIZER_BYTES[setting.plan.optimizer]
    return host_link_bytes(setting, parts) + parameters * (2 * state + WEIGHT_BYTES)


def disk_share(setting: Setting) -> float:
    """Bytes a second of the host's disk for each of its chips."""
    return DISK / max(1, min(setting.slice.chip.host_chips, setting.slice.chips))


def state_seconds(setting: Setting, parts: StepParts) -> Number:
    """Seconds of the optimizer's passes over its state, and of the host between two steps."""
    assert setting.timer is not None
    optimizer, between_steps_s = setting.plan.optimizer, setting.stack.host.step_s
    parameters, _ = updated_parameters(parts)
    if host_updates(setting):
        return parameters * UPDATE_BYTES[optimizer] / HOST_UPDATE + between_steps_s
    travel: Number = 0.0
    if setting.plan.offload == "optimizer":
        # The chip updates state that lives on the host: the master copy for the forward pass, then all of it and back.
        master = setting.stack.state.master_bytes
        state = master + OPTIMIZER_BYTES[optimizer]
        travel = parameters * (master + 2 * state) / setting.slice.chip.host_link
    moved = updated_bytes(setting, parts) * setting.stack.state.update_passes
    return travel + setting.timer.copy(moved) * SLOWER.get(optimizer, 1.0) + between_steps_s
