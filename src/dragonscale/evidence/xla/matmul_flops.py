"""FLOPs of one instruction that multiplies matrices: a dot, a convolution, a call of a library.

A convolution is also how XLA's TPU compiler writes every matmul.

A matmul `[b,f] · [i,o]` is a convolution without spatial dims (`dim_labels=bf_io->bf`). A batched matmul has its batch
dims as spatial ones, with padding and dilation chosen so that each batch meets only itself: of the positions that the
window visits most fall on padding or between the elements, and a count that ignores this is too large by the batch. So
only positions that meet an element are counted, as XLA's own cost analysis does.

A cuBLAS call says in its configuration which dims it sums over; its first operand and first result have the sizes. A
cuDNN convolution has a convolution's labels, which name the forward convolution also where it computes a gradient.
Fused attention says the shape of the scores `[batch, heads, queries, keys]`, masked or not: forward it is two matmuls,
backward five, because the scores are computed again. XLA's TPU compiler makes one kernel of its own of a softmax and
the matmul that follows it.

>>> from dragonscale.evidence.xla.shapes import read_shapes
>>> lhs, rhs, out = read_shapes("bf16[64,256] bf16[256,512] bf16[64,512]")
>>> convolution_flops(lhs, rhs, out, "bf_io->bf", "") == 2 * 64 * 256 * 512
True
>>> lhs, rhs, out = read_shapes("bf16[16,64,32] bf16[16,32,48] bf16[16,64,48]")
>>> window = "{size=16 stride=15 lhs_dilate=16}"
>>> convolution_flops(lhs, rhs, out, "0bf_0io->0bf", window) == 2 * 16 * 64 * 32 * 48
True
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from dragonscale.errors import InputError, shorten
from dragonscale.evidence.xla.hlo_text import Computation, Instruction, operand_arrays
from dragonscale.evidence.xla.shapes import Shape

MOST_POSITIONS = 1 << 28
"""Places of a window times outputs along one dim, each looked at once."""
_LABELS = re.compile(r"(?P<lhs>[\w?]+)_(?P<rhs>[\w?]+)->(?P<out>[\w?]+)")


_WINDOW = {"size": "size", "stride": "stride", "low": "pad", "lhs_dilate": "lhs_dilate", "rhs_dilate": "rhs_dilate"}
"""Our names for the fields of a window, and HLO's."""
# where the forward convolution's operand, kernel and result are: operand 0, operand 1 or the result (-1)
_CUDNN_ROLES = {
    "__cudnn$convForward": (0, 1, -1),
    "__cudnn$convForwardGraph": (0, 1, -1),
    "__cudnn$convBiasActivationForward": (0, 1, -1),
    "__cudnn$convBackwardInput": (-1, 1, 0),
    "__cudnn$convBackwardFilter": (0, -1, 1),
}


def may_multiply(instruction: Instruction) -> bool:
    """Whether an instruction is, or may be, a matmul."""
    return instruction.opcode in ("dot", "convolution", "custom-call")


def flops_of(computation: Computation | None, instruction: Instruction) -> float | None:
    """FLOPs of one instruction that multiplies matrices, each time; None for every other instruction, and for one that
    does not show its operands. Of a `computation` all that is used must be there."""
    if not may_multiply(instruction):
        return None
    missing = [name for name in instruction.operands if computation and name not in computation.named]
    if missing:
        raise InputError(f"The instruction {instruction.name} uses {missing[0]!r}, which its computation lacks.")
    operands = operand_arrays(computation, instruction)
    if instruction.opcode == "custom-call":
        return library_flops(instruction, operands)
    if len(operands) < 2:
        return None
    if instruction.opcode == "dot":
        summed = [int(dim) for dim in re.findall(r"\d+", instruction.attribute("lhs_contracting_dims"))]
        return 2.0 * math.prod(instruction.shapes[0].dims) * math.prod(operands[0].dims[dim] for dim in summed)
    labels, window = instruction.attribute("dim_labels"), instruction.attribute("window")
    return convolution_flops(operands[0], operands[1], instruction.shapes[0], labels, window)


def matmul_flops(computation: Computation | None, instruction: Instruction) -> float | None:
    """FLOPs of one matmul, or None where it is none, or its line does not show its operands or cannot be understood."""
    known = computation is not None and all(name in computation.named for name in instruction.operands)
    try:
        return flops_of(computation if known else None, instruction)
    except (ValueError, IndexError, KeyError):  # a dialect of its own: what is not understood has no number
        return None


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


@dataclass(frozen=True)
class Window:
    """How one spatial dim is walked."""

    size: int = 1
    stride: int = 1
    low: int = 0
    lhs_dilate: int = 1
    rhs_dilate: int = 1


def convolution_flops(lhs: Shape, rhs: Shape, out: Shape, labels: str, window: str) -> float:
    """Multiplications and additions of one convolution (feature and batch groups are in the shapes already)."""
    match = _LABELS.fullmatch(labels)
    if match is None:
        raise InputError(f"The convolution's dim labels {shorten(labels)} are in no form this reader knows.")
    sizes = {
        (side, label): size
        for side, shape in (("lhs", lhs), ("rhs", rhs), ("out", out))
        for label, size in zip(match[side], shape.dims, strict=True)
    }
    spatial = sorted(label for label in match["out"] if label.isdigit())
    walks = _windows(window, len(spatial))
    pairs = zip(spatial, walks, strict=True)
    positions = math.prod(valid_positions(sizes["lhs", each], sizes["out", each], walk) for each, walk in pairs)
    # `i` is what one output feature sums over: with feature groups it is already a group's share.
    return 2.0 * sizes["out", "b"] * sizes["out", "f"] * sizes["rhs", "i"] * positions


def _windows(text: str, count: int) -> list[Window]:
    """The walks of each spatial dim from `{size=3x3 pad=1_1x1_1 ...}`."""
    fields = dict(part.split("=") for part in text.strip("{} ").split() if "=" in part)
    columns = {name: value.split("x") for name, value in fields.items()}
    if any(len(values) != count for values in columns.values()) or (count and "size" not in columns):
        raise InputError(f"The convolution's window {shorten(text)} does not have {count} dims.")

    def walk(place: int) -> Window:
        numbers = {name: int(values[place].split("_")[0]) for name, values in columns.items()}
        return Window(**{own: numbers[name] for own, name in _WINDOW.items() if name in numbers})

    return [walk(place) for place in range(count)]


@lru_cache(maxsize=4096)
def valid_positions(size: int, outputs: int, walk: Window) -> int:
    """Pairs of an output and a place in the window that meet an element of the operand, not padding or a gap.

    >>> valid_positions(size=4, outputs=4, walk=Window(size=3, low=1))
    10
    """
    if walk.size * outputs > MOST_POSITIONS or min(walk.lhs_dilate, walk.rhs_dilate, walk.size) < 1:
        raise InputError(
            f"A convolution's window of {walk.size:,} over {outputs:,} outputs is more than this reader counts."
        )
    starts = np.arange(outputs, dtype=np.int64) * walk.stride - walk.low
    last = (size - 1) * walk.lhs_dilate
    found = 0
    for place in range(walk.size):
        at = starts + place * walk.rhs_dilate
        found += int(((at >= 0) & (at <= last) & (at % walk.lhs_dilate == 0)).sum())
    return found
