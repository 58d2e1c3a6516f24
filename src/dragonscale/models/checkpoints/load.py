"""Models from checkpoint files: the architecture from a GGUF's header or from the `config.json` beside
safetensors files, the formats and bytes from the headers of the files themselves.

The files' own count is a witness: where it differs from that of the reading, that is noted.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from dragonscale.errors import InputError, shorten
from dragonscale.models.assumed import Assumed
from dragonscale.models.checkpoints import gguf, safetensors
from dragonscale.models.checkpoints.stored import StoredTensor, bytes_by_format, dtype_by_part
from dragonscale.models.huggingface.load import load_config, read_config
from dragonscale.models.names import safe_name
from dragonscale.models.transformer import Transformer, count_parameters
from dragonscale.tables import read_regular

_SHARD = re.compile(r"^(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})$")
MOST_FILES = 2000
MOST_INDEX = 50_000_000
"""Bytes of an index of shards; Kimi K2's, among the longest, has some 15 MB."""


def load_checkpoint(path: Path, assume: Assumed | None = None, family: str = "", name: str = "") -> Transformer:
    """The model in a `.gguf` or a `.safetensors` file, its other shards included."""
    if path.suffix.lower() == ".gguf":
        return _from_gguf(path, assume, family, name)
    _regular(path)
    folder = path.parent
    if not (folder / "config.json").exists():
        raise InputError(
            f"{shorten(str(path))} holds weights; what model they are stands in a config.json, and there is none "
            "beside it."
        )
    files = _shards(path)
    if path.suffix == ".json":  # an index of shards
        files = sorted(folder.glob("*.safetensors"))
    return _with_files(folder, files, assume, family, name)


def load_folder(folder: Path, assume: Assumed | None = None, family: str = "", name: str = "") -> Transformer:
    """The model of a folder: its `config.json` with whatever safetensors are beside it, or its GGUF file."""
    if not (folder / "config.json").exists():
        ggufs = sorted(folder.glob("*.gguf"))
        if ggufs:
            return _from_gguf(ggufs[0], assume, family, name)
    return _with_files(folder, sorted(folder.glob("*.safetensors")), assume, family, name)


def _with_files(folder: Path, files: list[Path], assume: Assumed | None, family: str, name: str) -> Transformer:
    model = load_config(folder, name, assume, family)
    files = list(filter(Path.exists, files))[:MOST_FILES]  # links of a cache may lead nowhere
    if not files:
        return model
    tensors: list[StoredTensor] = []
    for file in files:
        tensors += safetensors.read_safetensors(file)
    notes = _missing(folder, files)
    plain = [tensor for tensor in tensors if not safetensors.is_scale(tensor.name)]
    # packed formats (eight 4-bit weights in an I32) have another number of elements than parameters
    if not notes and all(tensor.format in safetensors.PLAIN for tensor in plain):
        notes = _differs(model, plain)
    # what is not quantised has the format of most of the wide bytes
    wide = bytes_by_format(tensor for tensor in plain if tensor.format in ("F32", "F16", "BF16"))
    dtype = model.dtype
    if wide:
        dtype = safetensors.DTYPES[next(iter(wide))]
    stored = model.weight_dtypes
    if not stored:  # a config that says nothing of formats: the files do
        stored = dtype_by_part(model, plain, safetensors.part_of, safetensors.DTYPES)
    stored = {part: kind for part, kind in stored.items() if kind != dtype}
    return replace(
        model, dtype=dtype, weight_dtypes=stored, stored=bytes_by_format(tensors), notes=(*model.notes, *notes)
    )


def folder_fields(folder: Path) -> dict[str, Any]:
    """The fields of a folder's config, or of its GGUF file's header."""
    if not (folder / "config.json").exists():
        ggufs = sorted(folder.glob("*.gguf"))
        if ggufs:
            return gguf_fields(ggufs[0])
    return read_config(folder)


def gguf_fields(path: Path, family: str = "") -> dict[str, Any]:
    """The fields of a config that a GGUF file's header amounts to."""
    return gguf.config_of(_whole(_shards(path)), family)


def _whole(files: list[Path]) -> gguf.Gguf:
    """The headers of all shards as one."""
    headers = list(map(gguf.read_gguf, files))
    tensors: list[StoredTensor] = []
    shapes: dict[str, tuple[int, ...]] = {}
    for header in headers:
        tensors += header.tensors
        shapes |= header.shapes
    return gguf.Gguf(headers[0].keys, tuple(tensors), shapes)  # the first shard has all keys


def _from_gguf(path: Path, assume: Assumed | None, family: str, name: str) -> Transformer:
    files = _shards(path)
    whole = _whole(files)
    model = load_config(gguf.config_of(whole, family), name or safe_name(path.stem), assume, family)
    # rope_freqs is a table of frequencies, no parameter
    plain = [tensor for tensor in whole.tensors if not tensor.name.startswith("rope_")]
    by_part = dtype_by_part(model, plain, gguf.part_of, gguf.dtypes())
    formats = bytes_by_format(whole.tensors)
    dtype = next((gguf.dtypes()[kind] for kind in formats if kind in ("BF16", "F16")), "fp16")
    stored = {part: kind for part, kind in by_part.items() if kind not in (dtype, "fp32")}
    narrow = [f"{kind} as {gguf.dtypes()[kind]}" for kind in formats if kind.startswith(("Q", "IQ", "TQ"))]
    notes: list[str] = []
    if narrow:
        notes.append(f"Formats of llama.cpp are taken as the nearest that engines have: {'; '.join(narrow)}.")
    count = _SHARD.match(path.stem)
    if count and int(count["count"]) != len(files):
        notes.append(f"Of {int(count['count'])} files {len(files)} are here; the bytes are theirs.")
    else:
        notes += _differs(model, plain)
    return replace(model, dtype=dtype, weight_dtypes=stored, stored=formats, notes=(*model.notes, *notes))


def _shards(path: Path) -> list[Path]:
    """A file, or all files that were cut from the same one, as far as they are here."""
    match = _SHARD.match(path.stem)
    if match is None:
        return [path]
    indices = range(1, min(int(match["count"]), MOST_FILES) + 1)
    named = [path.with_name(f"{match['stem']}-{number:05d}-of-{match['count']}{path.suffix}") for number in indices]
    return [file for file in named if file == path or file.exists()]


def _missing(folder: Path, files: list[Path]) -> list[str]:
    """A note where an index names files that are not here."""
    try:
        index = json.loads(read_regular(folder / "model.safetensors.index.json", "Index", MOST_INDEX))
        needed = set(map(str, index["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []
    here = {file.name for file in files}
    if needed <= here:
        return []
    return [f"Of {len(needed)} files {len(needed & here)} are here; the bytes are theirs."]


def _differs(model: Transformer, tensors: Iterable[StoredTensor]) -> list[str]:
    """A note where the files hold another number of parameters than was counted."""
    elements, counts = sum(tensor.elements for tensor in tensors), count_parameters(model)
    if elements in (counts.total, counts.checkpoint):
        return []
    return [f"The files hold {elements:,} numbers; the count below is {counts.checkpoint:,} parameters."]


def _regular(path: Path) -> None:
    try:
        if not path.is_file():
            raise InputError(f"{shorten(str(path))} is not a plain file, or is not there.")
    except OSError as error:
        raise InputError(f"{shorten(str(path))} cannot be read: {error.strerror}.") from None
