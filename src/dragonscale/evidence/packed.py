"""Files of profiles and programs, gzipped or not: their bytes, and how they begin."""

import gzip
import zlib
from pathlib import Path
from typing import BinaryIO, cast

from dragonscale.errors import InputError, shorten

_HEAD = 1 << 16


def opened(path: Path) -> BinaryIO:
    """The file's bytes, unpacked on the way where it is gzipped; errors of packing come as `InputError` from
    `first_bytes`."""
    with path.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
    return cast(BinaryIO, gzip.open(path, "rb")) if packed else path.open("rb")


def first_bytes(path: Path) -> bytes:
    """The beginning of the file, unpacked; of a file that breaks off, what comes before that."""
    head = b""
    try:
        with opened(path) as file:
            while len(head) < _HEAD and (piece := file.read(1024)):
                head += piece
    except (OSError, EOFError, zlib.error) as error:
        if head:
            return head
        raise InputError(f"{shorten(str(path))} cannot be read: {error}.") from None
    return head
