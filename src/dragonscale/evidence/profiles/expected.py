"""What an op should take: its FLOPs and bytes at the rates that good kernels reach on its chip, by the chip's
efficiency profile.

A bound says what no kernel beats; this says what people's kernels do, and so what is there to be saved. Sizes of the
matmul are not needed: large ones reach `rate` of the peak and `sustained` of that when they last, memory is read at a
fraction of the datasheet's. Attention is not so simple: its time is the kernel profile's, by its shapes, as in a plan;
where they are not recorded nothing is expected of it.
"""

from dragonscale.errors import InputError
from dragonscale.evidence.profiles.hlo_roles import HloReader
from dragonscale.evidence.profiles.parts import TRAVELS
from dragonscale.evidence.profiles.per_op import MATMULS, StepOps
from dragonscale.evidence.profiles.roles import OpRole
from dragonscale.evidence.profiles.work_by_shapes import attention_dims
from dragonscale.physics.hardware import Chip
from dragonscale.physics.kernels import KernelProfile, kernel_profile_for
from dragonscale.physics.kernels.attention import attention_backward_seconds, attention_seconds


def known_kernels(chip: Chip | None, library: str = "") -> KernelProfile | None:
    """The chip's efficiency profile, where there is one: that of a library's kernels if it has its own."""
    try:
        return kernel_profile_for(chip, library=library) if chip is not None else None
    except InputError:
        return None


def expected_attention(step: StepOps) -> dict[int, float]:
    """Seconds of one run of each attention op whose shapes are known, by its number."""
    recording, causal = step.recording, step.roof.causal
    profile = known_kernels(step.chip, "jax" if recording.programs or "jax" in recording.software.lower() else "")
    if profile is None:
        return {}
    reader, found = HloReader(recording), dict[int, float]()
    for number, (op, role) in enumerate(zip(recording.ops, step.roles, strict=True)):
        if role.kind != "attention" or not role.flops:
            continue
        dims = attention_dims(op, reader.operands(op))
        if dims is None or dims.tokens < 2:  # a single query is decoding, whose keys are in pages
            continue
        formula = attention_backward_seconds if role.phase == "backward" else attention_seconds
        shapes = (dims.sequences, dims.tokens, dims.keys, dims.heads, dims.kv_heads, dims.size)
        found[number] = float(formula(*shapes, role.dtype or "bf16", profile, causal=number in causal))
    return found


def expected_seconds(role: OpRole, profile: KernelProfile | None) -> float | None:
    """Seconds of one run of an op by a good kernel; None where too little is known, and for attention
    (`expected_attention`)."""
    if profile is None or role.kind in (*TRAVELS, "attention") or (not role.flops and not role.hbm_bytes):
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
    return table.launch + max(
        role.flops / (peak * rate), (role.hbm_bytes or 0.0) / (profile.bandwidth * table.bandwidth)
    )
