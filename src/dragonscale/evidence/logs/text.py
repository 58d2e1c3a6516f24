"""A log as it lies on disk: text of any kind, read once and looked at as lines, as JSON, or as lines of JSON.

A log is not a document. It may be cut in the middle of a line, hold the colours of a terminal, progress bars that were
drawn over each other, and bytes that are no text; what cannot be read of it is left out, and the rest counts.
"""

import functools
import json
import re
import tomllib
import zlib
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

from dragonscale.errors import InputError, shorten
from dragonscale.tables import read_regular

LONGEST = 256_000_000
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_BREAKS = re.compile(r"\r\n|\n|\r")
"""A bar that is drawn over itself begins with a carriage return: each of its states is a line."""


@dataclass(frozen=True)
class LogText:
    """The text of a log, and the file it is of."""

    text: str
    path: Path

    @staticmethod
    def at(given: str) -> "LogText":
        """A file, plain or gzipped."""
        try:
            path = Path(given.strip()).expanduser()
        except RuntimeError:
            raise InputError(f"Log {shorten(given.strip())} begins with a home folder that there is not.") from None
        shown = f"Log {shorten(str(path))}"
        try:
            content = read_regular(path, "Log", LONGEST)
        except OSError as error:
            raise InputError(f"{shown} cannot be read: {error.strerror}.") from None
        if content[:2] == b"\x1f\x8b":
            content = _unpacked(content, shown)
        return LogText(content.decode("utf-8", "replace"), path)

    @property
    def shown(self) -> str:
        """How messages name it."""
        return shorten(str(self.path))

    @cached_property
    def whole(self) -> list[str]:
        return _BREAKS.split(_COLOURS.sub("", self.text))

    @property
    def lines(self) -> list[str]:
        """The lines that have ended: of one that is still being written, a number may be half there."""
        return self.whole[:-1] or self.whole

    @cached_property
    def table(self) -> dict[str, Any] | None:
        """The text as one JSON object; None where it is none."""
        return _object(self.text.strip())

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The lines that are JSON objects; one that was cut is none."""
        return [found for line in self.whole if (found := _object(line.strip())) is not None]

    @property
    def tables(self) -> list[dict[str, Any]]:
        """Its one object, or those of its lines."""
        return self.rows if self.table is None else [self.table]


def _unpacked(content: bytes, shown: str) -> bytes:
    """A gzip file's text; one may be several, joined."""
    parts: list[bytes] = []
    room = LONGEST
    while content.startswith(b"\x1f\x8b"):
        packed = zlib.decompressobj(wbits=31)
        try:
            parts.append(packed.decompress(content, room))
        except zlib.error:
            raise InputError(f"{shown} is no gzip file that can be unpacked.") from None
        room -= len(parts[-1])
        if packed.unconsumed_tail or room <= 0:
            raise InputError(f"{shown} has more than {LONGEST:,} bytes of text; give the part of it that matters.")
        if not packed.eof:
            raise InputError(f"{shown} is a gzip file that is cut off; give it whole, or what `zcat` makes of it.")
        content = packed.unused_data
    return b"".join(parts)


def _object(text: str) -> dict[str, Any] | None:
    if not text.startswith("{"):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


@functools.cache
def formats() -> dict[str, Any]:
    """The tables of `formats.toml`."""
    return tomllib.loads((resources.files("dragonscale.evidence.logs") / "formats.toml").read_text(encoding="utf-8"))


def number(value: Any) -> float | None:
    """A finite number, from a number or from text with thousands marked (`7,034`); None where there is none.

    >>> number("7,034"), number("1.249e+03"), number("nan"), number(None), number(True)
    (7034.0, 1249.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        found = float(value.replace(",", "") if isinstance(value, str) else value)
    except (ValueError, OverflowError):
        return None
    return found if abs(found) < 1e300 else None
