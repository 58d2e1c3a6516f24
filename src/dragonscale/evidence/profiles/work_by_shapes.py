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
>>> attention_dims(heads)[:5]
(2, 8, 4, 128, 64)
"""

import math
from typing import NamedTuple

from dragonscale.errors import InputError
from dragonscale.evidence.profiles.names import table
from dragonscale.evidence.profiles.recording import OpText
from dragonscale.evidence.xla.layouts import Shape, read_shapes

_HEADS_FIRST = ("scaled_dot_product", "cudnn_attention", "efficient_attention_forward")
_MATMULS = ("mm", "bmm", "addmm", "baddbmm", "linear", "matmul", "_scaled_mm", "_int_mm", "mv", "addmv")
_ADDING = ("addmm", "baddbmm", "addmv")


def work_by_shapes(op: OpText, kind: str) -> tuple[float | None, float | None]:
    """FLOPs and bytes; FLOPs of attention are those of all scores, masked or not, as XLA counts them."""
    if kind == "attention":
        return _attention(op), None
    if kind in ("elementwise", "copy", "reduction"):
        return None, moved_by_shapes(op, kind)
    found = matmul_dims(op) if kind == "matmul" else None
    if found is None:
        return None, None
    batch, m, n, k = found
    left = _operands(op)[0]
    out = Shape("bf16" if left.dtype.startswith("f8") else left.dtype, (batch, m, n))
    return 2.0 * math.prod(found), batch * (m * k + k * n) * left.bytes / max(1, math.prod(left.dims)) + out.bytes


def moved_by_shapes(op: OpText, kind: str) -> float | None:
    """Bytes that an operator without matmuls reads and writes: its operands, and a result as large as the largest of
    them. Nothing of one that reads its operands in part (lookups, losses of labels), nor of lists, whose dtypes PyTorch
    does not write.

    >>> moved_by_shapes(OpText("k", caller="aten::mul", shapes=("bf16[8,128]", "bf16[128]")), "elementwise") / 2
    2176.0
    >>> moved_by_shapes(OpText("k", caller="aten::to/aten::copy_", shapes=("bf16[8,128]", "f32[8,128]")), "copy")
    6144.0
    """
    inner = op.caller.rsplit("/", 1)[-1].split(",", 1)[0]
    name, shapes = inner.removeprefix("aten::"), _operands(op)
    in_part = any(word in name for word in table("torch.toml")["in_part"])
    if not shapes or in_part or not inner.startswith(("aten::", "triton_")):
        return None
    read = float(sum(shape.bytes for shape in shapes))
    largest = max(shapes, key=lambda shape: shape.bytes)
    if inner.startswith("triton_"):
        # a kernel's results are among its arguments; a reduction may have its only one in place, and nothing says so
        return None if kind == "reduction" else read
    if name in ("copy_", "fill_", "zero_"):
        return read
    if kind == "reduction" and not any(word in name for word in ("softmax", "norm")):
        return read if name in ("sum", "mean", "amax", "amin", "max", "min", "argmax") else None
    return read + float(shapes[0].bytes if name.endswith("_") else largest.bytes)


def matmul_dims(op: OpText) -> tuple[int, int, int, int] | None:
    """`batch`, `m`, `n` and `k` of an operator that multiplies two arrays; None where its shapes are not recorded."""
    name, shapes = _operator(op), _operands(op)
    if name not in _MATMULS or len(shapes) < 2:
        return None
    left, right = shapes[0].dims, shapes[1].dims
    k = left[-1]
    if name == "linear":
        fits, n, batch, m = right[-1] == k, right[0], 1, math.prod(left[:-1])
    elif len(right) == 1:
        fits, n, batch, m = right[0] == k, 1, 1, math.prod(left[:-1])
    else:
        batch = math.prod(right[:-2])
        fits, n, m = right[-2] == k, right[-1], math.prod(left[:-1]) // max(1, batch)
    return (batch, m, n, k) if fits else None


class AttentionDims(NamedTuple):
    """Sequences, heads, heads of keys and values, tokens of a sequence, size of a head; keys that each query may see,
    of a mask nothing said; size of a value's head."""

    sequences: int
    heads: int
    kv_heads: int
    tokens: int
    size: int
    keys: int
    value_size: int


def attention_dims(op: OpText, dims: "list[tuple[int, ...]] | None" = None) -> AttentionDims | None:
    """The sizes of an attention op; `dims` are its operands' where `op` has no shapes.

    PyTorch's own operators have heads before tokens, FlashAttention's and JAX's after them."""
    name = _operator(op)
    four = [each for each in (dims or [shape.dims for shape in _operands(op)]) if len(each) == 4]
    four = four[1:] if "backward" in name.lower() and not dims else four
    if len(four) < 3:
        return None
    query, key, value = four[:3]
    heads, tokens = (1, 2) if any(word in name for word in _HEADS_FIRST) else (2, 1)
    return AttentionDims(query[0], query[heads], key[heads], query[tokens], query[3], key[tokens], value[3])


def _operator(op: OpText) -> str:
    """The innermost operator that says what is computed, without its namespace."""
    chain = reversed(op.caller.split("/"))
    inner = next((name for name in chain if name.startswith("aten::") or "attn" in name.lower()), "")
    return inner.split(",", 1)[0].removeprefix("aten::")


def _operands(op: OpText) -> list[Shape]:
    """The arrays that an operator reads, without the one that a matmul adds to."""
    try:
        shapes = [shape for text in op.shapes for shape in read_shapes(text) if shape.dims]
    except InputError:
        return []
    return shapes[1:] if _operator(op) in _ADDING else shapes


def _attention(op: OpText) -> float | None:
    """Two matmuls over all scores forward, five backward."""
    dims = attention_dims(op)
    if dims is None:
        return None
    backward = "backward" in _operator(op).lower()
    depth = 3 * dims.size + 2 * dims.value_size if backward else dims.size + dims.value_size
    return 2.0 * dims.sequences * dims.heads * dims.tokens * dims.keys * depth
