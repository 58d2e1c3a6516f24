"""Steps that were timed: a line of JSON for each case, with what a profile of one more step says of its kernels."""

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragonscale.errors import InputError, shorten
from dragonscale.evidence.calibrate.stack_cases import Case, cases, small_cases
from dragonscale.tables import read_regular

DEVICE = "device"
"""The key of the row that says what was measured on."""
SHORTEST, LONGEST = 1e-7, 1e5
"""Seconds of a step; a number beyond them is no measurement."""
_MATMUL = re.compile(r"nvjet|gemm|cutlass|sm\d+_xmma|.*gemm|cublas|.*splitK", re.IGNORECASE)
_FLASH = re.compile(r"cudnn.*sdpa|.*fmha|.*cudnn::fusion", re.IGNORECASE)


@dataclass(frozen=True)
class MeasuredCase:
    """Seconds of a case, and of its matmuls and its flash attention where the profile tells them apart (0: it does
    not)."""

    seconds: float
    matmul: float = 0.0
    attention: float = 0.0


def kernel_kind(name: str) -> str:
    """`matmul`, `attention` or `other`, by the name of a kernel.

    >>> [
    ...     kernel_kind(name)
    ...     for name in ("nvjet_sm90_tst_128x256", "cudnn_generated_fort_native_sdpa_sm90", "loop_add_fusion_6")
    ... ]
    ['matmul', 'attention', 'other']
    """
    return "attention" if _FLASH.match(name) else "matmul" if _MATMUL.match(name) else "other"


def parts_of(kernels: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Seconds of kernels by their kind."""
    found = {"matmul": 0.0, "attention": 0.0, "other": 0.0}
    for name, seconds in kernels:
        found[kernel_kind(name)] += seconds
    return found


def read_device(path: Path) -> tuple[str, dict[str, str]]:
    """The device that a file's steps were timed on, and with which software: its first row."""
    for row in _lines(path):
        if row["key"] == DEVICE:
            return str(row.get("device", "")), {str(name): str(one) for name, one in row.get("software", {}).items()}
    return "", {}


def read_rows(path: Path, known: Iterable[Case] = ()) -> dict[Case, MeasuredCase]:
    """The rows of a file that are of known cases; of a case that was timed twice the last. Failures are left out."""
    by_key = {case.key: case for case in known or cases()}
    found: dict[Case, MeasuredCase] = {}
    for row in _lines(path):
        if row["key"] in by_key and "s" in row:
            parts = row.get("parts") or {}
            told = (float(parts.get(name, 0.0)) for name in ("matmul", "attention"))
            found[by_key[row["key"]]] = MeasuredCase(float(row["s"]), *told)
    return found


def unknown_rows(path: Path) -> list[str]:
    """Keys of timed rows that are of no case there is: of another version's list, or misspelt."""
    known = {DEVICE, *(case.key for case in (*cases(), *small_cases()))}
    return list(dict.fromkeys(str(row["key"]) for row in _lines(path) if row["key"] not in known and "s" in row))


def _lines(path: Path) -> Iterator[Mapping[str, Any]]:
    """Rows of a file, each with a key."""
    try:
        text = read_regular(path, "File of steps", most=64_000_000).decode("utf-8")
    except OSError as error:
        raise InputError(f"The file {shorten(str(path))} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise InputError(f"The file {shorten(str(path))} is not text.") from None
    for number, line in enumerate(text.splitlines(), 1):
        row: Any = None
        with contextlib.suppress(ValueError, RecursionError):
            row = json.loads(line)
        if not _is_row(row):
            raise InputError(f"Line {number} of {shorten(str(path))} is no row of steps that were timed.")
        yield row


def _is_row(row: Any) -> bool:
    """Whether a row has a key, seconds that a step can take (none if it failed), and parts of them; a device's row its
    software."""
    if not (isinstance(row, dict) and isinstance(row.get("key"), str)):
        return False
    parts, software = row.get("parts") or {}, row.get("software", {})
    if not (isinstance(parts, dict) and isinstance(software, dict)):
        return False
    return ("s" not in row or _seconds(row["s"], SHORTEST)) and all(_seconds(one, 0.0) for one in parts.values())


def _seconds(value: Any, least: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= LONGEST
