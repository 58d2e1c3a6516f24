# ruff: noqa: F401  what is imported here is what the package offers
"""Expected times of single kernels on a chip: matmuls, attention, experts, and whatever only moves bytes.

Bounds come from `dragonscale.physics.rooflines`; these are expectations, from small models of what the hardware does
whose constants are data fitted on measured kernels (`profiles/*.toml`). Sizes may be numbers, NumPy arrays that
broadcast together, or SymPy symbols.
"""

from dragonscale.physics.kernels.attention import attention_backward_seconds, attention_seconds
from dragonscale.physics.kernels.decode import decode_attention_seconds
from dragonscale.physics.kernels.grouped import grouped_matmul_seconds
from dragonscale.physics.kernels.matmul import launch_seconds, matmul_seconds, memory_seconds, quantise_seconds
from dragonscale.physics.kernels.profile import KernelProfile
from dragonscale.physics.kernels.profile_file import kernel_profile_for
