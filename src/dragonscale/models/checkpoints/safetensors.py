"""Headers of `.safetensors` files: a length of eight bytes, then JSON with every tensor's dtype, shape
and place. Nothing behind the header is read.
"""

import json
import math
import re
from pathlib import Path
from typing import TypeGuard

from dragonscale.errors import InputError, shorten
from dragonscale.models.checkpoints.stored import StoredTensor, opened
from dragonscale.tables import beside

MOST_HEADER = 100_000_000
"""The format's own limit on a header's bytes (safetensors' README)."""

_FILE = beside(__file__, "safetensors.toml")
BITS, DTYPES = _FILE["bits"], _FILE["dtypes"]
PLAIN = frozenset(_FILE["plain"])
_SCALES = re.compile(_FILE["scales"])
_PARTS = [(part, re.compile(names)) for part, names in _FILE["parts"].items()]


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
    with opened(path, shown) as (file, size):
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(MOST_HEADER, max(size - 8, 0)):
            raise InputError(f"{shown} is cut short, or is not such a file: its header would have {length:,} bytes.")
        text = file.read(length)
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(f"{shown} has a header that is not JSON.") from None
    if not isinstance(header, dict):
        raise InputError(f"{shown} has a header that is no table of tensors.")
    return [_tensor(name, entry, shown) for name, entry in header.items() if name != "__metadata__"]


def _tensor(name: str, entry: object, shown: str) -> StoredTensor:
    if isinstance(entry, dict):
        kind, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
        if isinstance(kind, str) and _are_counts(shape) and _are_counts(offsets) and len(offsets) == 2:
            elements, size = math.prod(shape), offsets[1] - offsets[0]
            # the size must follow from shape and dtype where the bits of a dtype are known
            if size >= 0 and (kind not in BITS or size == -(-elements * BITS[kind] // 8)):
                return StoredTensor(name, kind[:20], elements, size)
    raise InputError(f"{shown} says of the tensor {shorten(name)} what cannot be.")


def _are_counts(values: object) -> TypeGuard[list[int]]:
    """Whether a value is a list of whole numbers that can be sizes."""
    # at most 16 dims, and no product that would take long to compute
    return isinstance(values, list) and len(values) <= 16 and all(type(v) is int and 0 <= v < 2**50 for v in values)
