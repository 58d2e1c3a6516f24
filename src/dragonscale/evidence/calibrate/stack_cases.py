"""What is timed to settle a stack: steps of training, prompts and single tokens of our own program, from
`stack_cases.toml`; and the file of those that were timed: a line of JSON for each case, with what a profile of one more
step says of its kernels."""

import functools
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import msgspec

from dragonscale.errors import InputError, shorten
from dragonscale.tables import read_regular

DEVICE = "device"
"""The key of the row that says what was measured on."""
SHORTEST, LONGEST = 1e-7, 1e5
"""Seconds of a step; a number beyond them is no measurement."""
_MATMUL = re.compile(r"nvjet|gemm|cutlass|sm\d+_xmma|.*gemm|cublas|.*splitK", re.IGNORECASE)
_FLASH = re.compile(r"cudnn.*sdpa|.*fmha|.*cudnn::fusion", re.IGNORECASE)


class TrainCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A step of training: `passes` microbatches of `microbatch` sequences of `seq` tokens, AdamW."""

    use: str
    model: str
    seq: int
    microbatch: int
    passes: int
    remat: str
    capacity: float = 0.0

    @property
    def key(self) -> str:
        """What tells cases apart."""
        return f"train {self.model} {self.passes}x{self.microbatch}x{self.seq} {self.remat} {self.capacity:g}"


class ServeCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`prefill` of `batch` prompts of `length` tokens, or `decode` of a token each behind `length` others."""

    use: str
    model: str
    kind: str
    batch: int
    length: int
    capacity: float = 0.0

    @property
    def key(self) -> str:
        """What tells cases apart."""
        return f"{self.kind} {self.model} {self.batch}x{self.length} {self.capacity:g}"


Case = TrainCase | ServeCase


@functools.cache
def timed_steps() -> dict[str, Any]:
    """The tables of `stack_cases.toml`."""
    text = (resources.files("dragonscale.evidence.calibrate") / "stack_cases.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@functools.cache
def step_cases() -> tuple[Case, ...]:
    """All of them, in the order in which they are timed.

    >>> {case.use for case in step_cases()} == {"fit", "seen", "left out"}
    True
    """
    return _cases([*timed_steps()["train"], *timed_steps()["serve"]])


def small_steps() -> tuple[Case, ...]:
    """A few of a model that a CPU runs in a blink: a trial of the whole way."""
    return _cases(timed_steps()["small"])


def _cases(rows: Iterable[dict[str, Any]]) -> tuple[Case, ...]:
    return tuple(msgspec.convert(row, TrainCase if "remat" in row else ServeCase) for row in rows)


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


class StepRow(msgspec.Struct, frozen=True):
    """A line of the file: a case that was timed, or the device that it was timed on. Without seconds it failed."""

    key: str
    s: Annotated[float, msgspec.Meta(ge=SHORTEST, le=LONGEST)] | msgspec.UnsetType = msgspec.UNSET
    parts: dict[str, Annotated[float, msgspec.Meta(ge=0.0, le=LONGEST)]] | None = None
    device: Any = ""
    software: dict[str, Any] = {}


def read_device(path: Path) -> tuple[str, dict[str, str]]:
    """The device that a file's steps were timed on, and with which software: its first row."""
    for row in _lines(path):
        if row.key == DEVICE:
            return str(row.device), {name: str(version) for name, version in row.software.items()}
    return "", {}


def read_rows(path: Path, known: Iterable[Case] = ()) -> dict[Case, MeasuredCase]:
    """The rows of a file that are of known cases; of a case that was timed twice the last. Failures are left out."""
    by_key = {case.key: case for case in known or step_cases()}
    found: dict[Case, MeasuredCase] = {}
    for row in _lines(path):
        if row.key in by_key and isinstance(row.s, float):
            parts = row.parts or {}
            found[by_key[row.key]] = MeasuredCase(row.s, *(parts.get(name, 0.0) for name in ("matmul", "attention")))
    return found


def unknown_rows(path: Path) -> list[str]:
    """Keys of timed rows that are of no case there is: of another version's list, or misspelt."""
    known = {DEVICE, *(case.key for case in (*step_cases(), *small_steps()))}
    return list(dict.fromkeys(row.key for row in _lines(path) if row.key not in known and isinstance(row.s, float)))


def _lines(path: Path) -> Iterator[StepRow]:
    """Rows of a file, each with a key."""
    try:
        text = read_regular(path, "File of steps", most=64_000_000).decode("utf-8")
    except OSError as error:
        raise InputError(f"The file {shorten(str(path))} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise InputError(f"The file {shorten(str(path))} is not text.") from None
    decoder = msgspec.json.Decoder(StepRow)
    for number, line in enumerate(text.splitlines(), 1):
        try:
            yield decoder.decode(line)
        except (msgspec.MsgspecError, RecursionError):
            raise InputError(f"Line {number} of {shorten(str(path))} is no row of steps that were timed.") from None
