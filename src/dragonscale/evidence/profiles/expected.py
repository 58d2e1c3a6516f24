"""What an op should take: its FLOPs and bytes at the rates that good kernels reach on its chip, by the chip's efficiency profile.

A bound says what no kernel beats; this says what people's kernels do, and so what is there to be saved. Sizes of the matmul are not needed:
large ones reach `rate` of the peak and `sustained` of that when they last, memory is read at a fraction of the datasheet's.
"""

from typing import TYPE_CHECKING

from dragonscale.errors import InputError
from dragonscale.evidence.profiles.parts import TRAVELS
from dragonscale.evidence.profiles.per_op import MATMULS
from dragonscale.evidence.profiles.roles import OpRole
from dragonscale.kernels import kernel_profile_for

if TYPE_CHECKING:
    from dragonscale.hardware import Chip
    from dragonscale.kernels import KernelProfile


def known_kernels(chip: "Chip | None") -> "KernelProfile | None":
    """The chip's efficiency profile, where there is one."""
    try:
        return kernel_profile_for(chip) if chip is not None else None
    except InputError:
        return None


def expected_seconds(role: OpRole, profile: "KernelProfile | None", done: float = 1.0) -> float | None:
    """Seconds of one run of an op by a good kernel that computes `done` of its FLOPs; None where too little is known."""
    if profile is None or role.kind in TRAVELS or (not role.flops and not role.hbm_bytes):
        return None
    memory = (role.hbm_bytes or 0.0) / (profile.bandwidth * profile.stream.bandwidth)
    if role.kind not in MATMULS or not role.flops:
        return profile.stream.launch + memory
    try:
        table = profile.matmul.of(role.dtype or "bf16")
        peak = profile.chip.peak(role.dtype or "bf16")
    except InputError:
        return None
    rate = table.rate * table.sustained
    if role.kind == "attention":
        rate *= (
            0.75  # the softmax between its two matmuls runs on other units, and tiles at the mask's edge are half empty
        )
    return table.launch + max(
        done * role.flops / (peak * rate), (role.hbm_bytes or 0.0) / (profile.bandwidth * table.bandwidth)
    )
