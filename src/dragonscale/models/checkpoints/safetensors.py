"""Headers of `.safetensors` files: a length of eight bytes, then JSON with every tensor's dtype, shape
and place. Nothing behind the header is read.
"""

import json
import math
import re
import stat
from pathlib import Path

from dragonscale.errors import InputError, shorten
from dragonscale.models.checkpoints.stored import StoredTensor

MOST_HEADER = 100_000_000
"""The format's own limit on a header's bytes (safetensors' README)."""

BITS = {
    "F64": 64,
    "F32": 32,
    "F16": 16,
    "BF16": 16,
    "I64": 64,
    "U64": 64,
    "I32": 32,
    "U32": 32,
    "I16": 16,
    "U16": 16,
    "I8": 8,
    "U8": 8,
    "BOOL": 8,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F4": 4,
    "C64": 64,
}
DTYPES = {
    "F32": "fp32",
    "F16": "fp16",
    "BF16": "bf16",
    "F8_E4M3": "fp8",
    "F8_E5M2": "fp8",
    "F8_E4M3FNUZ": "fp8",
    "I8": "int8",
    "F4": "fp4",
}
"""What a plain tensor of a format is multiplied as; packed ones (U8, I32) are told by the config."""

PLAIN = frozenset(("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"))
"""Formats in which an element is a parameter, or a scale by its name."""

_SCALES = re.compile(r"scales?(?:_inv)?(?:_\d+)?$|_scale_\w+$|inv_freq$|masked_bias$|attn\.bias$|zeros$|g_idx$")
_PARTS = (
    ("experts", re.compile(r"\.experts?\.|block_sparse_moe\.experts|_exps?\.|experts_")),
    ("shared", re.compile(r"shared_(?:expert|mlp)")),
    ("router", re.compile(r"(?:mlp|moe|block_sparse_moe|feed_forward)\.(?:gate|router)\b|router")),
    ("linear", re.compile(r"linear_attn|lightning")),
    ("mamba", re.compile(r"mamba|mixer\.(?:in_proj|out_proj|conv1d|x_proj|dt_proj)")),
    ("attention", re.compile(r"attn|attention")),
    ("mlp", re.compile(r"mlp|feed_forward|ffn")),
)


def part_of(name: str) -> str:
    """The part of the model that a tensor belongs to, by its name; empty where that does not matter.

    >>> part_of("model.layers.3.mlp.experts.7.up_proj.weight"), part_of("model.layers.0.self_attn.q_proj.weight")
    ('experts', 'attention')
    """
    if "norm" in name or is_scale(name) or re.search(r"visual|vision|audio|mtp", name):
        return ""
    return next((part for part, pattern in _PARTS if pattern.search(name)), "")


def is_scale(name: str) -> bool:
    """Whether a tensor is a scale of quantised weights or a fixed table, and no parameter."""
    return bool(_SCALES.search(name))


def read_safetensors(path: Path) -> list[StoredTensor]:
    """The tensors of a file, or one sentence about why not."""
    shown = f"The safetensors file {shorten(str(path))}"
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise InputError(f"{shown} is not a plain file.")
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= min(MOST_HEADER, max(found.st_size - 8, 0)):
                raise InputError(
                    f"{shown} is cut short, or is not such a file: its header would have {length:,} bytes."
                )
            header = json.loads(file.read(length))
    except OSError as error:
        raise InputError(f"{shown} cannot be read: {error.strerror}.") from None
    except InputError:
        raise
    except (ValueError, RecursionError):
        raise InputError(f"{shown} has a header that is not JSON.") from None
    if not isinstance(header, dict):
        raise InputError(f"{shown} has a header that is no table of tensors.")
    return [_tensor(name, entry, shown) for name, entry in header.items() if name != "__metadata__"]


def _tensor(name: str, entry: object, shown: str) -> StoredTensor:
    if isinstance(entry, dict):
        kind, shape, place = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
        whole = all(_counts(list_) for list_ in (shape, place))
        if isinstance(kind, str) and whole and isinstance(shape, list) and isinstance(place, list) and len(place) == 2:
            elements, held = math.prod(shape), place[1] - place[0]
            if held >= 0 and (kind not in BITS or held == -(-elements * BITS[kind] // 8)):
                return StoredTensor(name, kind[:20], elements, held)
    raise InputError(f"{shown} says of the tensor {shorten(name)} what cannot be.")


def _counts(values: object) -> bool:
    return isinstance(values, list) and len(values) <= 16 and all(type(v) is int and 0 <= v < 2**50 for v in values)
