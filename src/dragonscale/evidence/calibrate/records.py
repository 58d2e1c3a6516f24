"""Measurements as lines of JSON: one for the machine, one for each case, appended as they are made.

Whoever stops a run, or loses it, has what was measured; the next run with the same file goes on where it ended. A file
of another machine or other software is refused: its times would be mixed up with this one's.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dragonscale.errors import InputError, shorten
from dragonscale.evidence.calibrate.cases import BenchCase, calibrated
from dragonscale.tables import read_regular

MAX_RECORD_BYTES = 50_000_000


class Machine(msgspec.Struct, frozen=True, tag="machine", tag_field="line"):
    """Where something was measured: the device as its driver names it, how many, and with which software."""

    device: str
    devices: int
    platform: str
    software: dict[str, str]
    """Versions by name: jax, jaxlib, torch, driver …"""
    timed_with: str
    """`jax` or `torch`."""
    date: str
    cache_bytes: int = 0
    memory_bytes: int = 0


class TimedCase(msgspec.Struct, frozen=True, tag="case", tag_field="line", omit_defaults=True):
    """A case and its seconds; `failed` says why there are none. `spread` is the distance of the quartiles over the
    median."""

    kind: str
    sizes: tuple[int, ...]
    dtype: str
    seconds: float = 0.0
    what: str = ""
    spread: float = 0.0
    repeats: int = 0
    compile_s: float = 0.0
    failed: str = ""

    @property
    def case(self) -> BenchCase:
        return BenchCase(self.kind, self.sizes, self.dtype, self.what)


@dataclass(frozen=True)
class Measurements:
    """A file of measurements."""

    machine: Machine
    rows: list[TimedCase]

    @property
    def good(self) -> list[TimedCase]:
        """Those that have a time."""
        return [row for row in self.rows if not row.failed and row.seconds > 0]


def read_measurements(path: str | Path) -> Measurements:
    """A file as `dscale calibrate` writes it. A last line that was cut off is left out."""
    shown = shorten(str(path))
    lines = read_regular(Path(path), "File of measurements", MAX_RECORD_BYTES).split(b"\n")
    decoder = msgspec.json.Decoder(Machine | TimedCase)
    machine: Machine | None = None
    rows: dict[str, TimedCase] = {}
    for place, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if place == len(lines):
                continue
            raise InputError(f"Line {place} of {shown} is no measurement of `dscale calibrate`.") from None
        if isinstance(found, Machine):
            machine = machine or found
        elif _possible(found):
            rows[found.case.id] = found
        else:
            raise InputError(f"Line {place} of {shown} is no measurement of `dscale calibrate`.")
    if machine is None:
        raise InputError(f"The file {shown} does not say which machine was measured; start another one.")
    return Measurements(machine, list(rows.values()))


def _possible(row: TimedCase) -> bool:
    """Whether a row is of a kind there is, with sizes and a time that can be."""
    kind = calibrated("kinds").get(row.kind)
    sizes = kind is not None and len(row.sizes) == len(kind["sizes"]) and all(0 < size < 1e13 for size in row.sizes)
    return sizes and 0 <= row.seconds < 1e6


def begin(path: Path, machine: Machine) -> Measurements:
    """The file to append to: what is there already, or a new one with its first line."""
    if path.exists() and path.stat().st_size:
        found = read_measurements(path)
        _same(found.machine, machine, path)
        _close_line(path)
        return found
    append(path, [machine])
    return Measurements(machine, [])


def append(path: Path, lines: Iterable[Machine | TimedCase]) -> None:
    """Add lines at the end."""
    try:
        with path.open("ab") as file:
            for line in lines:
                file.write(msgspec.json.encode(line) + b"\n")
    except OSError as error:
        raise InputError(f"The file {shorten(str(path))} cannot be written: {error.strerror}.") from None


def _close_line(path: Path) -> None:
    """A run that was stopped may have left half a line: it is cut off."""
    content = path.read_bytes()
    if not content.endswith(b"\n"):
        path.write_bytes(content[: content.rfind(b"\n") + 1])


def _same(before: Machine, now: Machine, path: Path) -> None:
    for name in ("device", "devices", "timed_with", "software"):
        if getattr(before, name) != getattr(now, name):
            raise InputError(
                f"The file {shorten(str(path))} was measured with another {name} ({_shown(getattr(before, name))}; "
                f"here: {_shown(getattr(now, name))}); give another --records."
            )


def _shown(value: object) -> str:
    return ", ".join(f"{name} {one}" for name, one in value.items()) if isinstance(value, dict) else str(value)
