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

>>> from dragonscale.evidence.xla.layouts import read_shapes
>>> lhs, rhs, out = read_shapes("bf16[64,256] bf16[256,512] bf16[64,512]")
>>> convolution_flops(lhs, rhs, out, "bf_io->bf", "") == 2 * 64 * 256 * 512
True
>>> lhs, rhs, out = read_shapes("bf16[16,64,32] bf16[16,32,48] bf16[16,64,48]")
>>> window = "{size=16 stride=15 lhs_dilate=16}"
>>> convolution_flops(lhs, rhs, out, "0bf_0io->0bf", window) == 2 * 16 * 64 * 32 * 48
True

The sizes of a matmul: batch · [m, k] × [k, n], however it is written.

>>> from dragonscale.evidence.xla.hlo_text import read_instruction
>>> text = "%d = f32[16,128] dot(f32[256,16] %x, f32[128,256] %y), lhs_contracting_dims={0}, rhs_contracting_dims={1}"
>>> matmul_sizes(PlacedOp.alone(text))
(MatmulSizes(batch=1, m=16, n=128, k=256, dtype='f32', out_dtype='f32'),)

A fusion's line alone does not say how its operands are multiplied, but the shapes do where only one way fits.

>>> matvec = read_instruction("%fusion.1 = bf16[4096] fusion(bf16[4096,8192] %w, bf16[8192] %x), kind=kLoop")
>>> suspected_matmul(matvec, ["bf16[4096,8192]", "bf16[8192]"])
MatmulSizes(batch=1, m=4096, n=1, k=8192, dtype='bf16', out_dtype='bf16')
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from dragonscale.errors import InputError, shorten
from dragonscale.evidence.xla.call_graph import PlacedOp
from dragonscale.evidence.xla.hlo_text import Computation, Instruction
from dragonscale.evidence.xla.layouts import Shape, read_shapes
from dragonscale.evidence.xla.opcodes import BODIES

MOST_POSITIONS = 1 << 28
"""Places of a window times outputs along one dim, each looked at once."""
_LABELS = re.compile(r"(?P<lhs>[\w?]+)_(?P<rhs>[\w?]+)->(?P<out>[\w?]+)")


_WINDOW = {"size": "size", "stride": "stride", "low": "pad", "lhs_dilate": "lhs_dilate", "rhs_dilate": "rhs_dilate"}
"""Our names for the fields of a window, and HLO's."""
# where the forward convolution's operand, kernel and result are: operand 0, operand 1 or the result (-1)
_FORWARD = ("__cudnn$convForward", "__cudnn$convForwardGraph", "__cudnn$convBiasActivationForward")
_CUDNN_ROLES: dict[str, tuple[int, int, int]] = dict.fromkeys(_FORWARD, (0, 1, -1))
_CUDNN_ROLES |= {"__cudnn$convBackwardInput": (-1, 1, 0), "__cudnn$convBackwardFilter": (0, -1, 1)}


def may_multiply(instruction: Instruction) -> bool:
    """Whether an instruction is, or may be, a matmul."""
    return instruction.opcode in ("dot", "convolution", "custom-call")


def flops_of(op: PlacedOp) -> float | None:
    """FLOPs of one instruction that multiplies matrices, each time; None for every other instruction, and for one that
    does not show its operands. All that it uses must be there."""
    instruction = op.instruction
    if not may_multiply(instruction):
        return None
    missing = [name for name in instruction.operands if name not in op.where.named and not op.is_alone]
    if missing:
        raise InputError(f"The instruction {instruction.name} uses {missing[0]!r}, which its computation lacks.")
    operands = op.arrays
    if instruction.opcode == "custom-call":
        return library_flops(instruction, operands)
    if len(operands) < 2:
        return None
    if instruction.opcode == "dot":
        summed = math.prod(operands[0].dims[dim] for dim in instruction.numbers("lhs_contracting_dims"))
        return 2.0 * instruction.shapes[0].elements * summed
    labels, window = instruction.attribute("dim_labels"), instruction.attribute("window")
    return convolution_flops(operands[0], operands[1], instruction.shapes[0], labels, window)


def matmul_flops(op: PlacedOp) -> float | None:
    """FLOPs of one matmul, or None where it is none, or its line does not show its operands or cannot be understood."""
    known = all(name in op.where.named for name in op.instruction.operands)
    try:
        return flops_of(op if known else replace(op, where=Computation("", (), False)))
    except (ValueError, IndexError, KeyError):  # a dialect of its own: what is not understood has no number
        return None


def dot_dims(instruction: Instruction, side: str, what: str) -> list[int]:
    """The `batch` or `contracting` dims of a side of a dot, or of a library's, whose configuration has the same."""
    config = instruction.config.get("gemm_backend_config")
    numbers = config.get("dot_dimension_numbers") if isinstance(config, dict) else None
    if isinstance(numbers, dict):
        return [int(dim) for dim in numbers.get(f"{side}_{what}_dimensions", ())]
    return instruction.numbers(f"{side}_{what}_dims")


def library_flops(call: Instruction, operands: Sequence[Shape]) -> float | None:
    """FLOPs of a custom call, or None for one that is no matmul of a known library."""
    target = call.target
    try:
        if target.startswith("__cublas$"):
            dims: dict[str, Any] = call.config["gemm_backend_config"]["dot_dimension_numbers"]
            summed = math.prod(operands[0].dims[int(dim)] for dim in dims["lhs_contracting_dimensions"])
            return 2.0 * call.shapes[0].elements * summed
        if target in _CUDNN_ROLES:
            lhs, rhs, out = (call.shapes[0] if role < 0 else operands[role] for role in _CUDNN_ROLES[target])
            return convolution_flops(lhs, rhs, out, call.attribute("dim_labels"), call.attribute("window"))
        if target.startswith("__cudnn$fmha"):
            return _attention(call, operands, "Backward" in target)
        if target == "tpu_custom_call" and call.op_name == "online-softmax":
            return _softmax_product(call, operands)
    except InputError:
        raise
    except (KeyError, IndexError, TypeError, ValueError) as error:
        unread = f"The call {call.name} of {target} has a configuration this reader cannot read ({error!r})."
        raise InputError(unread) from None
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
    sides = {"lhs": lhs, "rhs": rhs, "out": out}
    sizes = {(s, label): size for s in sides for label, size in zip(match[s], sides[s].dims, strict=True)}
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
        window = f"A convolution's window of {walk.size:,} over {outputs:,} outputs"
        raise InputError(f"{window} is more than this reader counts.")
    starts = np.arange(outputs, dtype=np.int64) * walk.stride - walk.low
    last = (size - 1) * walk.lhs_dilate
    found = 0
    for place in range(walk.size):
        at = starts + place * walk.rhs_dilate
        found += int(((at >= 0) & (at <= last) & (at % walk.lhs_dilate == 0)).sum())
    return found


_DEEPEST = 8


class MatmulSizes(msgspec.Struct, frozen=True):
    """`batch` matmuls of [m, k] and [k, n]; the types are those of the first operand and of the result."""

    batch: int
    m: int
    n: int
    k: int
    dtype: str
    out_dtype: str

    @property
    def flops(self) -> float:
        """A multiplication and an addition for each term."""
        return 2.0 * self.batch * self.m * self.n * self.k


def matmul_sizes(op: PlacedOp, depth: int = 0) -> tuple[MatmulSizes, ...]:
    """The matmuls of an instruction: itself, or those in its fusion."""
    if may_multiply(op.instruction):
        sizes = _of_one(op)
        return (sizes,) if sizes else ()
    bodies = op.inside if op.instruction.opcode in BODIES and depth < _DEEPEST else ()
    return tuple(sizes for each in bodies for sizes in matmul_sizes(each, depth + 1))


def _of_one(op: PlacedOp) -> MatmulSizes | None:
    instruction, operands, flops = op.instruction, op.arrays, matmul_flops(op)
    if not flops or not operands or not instruction.shapes:
        return None
    lhs, out = operands[0], instruction.shapes[0]
    if instruction.opcode == "convolution":
        batch, m, n = _convolved(out, instruction.attribute("dim_labels").partition("->")[2])
    else:
        batched, summed = (dot_dims(instruction, "lhs", what) for what in ("batch", "contracting"))
        batch = math.prod(lhs.dims[dim] for dim in batched if dim < len(lhs.dims))
        m = math.prod(size for dim, size in enumerate(lhs.dims) if dim not in (*batched, *summed))
        n = out.elements // (batch * m) if batch * m else 0
    k = round(flops / (2 * batch * m * n)) if batch * m * n else 0
    sizes = MatmulSizes(batch, m, n, k, lhs.dtype, out.dtype)
    return sizes if sizes.flops == flops else None  # a convolution with borders, or attention: more than one matmul


def _convolved(out: Shape, labels: str) -> tuple[int, int, int]:
    """A convolution's batch dims are its spatial ones (see `convolution`), rows its batch, columns its features."""
    sizes = dict(zip(labels, out.dims, strict=False))
    spatial = math.prod(size for label, size in sizes.items() if label not in "bf")
    return spatial, sizes.get("b", 1), sizes.get("f", 1)


def suspected_matmul(instruction: Instruction, types: Sequence[str]) -> MatmulSizes | None:
    """The matmul of the two largest operands that gives the result's dims, or None where none or several would.

    Dims are matched by size: one that both operands have and the result lacks is summed over, one that all three have
    is a batch dim.
    """
    arrays = sorted((shape for text in types for shape in read_shapes(text)), key=lambda one: -one.elements)
    results = instruction.shapes[:1]
    if len(arrays) < 2 or not results:
        return None
    left, right, out = (_sized(shape) for shape in (arrays[0], arrays[1], results[0]))
    found = {sizes for batch in _parts_of(left & right & out) if (sizes := _matched(left, right, out, batch))}
    return MatmulSizes(*found.pop(), arrays[0].dtype, results[0].dtype) if len(found) == 1 else None


def _sized(shape: Shape) -> Counter[int]:
    return Counter(size for size in shape.dims if size > 1)


def _parts_of(sizes: Counter[int]) -> Iterator[Counter[int]]:
    """Every choice of dims of these sizes, none of them too."""
    names = sorted(sizes)[:_DEEPEST]
    for counts in itertools.product(*(range(min(sizes[name], _DEEPEST) + 1) for name in names)):
        yield Counter({name: count for name, count in zip(names, counts, strict=True) if count})


def _matched(
    left: Counter[int], right: Counter[int], out: Counter[int], batch: Counter[int]
) -> tuple[int, int, int, int] | None:
    """Batch, rows, columns and what is summed over, where the result has just the dims that are left."""
    summed = (left - batch) & (right - batch) - (out - batch)
    rows, columns = left - batch - summed, right - batch - summed
    if not summed or out != batch + rows + columns:
        return None
    b, m, n, k = (math.prod(each.elements()) for each in (batch, rows, columns, summed))
    return b, m, n, k
