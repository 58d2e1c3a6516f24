"""FLOPs of the custom calls that multiply matrices: cuBLAS and cuDNN, as XLA's GPU compiler calls them, and a TPU
kernel.

A cuBLAS call says in its configuration which dims it sums over; its first operand and first result have the sizes. A
cuDNN convolution has a convolution's labels, which name the forward convolution also where it computes a gradient.
Fused attention says the shape of the scores `[batch, heads, queries, keys]`, masked or not: forward it is two matmuls,
backward five, because the scores are computed again. XLA's TPU compiler makes one kernel of its own of a softmax and
the matmul that follows it.
"""

import math
from collections.abc import Sequence
from typing import Any

from dragonscale.errors import InputError
from dragonscale.evidence.xla.convolution import convolution_flops
from dragonscale.evidence.xla.hlo_text import Instruction
from dragonscale.evidence.xla.shapes import Shape

# where the forward convolution's operand, kernel and result are: operand 0, operand 1 or the result (-1)
_CUDNN_ROLES = {
    "__cudnn$convForward": (0, 1, -1),
    "__cudnn$convForwardGraph": (0, 1, -1),
    "__cudnn$convBiasActivationForward": (0, 1, -1),
    "__cudnn$convBackwardInput": (-1, 1, 0),
    "__cudnn$convBackwardFilter": (0, -1, 1),
}


def library_flops(call: Instruction, operands: Sequence[Shape]) -> float | None:
    """FLOPs of a custom call, or None for one that is no matmul of a known library."""
    target = call.attribute("custom_call_target").strip('"')
    try:
        if target.startswith("__cublas$"):
            dims: dict[str, Any] = call.config["gemm_backend_config"]["dot_dimension_numbers"]
            summed = math.prod(operands[0].dims[int(dim)] for dim in dims["lhs_contracting_dimensions"])
            return 2.0 * math.prod(call.shapes[0].dims) * summed
        if target in _CUDNN_ROLES:
            lhs, rhs, out = (call.shapes[0] if role < 0 else operands[role] for role in _CUDNN_ROLES[target])
            return convolution_flops(lhs, rhs, out, call.attribute("dim_labels"), call.attribute("window"))
        if target.startswith("__cudnn$fmha"):
            return _attention(call, operands, "Backward" in target)
        if target == "tpu_custom_call" and call.op_name == "online-softmax":
            return _softmax_product(call, operands)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"The call {call.name} of {target} has a configuration this reader cannot read ({error!r})."
        ) from None
    return None


def _attention(call: Instruction, operands: Sequence[Shape], backward: bool) -> float:
    """Queries, keys and values are the first three operands, the size of a head their last dim."""
    scores = call.config["cudnn_fmha_backend_config"]["intermediate_tensor_shape"]["dimensions"]
    head, value_head = operands[0].dims[-1], operands[2].dims[-1]
    # forward: scores and output; backward: the scores again, dQ and dK, and dV and the scores' gradient
    depth = 3 * head + 2 * value_head if backward else head + value_head
    return 2.0 * math.prod(int(size) for size in scores) * depth


def _softmax_product(call: Instruction, operands: Sequence[Shape]) -> float | None:
    """`softmax(a) · b` where the shapes say so, else nothing that could be counted."""
    a, b, out = operands[0].dims, operands[1].dims, call.shapes[0].dims
    batch = out[:-2]
    if a == (*batch, out[-2], a[-1]) and b == (*batch, a[-1], out[-1]):
        return 2.0 * math.prod(out) * a[-1]
    return None
