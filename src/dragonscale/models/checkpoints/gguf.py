"""Headers of `.gguf` files (llama.cpp): keys and values, then every tensor's name, shape and type.

The whole format, little-endian: `GGUF`, a version, counts of tensors and keys; a key is a string, a
type and a value; strings and arrays carry their lengths. Nothing behind the header is read, and no
length in it is believed beyond the file's own size.
"""

import math
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from dragonscale.errors import InputError, shorten
from dragonscale.models.checkpoints.stored import StoredTensor

MOST = 10_000_000
"""Entries of a header, its arrays' together: the largest vocabularies have a quarter of a million."""

TYPES: dict[int, tuple[str, int, int, str]] = {
    0: ("F32", 1, 4, "fp32"),
    1: ("F16", 1, 2, "fp16"),
    2: ("Q4_0", 32, 18, "int4"),
    3: ("Q4_1", 32, 20, "int4"),
    6: ("Q5_0", 32, 22, "int8"),
    7: ("Q5_1", 32, 24, "int8"),
    8: ("Q8_0", 32, 34, "int8"),
    9: ("Q8_1", 32, 36, "int8"),
    10: ("Q2_K", 256, 84, "int4"),
    11: ("Q3_K", 256, 110, "int4"),
    12: ("Q4_K", 256, 144, "int4"),
    13: ("Q5_K", 256, 176, "int8"),
    14: ("Q6_K", 256, 210, "int8"),
    15: ("Q8_K", 256, 292, "int8"),
    16: ("IQ2_XXS", 256, 66, "int4"),
    17: ("IQ2_XS", 256, 74, "int4"),
    18: ("IQ3_XXS", 256, 98, "int4"),
    19: ("IQ1_S", 256, 50, "int4"),
    20: ("IQ4_NL", 32, 18, "int4"),
    21: ("IQ3_S", 256, 110, "int4"),
    22: ("IQ2_S", 256, 82, "int4"),
    23: ("IQ4_XS", 256, 136, "int4"),
    24: ("I8", 1, 1, "int8"),
    25: ("I16", 1, 2, ""),
    26: ("I32", 1, 4, ""),
    27: ("I64", 1, 8, ""),
    28: ("F64", 1, 8, ""),
    29: ("IQ1_M", 256, 56, "int4"),
    30: ("BF16", 1, 2, "bf16"),
    34: ("TQ1_0", 256, 54, "int4"),
    35: ("TQ2_0", 256, 66, "int4"),
    39: ("MXFP4", 32, 17, "mxfp4"),
    40: ("NVFP4", 64, 36, "nvfp4"),
    41: ("Q1_0", 128, 18, "int4"),
}
"""A type's number: its name, elements and bytes of a block (ggml's gguf-py/gguf/constants.py), and the dtype that comes
nearest without being narrower; below four bits that is int4."""

DTYPES = {name: dtype for name, _, _, dtype in TYPES.values() if dtype}
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_PARTS = (
    ("_exps", "experts"),
    ("_shexp", "shared"),
    ("ffn_gate_inp", "router"),
    ("attn_", "attention"),
    ("ssm_", "mamba"),
    ("ffn_", "mlp"),
)


@dataclass(frozen=True)
class Gguf:
    """A header: keys with their values (arrays as lists; of strings, only how many), and the tensors
    with their shapes."""

    keys: dict[str, Any]
    tensors: tuple[StoredTensor, ...]
    shapes: dict[str, tuple[int, ...]]


def part_of(name: str) -> str:
    """The part of the model that a tensor belongs to.

    >>> part_of("blk.0.ffn_down_exps.weight"), part_of("blk.0.attn_q.weight"), part_of("blk.0.attn_norm.weight")
    ('experts', 'attention', '')
    """
    if "norm" in name:
        return ""
    return next((part for word, part in _PARTS if word in name), "")


class _Reader:
    """The bytes of a header in order, none beyond the file's end."""

    def __init__(self, file: BinaryIO, size: int, shown: str) -> None:
        self.file, self.left, self.shown, self.entries = file, size, shown, MOST

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise InputError(f"{self.shown} is cut short, or is not such a file: its header goes beyond its end.")
        self.left -= count
        return self.file.read(count)

    def number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self.take(struct.calcsize(code)))[0]

    def string(self) -> str:
        return self.take(self.number("Q")).decode("utf-8", "replace")

    def spend(self, count: int) -> int:
        """Entries to come, of those that a header may have."""
        self.entries -= count
        if self.entries < 0:
            raise InputError(f"{self.shown} has a header of more than {MOST:,} entries.")
        return count

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY or depth > 2:
            raise InputError(f"{self.shown} has a value of the unknown type {kind}.")
        inner, count = self.number("I"), self.spend(self.number("Q"))
        if inner in _SCALARS:
            code = _SCALARS[inner]
            return list(struct.unpack(f"<{count}{code}", self.take(count * struct.calcsize(code))))
        if inner == _STRING:
            for _ in range(count):
                self.take(self.number("Q"))
            return count
        return [self.value(inner, depth + 1) for _ in range(count)]


def read_gguf(path: Path) -> Gguf:
    """A file's header, or one sentence about why not."""
    shown = f"The GGUF file {shorten(str(path))}"
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise InputError(f"{shown} is not a plain file.")
        with path.open("rb") as file:
            return _header(_Reader(file, found.st_size, shown))
    except OSError as error:
        raise InputError(f"{shown} cannot be read: {error.strerror}.") from None


def _header(reader: _Reader) -> Gguf:
    if reader.take(4) != b"GGUF":
        raise InputError(f"{reader.shown} is not one: it does not begin with GGUF.")
    version = reader.number("I")
    if version not in (2, 3):
        raise InputError(f"{reader.shown} has version {version}; 2 and 3 are understood (little-endian).")
    count, keys = reader.spend(reader.number("Q")), reader.spend(reader.number("Q"))
    values = {reader.string(): reader.value(reader.number("I")) for _ in range(keys)}
    tensors: list[StoredTensor] = []
    shapes: dict[str, tuple[int, ...]] = {}
    for _ in range(count):
        name, rank = reader.string(), reader.number("I")
        if rank > 8:
            raise InputError(f"{reader.shown} has a tensor of {rank} dims.")
        shape = tuple(reader.number("Q") for _ in range(rank))
        kind, _place = reader.number("I"), reader.number("Q")
        if kind not in TYPES:
            raise InputError(f"{reader.shown} has a tensor of type {kind}, which is not known.")
        title, block, held, _ = TYPES[kind]
        elements = math.prod(shape)
        if elements >= 2**50:
            raise InputError(f"{reader.shown} has a tensor of {elements:,} elements.")
        tensors.append(StoredTensor(name, title, elements, -(-elements // block) * held))
        shapes[name] = shape
    return Gguf(values, tuple(tensors), shapes)
