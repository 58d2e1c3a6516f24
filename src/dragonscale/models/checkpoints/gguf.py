"""Headers of `.gguf` files (llama.cpp): keys and values, then every tensor's name, shape and type.

The whole format, little-endian: `GGUF`, a version, counts of tensors and keys; a key is a string, a
type and a value; strings and arrays carry their lengths. Nothing behind the header is read, and no
length in it is believed beyond the file's own size.

From a header to the fields of a `config.json`, which the families' readers take: `gguf.toml` says which model type an
architecture is and which key is which field. What has no key is told by the tensors: a vocabulary by its embedding, a
tied head by having none, biases by being there.
"""

import math
import struct
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, BinaryIO

from dragonscale.errors import InputError, shorten, unknown
from dragonscale.models.checkpoints.stored import StoredTensor, opened
from dragonscale.tables import beside

MOST = 10_000_000
"""Entries of a header, its arrays' together: the largest vocabularies have a quarter of a million."""

_file = cache(partial(beside, __file__, "gguf.toml"))


@cache
def types() -> dict[int, tuple[str, int, int, str]]:
    """A type's number: its name, elements and bytes of a block, and the dtype that comes nearest."""
    return {number: tuple(row) for number, *row in _file()["types"]}


@cache
def dtypes() -> dict[str, str]:
    """The dtype that comes nearest to a type, by the type's name."""
    return {name: dtype for name, _, _, dtype in types().values() if dtype}


_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


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
    return next((part for word, part in _file()["parts"].items() if word in name), "")


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
            # a vocabulary's words are passed over: how many there are is all that is asked
            for _ in range(count):
                self.take(self.number("Q"))
            return count
        return [self.value(inner, depth + 1) for _ in range(count)]


def read_gguf(path: Path) -> Gguf:
    """A file's header, or one sentence about why not."""
    shown = f"The GGUF file {shorten(str(path))}"
    with opened(path, shown) as (file, size):
        return _header(_Reader(file, size, shown))


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
        # name, rank, shape (fastest dim first), type, offset in the data
        name, rank = reader.string(), reader.number("I")
        if rank > 8:
            raise InputError(f"{reader.shown} has a tensor of {rank} dims.")
        shape = tuple(reader.number("Q") for _ in range(rank))
        kind, _offset = reader.number("I"), reader.number("Q")
        if kind not in types():
            raise InputError(f"{reader.shown} has a tensor of type {kind}, which is not known.")
        title, block, block_bytes, _ = types()[kind]
        elements = math.prod(shape)
        if elements >= 2**50:
            raise InputError(f"{reader.shown} has a tensor of {elements:,} elements.")
        # whole blocks, each with its scales
        tensors.append(StoredTensor(name, title, elements, -(-elements // block) * block_bytes))
        shapes[name] = shape
    return Gguf(values, tuple(tensors), shapes)


def config_of(header: Gguf, family: str = "") -> dict[str, Any]:
    """The config that a header amounts to. With `family`, an architecture that is not known is read by
    the common keys."""
    name = header.keys.get("general.architecture")
    if not isinstance(name, str):
        raise InputError("The GGUF file does not say its general.architecture.")
    architectures = _file()["architectures"]
    if name not in architectures and not family:
        raise unknown("GGUF architecture", name, architectures, "`--as FAMILY` reads it as a model type.")
    row = architectures.get(name, {"type": family})
    names = _file()["keys"] | row.get("fields", {})
    config: dict[str, Any] = {}
    for key, field in names.items():
        value = _value(header, f"{name}.{key}") if field else None
        if value is not None:
            config[field] = value
    # the tensors know better than the row, and the row better than the keys
    config |= row.get("fixed", {}) | _told_by_tensors(header)
    for field in row.get("drop", ()):
        config.pop(field, None)
    config["model_type"] = _model_type(row, header)
    # a dense model may have keys that say that it uses 0 of 0 experts
    if not config.get("num_experts") and not config.get("num_local_experts"):
        config = {field: value for field, value in config.items() if "experts" not in field or "routed" in field}
    # llama.cpp counts multi-token modules among the blocks
    config["num_hidden_layers"] = config.get("num_hidden_layers", 0) - config.get("num_nextn_predict_layers", 0)
    if row.get("latent"):
        return _latent(config, header, name)
    return config


def _model_type(row: dict[str, Any], header: Gguf) -> str:
    has = header.shapes
    if "dense_type" in row and not any("_exps" in tensor for tensor in has):
        return row["dense_type"]
    if "unbiased_type" in row and not any("exp_probs_b" in tensor for tensor in has):
        return row["unbiased_type"]
    return row["type"]


def _value(header: Gguf, key: str) -> Any:
    """A value; one that is repeated for every layer counts once."""
    value = header.keys.get(key)
    if not isinstance(value, list):
        return value
    if not value or value.count(value[0]) != len(value):
        raise InputError(f"The GGUF file has a {key} that differs from layer to layer, which is not understood.")
    return value[0]


def _told_by_tensors(header: Gguf) -> dict[str, Any]:
    shapes = header.shapes
    config: dict[str, Any] = {"tie_word_embeddings": "output.weight" not in shapes}
    if len(shapes.get("token_embd.weight", ())) == 2:  # the fastest dim first
        config["vocab_size"] = shapes["token_embd.weight"][1]
    biases = {"attention_bias": "attn_q.bias", "attention_out_bias": "attn_output.bias", "mlp_bias": "ffn_up.bias"}
    for field, name in biases.items():
        if f"blk.0.{name}" in shapes:  # what the first layer has, all have
            config[field] = True
    return config


def _latent(config: dict[str, Any], header: Gguf, name: str) -> dict[str, Any]:
    """The sizes of heads of latent attention."""
    # a key's head is nope + rope wide; some files have that under the name of plain attention
    whole = _value(header, f"{name}.attention.key_length_mla") or config.pop("head_dim", 0)
    config["v_head_dim"] = _value(header, f"{name}.attention.value_length_mla") or config.get("v_head_dim")
    config["qk_nope_head_dim"] = whole - config.get("qk_rope_head_dim", 0)
    config.pop("head_dim", None)
    config.setdefault("q_lora_rank", None)
    return config
