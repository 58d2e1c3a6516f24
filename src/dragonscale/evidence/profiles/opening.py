"""A profile's file, opened by what is in it: never by its name alone."""

import gzip
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from dragonscale.errors import InputError, shorten
from dragonscale.listener import Listener

if TYPE_CHECKING:
    from dragonscale.evidence.profiles.recording import Recording

_HEAD = 1 << 16
_SQLITE = b"SQLite format 3\0"


def read_recording(path: str, listener: Listener) -> "Recording":
    """The recording in a file, or in the newest profile of a folder that JAX wrote."""
    found = newest(Path(path), listener)
    head = first_bytes(found)
    if not head.strip():
        raise InputError(
            f"{shorten(path)} is empty; give a profile: xplane.pb, trace.json(.gz), an Nsight SQLite export or "
            "HLO text."
        )
    if head.startswith(_SQLITE):
        from dragonscale.evidence.profiles.nsight import read
    elif head.lstrip()[:1] in (b"{", b"["):
        from dragonscale.evidence.profiles.chrome import read
    elif b"HloModule" in head:
        from dragonscale.evidence.profiles.hlo_dump import read
    elif _is_xspace(head):
        from dragonscale.evidence.profiles.xplane import read
    else:
        raise InputError(
            f"{shorten(path)} is not a profile this reader knows; it reads XProf's xplane.pb, Chrome traces of "
            "JAX and PyTorch "
            "(trace.json, also gzipped), SQLite exports of Nsight Systems and XLA's HLO text."
        )
    return read(found, listener)


def newest(path: Path, listener: Listener | None = None) -> Path:
    """The file itself, or in a folder the newest profile below it: xplane before trace before HLO."""
    if not path.exists():
        raise InputError(f"There is no file {shorten(str(path))}; give a profile or a folder of profiles.")
    if path.is_file():
        return path
    for pattern in ("*.xplane.pb", "*.xplane.pb.gz", "*.trace.json.gz", "*.json.gz", "*.json", "*.sqlite"):
        found = sorted(path.rglob(pattern), key=lambda one: one.stat().st_mtime)
        if found:
            _tell_others(listener, found, "newest")
            return found[-1]
    if programs := hlo_files(path):
        _tell_others(listener, programs, "largest")
        return max(programs, key=lambda one: one.stat().st_size)
    raise InputError(f"There is no profile in the folder {shorten(str(path))}.")


def hlo_files(folder: Path) -> list[Path]:
    """The programs below a folder that XLA dumped to: compiled ones where there are any; not the reports that lie
    beside them."""
    for pattern in ("*after_optimizations.txt", "*optimizations.txt", "*.hlo", "*.hlo.txt"):
        if found := sorted((*folder.rglob(pattern), *folder.rglob(f"{pattern}.gz"))):
            return found
    return []


def _tell_others(listener: Listener | None, found: list[Path], taken: str) -> None:
    if listener is not None and len(found) > 1:
        listener.note(f"The folder has {len(found)} of them: this is the {taken}; the file's own path takes another.")


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


def _is_xspace(head: bytes) -> bool:
    """Whether the bytes begin as a message of XPlanes: field 1, or one of the text fields 2 to 4, with a length."""
    return head[:1] in (b"\x0a", b"\x12", b"\x1a", b"\x22")
