"""What a checkpoint's files hold: every tensor's name, format, elements and bytes, read from headers.

Formats keep the names that the files use (BF16, Q4_K); `known_dtype` says what Dragonscale multiplies
them as. The dtype of a part of the model is that of most of its bytes.
"""

import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from dragonscale.errors import InputError
from dragonscale.models.count import parameters
from dragonscale.models.transformer import Transformer


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file."""

    name: str
    format: str
    elements: int
    bytes: int


@contextmanager
def opened(path: Path, shown: str) -> Iterator[tuple[BinaryIO, int]]:
    """A plain file and its size, or one sentence about why not."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{shown} is not a plain file.")
        with path.open("rb") as file:
            yield file, status.st_size
    except OSError as error:
        raise InputError(f"{shown} cannot be read: {error.strerror}.") from None


def bytes_by_format(tensors: Iterable[StoredTensor]) -> dict[str, int]:
    """Bytes of each format, the largest first.

    >>> bytes_by_format([StoredTensor("a", "F32", 1, 4), StoredTensor("b", "BF16", 8, 16)])
    {'BF16': 16, 'F32': 4}
    """
    sizes: dict[str, int] = {}
    for tensor in tensors:
        sizes[tensor.format] = sizes.get(tensor.format, 0) + tensor.bytes
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def dtype_by_part(
    model: Transformer, tensors: Iterable[StoredTensor], part_of: Callable[[str], str], dtypes: dict[str, str]
) -> dict[str, str]:
    """The dtype of most of each part's bytes, for the parts that the model has."""
    sizes: dict[str, dict[str, int]] = {}
    for tensor in tensors:
        part, dtype = part_of(tensor.name), dtypes.get(tensor.format, "")
        if part and dtype:
            by_dtype = sizes.setdefault(part, {})
            by_dtype[dtype] = by_dtype.get(dtype, 0) + tensor.bytes
    has = parameters(model.program().sections)
    return {part: max(by, key=lambda name: by[name]) for part, by in sizes.items() if part in has}
