"""Tensors of `.safetensors` files, read without copying: a length, a JSON table of names, shapes and places, then raw
bytes.

A model's weights may be spread over several files; `model.safetensors.index.json` says which tensor lies where. Files
are mapped into memory, so a tensor costs nothing until it is used.
"""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import ml_dtypes
import msgspec
import numpy

from dragonscale.errors import InputError, shorten, unknown

DTYPES: dict[str, Any] = {f"F{bits}": numpy.dtype(f"float{bits}") for bits in (64, 32, 16)}
DTYPES |= {f"I{bits}": numpy.dtype(f"int{bits}") for bits in (64, 32, 16, 8)}
DTYPES |= {"U8": numpy.uint8, "BOOL": numpy.bool_, "BF16": ml_dtypes.bfloat16}
DTYPES |= {"F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2}
MOST_HEADER = 100_000_000
"""Bytes of a header at most (the format's own limit)."""
Count = Annotated[int, msgspec.Meta(ge=0, lt=2**50)]
"""Elements or bytes, as many as a tensor may have."""


class TensorEntry(msgspec.Struct):
    """What the header says of a tensor."""

    dtype: str
    shape: tuple[Count, ...]
    data_offsets: tuple[Count, Count]


def _table(text: bytes) -> dict[str, TensorEntry]:
    """The tensors of a header; what cannot be one is an error of msgspec."""
    rows = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    return {name: msgspec.json.decode(row, type=TensorEntry) for name, row in rows.items() if name != "__metadata__"}


class SafeTensors(Mapping[str, numpy.ndarray]):
    """The tensors of a folder or a file by name."""

    def __init__(self, path: str | Path) -> None:
        folder = Path(path)
        files = sorted(folder.glob("*.safetensors")) if folder.is_dir() else [folder]
        if not files:
            raise InputError(f"The folder {shorten(str(path))} holds no .safetensors file.")
        self._places: dict[str, tuple[Path, str, tuple[int, ...], int, int]] = {}
        for file in files:
            self._read_table(file)
        self._mapped: dict[Path, numpy.memmap] = {}

    def _read_table(self, file: Path) -> None:
        try:
            with file.open("rb") as raw:
                size = int.from_bytes(raw.read(8), "little")
                whole = file.stat().st_size
                if not 2 <= size <= min(MOST_HEADER, whole - 8):
                    raise ValueError
                table = _table(raw.read(size))
        except OSError as error:
            raise InputError(f"The weights {shorten(str(file))} cannot be read: {error.strerror}.") from None
        except (ValueError, RecursionError, msgspec.MsgspecError):
            told = f"The file {shorten(file.name)} is not in the safetensors format, or is damaged."
            raise InputError(told) from None
        for name, entry in table.items():
            if entry.dtype not in DTYPES:
                raise unknown(f"dtype of the tensor {shorten(name)} called", entry.dtype, DTYPES)
            start, end = (8 + size + offset for offset in entry.data_offsets)
            if end > whole:
                raise InputError(
                    f"The file {shorten(file.name)} breaks off before the end of the tensor {shorten(name)}."
                )
            if end - start != math.prod(entry.shape) * numpy.dtype(DTYPES[entry.dtype]).itemsize:
                raise InputError(f"The file {shorten(file.name)} says of the tensor {shorten(name)} what cannot be.")
            self._places[name] = (file, entry.dtype, entry.shape, start, end)

    def __getitem__(self, name: str) -> numpy.ndarray:
        if name not in self._places:
            raise unknown("tensor", name, self._places)
        file, dtype, shape, start, end = self._places[name]
        if file not in self._mapped:
            self._mapped[file] = numpy.memmap(file, dtype=numpy.uint8, mode="r")
        return self._mapped[file][start:end].view(DTYPES[dtype]).reshape(shape)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def write_safetensors(tensors: Mapping[str, numpy.ndarray], path: str | Path) -> None:
    """Write tensors to one file, seen under its name when it is whole."""
    kinds = {numpy.dtype(dtype): name for name, dtype in DTYPES.items()}
    table: dict[str, Any] = {"__metadata__": {"format": "pt"}}  # which libraries ask for before they read anything
    place = 0
    for name, tensor in tensors.items():
        end = place + tensor.nbytes
        table[name] = {"dtype": kinds[tensor.dtype], "shape": tensor.shape, "data_offsets": (place, end)}
        place = end
    header = json.dumps(table).encode()
    header += b" " * (-len(header) % 8)
    target = Path(path)
    half = target.with_name(f"{target.name}.writing")
    try:
        with half.open("wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            for tensor in tensors.values():
                file.write(numpy.ascontiguousarray(tensor).tobytes())
        half.replace(target)
    except OSError as error:
        half.unlink(missing_ok=True)
        raise InputError(f"The weights cannot be written to {shorten(str(path))}: {error.strerror}.") from None
