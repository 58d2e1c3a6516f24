"""The GPU that XLA compiles for, described instead of present.

XLA's GPU compiler asks the driver what the GPU is like; given a *target config* it does not need one. The text below is
made from the chip's own file (SMs, clock, memory) and from the limits that CUDA's programming guide lists for its
compute capability, which are the same for every chip of that capability.
"""

from dataclasses import dataclass

from dragonscale.errors import InputError, unknown
from dragonscale.hardware import Chip


@dataclass(frozen=True)
class Capability:
    """CUDA's limits for one compute capability; shared memory in bytes."""

    major: int
    minor: int
    shared_per_sm: int
    threads_per_sm: int = 2048
    shared_per_block: int = 48 * 1024
    reserved_shared: int = 1024
    """What the runtime keeps of an SM's shared memory for each block."""
    threads_per_block: int = 1024
    warp: int = 32
    registers: int = 64 * 1024
    grid_x: int = 2**31 - 1
    grid_yz: int = 2**16 - 1


CAPABILITIES = {
    "a100": Capability(8, 0, 164 * 1024),
    "h100": Capability(9, 0, 228 * 1024),
    "h200": Capability(9, 0, 228 * 1024),
}
CUDNN, CUDA = (9, 8), (12, 9)
"""The library versions the compiler may assume; any recent ones do, they choose no collectives."""


def target_config(chip: Chip) -> str:
    """The text proto of XLA's `GpuTargetConfigProto` for a chip.

    >>> from dragonscale.hardware import load_chip
    >>> "core_count: 132" in target_config(load_chip("h100"))
    True
    """
    if chip.kind != "gpu":
        raise InputError(f"XLA's GPU compiler cannot compile for {chip.title}; choose a GPU.")
    if chip.name not in CAPABILITIES:
        raise unknown("GPU that XLA can be told about", chip.name, CAPABILITIES)
    limits = CAPABILITIES[chip.name]
    device = {
        "threads_per_block_limit": limits.threads_per_block,
        "threads_per_warp": limits.warp,
        "shared_memory_per_block": limits.shared_per_block,
        "shared_memory_per_core": limits.shared_per_sm,
        "shared_memory_per_block_optin": limits.shared_per_sm - limits.reserved_shared,
        "threads_per_core_limit": limits.threads_per_sm,
        "core_count": int(chip.structure["sms"]),
        "fpus_per_core": int(chip.structure["alus_per_sm"]),
        "block_dim_limit_x": limits.grid_x,
        "block_dim_limit_y": limits.grid_yz,
        "block_dim_limit_z": limits.grid_yz,
        "memory_bandwidth": int(chip.hbm.bandwidth or 0),
        "l2_cache_size": int(chip.memory["l2"].capacity),
        "clock_rate_ghz": chip.structure["clock"] / 1e9,
        "device_memory_size": int(chip.hbm.capacity),
        "registers_per_core_limit": limits.registers,
        "registers_per_block_limit": limits.registers,
    }
    fields = "\n".join(f"  {name}: {value}" for name, value in device.items())
    capability = f"  cuda_compute_capability {{ major: {limits.major} minor: {limits.minor} }}"
    return (
        f"gpu_device_info {{\n{fields}\n{capability}\n}}\n"
        f'platform_name: "CUDA"\ndevice_description_str: "{chip.title}"\n'
        f"dnn_version_info {{ major: {CUDNN[0]} minor: {CUDNN[1]} }}\n"
        f"runtime_version {{ major: {CUDA[0]} minor: {CUDA[1]} }}\n"
    )
