"""FLOPs and bytes of a kernel from the shapes of the operator that launched it; nothing where they are not recorded.

>>> mm = OpText("nvjet_tst_128x128", caller="aten::mm", shapes=("bf16[4096,2048]", "bf16[2048,512]"))
>>> work_by_shapes(mm, "matmul")[0] == 2 * 4096 * 2048 * 512
True
>>> heads = OpText(
...     "flash_fwd",
...     caller="aten::_flash_attention_forward",
...     shapes=("bf16[2,128,8,64]", "bf16[2,256,4,64]", "bf16[2,256,4,64]"),
... )
>>> work_by_shapes(heads, "attention")[0] == 4 * 2 * 8 * 128 * 256 * 64
True
"""

import math

from dragonscale.errors import InputError
from dragonscale.evidence.profiles.recording import OpText
from dragonscale.evidence.xla.shapes import Shape, read_shapes

_HEADS_FIRST = ("scaled_dot_product", "cudnn_attention", "efficient_attention_forward")


def work_by_shapes(op: OpText, kind: str) -> tuple[float | None, float | None]:
    """FLOPs and bytes; FLOPs of attention are those of all scores, masked or not, as XLA counts them."""
    if not op.shapes or kind not in ("matmul", "attention") or not op.caller:
        return None, None
    try:
        shapes = [shape for text in op.shapes for shape in read_shapes(text)]
    except InputError:
        return None, None
    inner = next(
        (one for one in reversed(op.caller.split("/")) if one.startswith("aten::") or "attn" in one.lower()), ""
    )
    name = inner.removeprefix("aten::")
    if kind == "attention":
        return _attention(name, shapes), None
    return _matmul(name, [shape for shape in shapes if shape.dims])


def _matmul(name: str, shapes: list[Shape]) -> tuple[float | None, float | None]:
    """`mm`, `bmm`, `linear`, and those that add to a first operand."""
    if name in ("addmm", "baddbmm", "addmv"):
        shapes = shapes[1:]
    if (
        name not in ("mm", "bmm", "addmm", "baddbmm", "linear", "matmul", "_scaled_mm", "_int_mm", "mv", "addmv")
        or len(shapes) < 2
    ):
        return None, None
    left, right = shapes[0], shapes[1]
    summed = left.dims[-1]
    if name == "linear":
        out = (*left.dims[:-1], right.dims[0])
        fits = right.dims[-1] == summed
    else:
        out = (*left.dims[:-1], *right.dims[-1:]) if len(right.dims) > 1 else left.dims[:-1]
        fits = right.dims[max(0, len(right.dims) - 2)] == summed
    if not fits:
        return None, None
    moved = left.bytes + right.bytes + Shape("bf16" if left.dtype.startswith("f8") else left.dtype, out).bytes
    return 2.0 * math.prod(out) * summed, moved


def _attention(name: str, shapes: list[Shape]) -> float | None:
    """Two matmuls over all scores forward, five backward. PyTorch's own operators have heads before tokens, FlashAttention's after them."""
    backward = "backward" in name.lower()
    four = [shape.dims for shape in shapes if len(shape.dims) == 4]
    four = four[1:] if backward else four
    if len(four) < 3:
        return None
    query, key, value = four[:3]
    first = any(word in name for word in _HEADS_FIRST)
    heads, queries, keys = (query[1], query[2], key[2]) if first else (query[2], query[1], key[1])
    depth = 3 * query[3] + 2 * value[3] if backward else query[3] + value[3]
    return 2.0 * query[0] * heads * queries * keys * depth
