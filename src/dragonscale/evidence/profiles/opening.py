"""A profile's file, opened by what is in it: never by its name alone."""

from collections.abc import Callable
from pathlib import Path

from dragonscale.errors import InputError, shorten
from dragonscale.evidence.profiles import chrome, nsight, xplane
from dragonscale.evidence.profiles.recording import Recorder, Recording
from dragonscale.evidence.xla.dumps import first_bytes, hlo_files, read_dump_file
from dragonscale.listener import Listener


def read_program(path: Path, listener: Listener) -> Recording:
    """The modules of a dump, by name; of several with one name the last keeps it."""
    listener.wait(f"Reading {path.name}.")
    record = Recorder(path.name, "XLA HLO")
    dumps = read_dump_file(path)
    for place, dump in enumerate(dumps):
        record.programs[dump.name or f"module {place}"] = dump.module
    first = dumps[0]
    record.device("", {"tpu": "tpu", "gpu": "gpu", "cpu": "cpu"}.get(first.platform, ""))  # pyright: ignore[reportArgumentType]
    record.notes.append("This is a program's text: it has no times, only what the program does.")
    if not first.optimized:
        record.notes.append("The program is not compiled yet: XLA will fuse, lay out and may split it otherwise.")
    return record.made()


Reader = Callable[[Path, Listener], Recording]
_READERS: tuple[tuple[Callable[[bytes], bool], Reader], ...] = (
    (lambda head: head.startswith(b"SQLite format 3\0"), nsight.read),
    (lambda head: head.lstrip()[:1] in (b"{", b"["), chrome.read),
    (lambda head: b"HloModule" in head, read_program),
    # a message of XPlanes: field 1, or one of the text fields 2 to 4, with a length
    (lambda head: head[:1] in (b"\x0a", b"\x12", b"\x1a", b"\x22"), xplane.read),
)
"""How a file begins, and who reads it; the first that fits."""


def read_recording(path: str, listener: Listener) -> Recording:
    """The recording in a file, or in the newest profile of a folder that JAX wrote."""
    file = newest(Path(path), listener)
    head = first_bytes(file)
    if not head.strip():
        raise InputError(
            f"{shorten(path)} is empty; give a profile: xplane.pb, trace.json(.gz), an Nsight SQLite export or "
            "HLO text."
        )
    for fits, read in _READERS:
        if fits(head):
            return read(file, listener)
    raise InputError(
        f"{shorten(path)} is not a profile this reader knows; it reads XProf's xplane.pb, Chrome traces of JAX and "
        "PyTorch (trace.json, also gzipped), SQLite exports of Nsight Systems and XLA's HLO text."
    )


def newest(path: Path, listener: Listener | None = None) -> Path:
    """The file itself, or in a folder the newest profile below it: xplane before trace before HLO."""
    if not path.exists():
        raise InputError(f"There is no file {shorten(str(path))}; give a profile or a folder of profiles.")
    if path.is_file():
        return _beside(path, listener)
    for pattern in ("*.xplane.pb", "*.xplane.pb.gz", "*.trace.json.gz", "*.json.gz", "*.json", "*.sqlite"):
        found = sorted(path.rglob(pattern), key=lambda one: one.stat().st_mtime)
        if found:
            _tell_others(listener, found, "newest")
            return found[-1]
    if programs := hlo_files(path):
        _tell_others(listener, programs, "largest")
        return max(programs, key=lambda one: one.stat().st_size)
    raise InputError(f"There is no profile in the folder {shorten(str(path))}.")


def _beside(path: Path, listener: Listener | None) -> Path:
    """The xplane that JAX writes beside a trace: the same recording, with the program and the scopes that a trace
    lacks."""
    stem = path.name.removesuffix(".gz").removesuffix(".trace.json")
    fuller = path.with_name(stem + ".xplane.pb")
    if stem in (path.name, path.name.removesuffix(".gz")) or not fuller.is_file():
        return path
    if listener is not None:
        listener.note(f"{shorten(fuller.name)} beside it is read: the same profile, with programs, shapes and scopes.")
    return fuller


def _tell_others(listener: Listener | None, found: list[Path], taken: str) -> None:
    if listener is not None and len(found) > 1:
        listener.note(f"The folder has {len(found)} of them: this is the {taken}; the file's own path takes another.")
