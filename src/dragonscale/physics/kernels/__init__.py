"""Expected times of single kernels on a chip: matmuls, attention, experts, and kernels that only move bytes.

Bounds come from `dragonscale.physics.rooflines`. These are expectations, from small models of what the hardware does,
with constants fitted on measured kernels (`profiles/*.toml`). Sizes may be numbers, NumPy arrays that broadcast
together, or SymPy symbols.
"""

from dragonscale.physics.kernels.attention import attention_backward_seconds, attention_seconds
from dragonscale.physics.kernels.decode import decode_attention_seconds
from dragonscale.physics.kernels.grouped import grouped_matmul_seconds
from dragonscale.physics.kernels.matmul import dispatch_seconds, matmul_seconds, quantise_seconds
from dragonscale.physics.kernels.profile import KernelProfile
from dragonscale.physics.kernels.profile_file import kernel_profile_for
from dragonscale.physics.kernels.stream import launch_seconds, memory_seconds

__all__ = ["KernelProfile", "attention_backward_seconds", "attention_seconds", "decode_attention_seconds"]
__all__ += ["dispatch_seconds", "grouped_matmul_seconds", "kernel_profile_for", "launch_seconds", "matmul_seconds"]
__all__ += ["memory_seconds", "quantise_seconds"]
