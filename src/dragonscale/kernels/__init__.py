"""Expected times of single kernels on a chip: matmuls, attention, experts, and whatever only moves bytes.

Bounds come from `dragonscale.rooflines`; these are expectations, from small models of what the hardware does whose
constants are data fitted on measured kernels (`profiles/*.toml`). Sizes may be numbers, NumPy arrays that broadcast
together, or SymPy symbols.
"""

from dragonscale.kernels.attention import attention_backward_seconds, attention_seconds
from dragonscale.kernels.decode import decode_attention_seconds
from dragonscale.kernels.grouped import grouped_matmul_seconds
from dragonscale.kernels.matmul import dispatch_seconds, matmul_seconds, quantise_seconds
from dragonscale.kernels.profile import KernelProfile
from dragonscale.kernels.profile_file import kernel_profile_for
from dragonscale.kernels.stream import launch_seconds, memory_seconds

__all__ = [
    "KernelProfile",
    "attention_backward_seconds",
    "attention_seconds",
    "decode_attention_seconds",
    "dispatch_seconds",
    "grouped_matmul_seconds",
    "kernel_profile_for",
    "launch_seconds",
    "matmul_seconds",
    "memory_seconds",
    "quantise_seconds",
]
