"""What is to be compiled: one program of a plan for one slice, in words that travel as JSON and name a cache entry.

What a verification says: every planned number beside the compiler's, with a verdict and, where they differ, why.

Many verifications as a table: one flat row each, and how large the errors are over all of them.
"""

import functools
import hashlib
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import resources
from statistics import median
from typing import Any, Literal

import msgspec

from dragonscale.evidence.xla.compiled import Compiled
from dragonscale.evidence.xla.memory import OutOfMemory
from dragonscale.physics.hardware import parse_slice

MODES = ("canonical", "full")


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A training step (`batch` sequences of `sequence` tokens), a prefill (`batch` prompts of `sequence` tokens) or a
    decode step (`batch` sequences with room for `sequence` tokens). `plan` is written out; `capacity` is the room of an
    expert over its even share; `canonical` asks for plain collectives and a quick compile, `full` for what would really
    run."""

    program: Literal["train", "prefill", "decode"]
    model: str
    slice: str
    plan: str
    batch: int
    sequence: int
    mode: Literal["canonical", "full"] = "canonical"
    capacity: float = 1.0
    options: dict[str, str] = {}

    @property
    def key(self) -> str:
        """A name for what this asks, the same for equal requests."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()[:20]


class Made(msgspec.Struct, frozen=True):
    """What a compiler answered: what was read from its module, or why there is none. `failed` is its
    own message; `seconds` and `resident_bytes` are of the process that compiled."""

    versions: dict[str, str]
    seconds: float
    resident_bytes: float
    compiled: Compiled | None = None
    out_of_memory: OutOfMemory | None = None
    failed: str = ""


class VerifyLine(msgspec.Struct, frozen=True):
    """One number, planned and compiled. `verdict` is `agrees`, `explained` (they differ for the reason in `why`) or
    `differs`."""

    name: str
    unit: str
    planned: float
    compiled: float
    tolerance: float
    verdict: str
    why: str = ""
    ratio: float | None = None
    """Compiled over planned; found from the two."""

    def __post_init__(self) -> None:
        if self.ratio is None and self.planned:
            msgspec.structs.force_setattr(self, "ratio", self.compiled / self.planned)


class AxisLine(msgspec.Struct, frozen=True):
    """The bytes that each chip sends over one set of mesh axes, by kind of collective."""

    axes: tuple[str, ...]
    line: VerifyLine
    kinds: dict[str, tuple[float, float]]
    """For each kind of collective: bytes planned and compiled."""


class Unmatched(msgspec.Struct, frozen=True):
    """A collective that only one side has, with what is known of it."""

    kind: str
    axes: tuple[str, ...]
    total_bytes: float
    times: int
    what: str
    op_name: str = ""
    source: str = ""
    why: str = ""


class OverlapLine(msgspec.Struct, frozen=True):
    """A collective's place in the schedule (`full` mode): whether the planner would hide it, and whether the compiler
    does."""

    kind: str
    axes: tuple[str, ...]
    what: str
    total_bytes: float
    planned: str
    compiled: str
    agrees: bool


class StackDifference(msgspec.Struct, frozen=True):
    """A line that another stack has otherwise than our own program: FLOPs or bytes of a chip in a step, before and
    after one of the stack's switches is set, and what that switch means. Differences of several switches add up."""

    switch: str
    why: str
    quantity: str
    section: str
    phase: str
    what: str
    ours: float
    theirs: float


class VerifyReport(msgspec.Struct, frozen=True):
    """A whole verification. `compiled` is False where the compiler gave no program: `trouble` says why, and `largest`
    names the buffers it could not place."""

    request: Request
    versions: dict[str, str]
    seconds: float
    resident_bytes: float
    compiled: bool
    verdict: str
    arguments: VerifyLine | None = None
    peak: VerifyLine | None = None
    host: VerifyLine | None = None
    """What lies in the host's memory for one chip; none of a plan that keeps nothing there."""
    memory: dict[str, float] = {}
    """The planned peak by part, in bytes."""
    limit_bytes: float = 0.0
    fits_planned: bool = True
    fits_compiled: bool = True
    flops: VerifyLine | None = None
    axes: tuple[AxisLine, ...] = ()
    only_planned: tuple[Unmatched, ...] = ()
    only_compiled: tuple[Unmatched, ...] = ()
    overlap: tuple[OverlapLine, ...] = ()
    padding_bytes: float = 0.0
    cycles_s: float | None = None
    """The compiler's estimated cycles as seconds, without anything that travels (TPU, `full` mode)."""
    slowest: tuple[tuple[str, float], ...] = ()
    algorithms: dict[str, int] = {}
    unknown: tuple[str, ...] = ()
    trouble: str = ""
    largest: tuple[tuple[str, float, str], ...] = ()
    advice: str = ""
    """Which plan would fit, where this one does not."""
    stack: str = "dragonscale"
    """The stack that the plan was made for."""
    stack_differences: tuple[StackDifference, ...] = ()
    """Where that stack's ledger differs from the planned side, which is our own program's."""

    @property
    def stack_bytes(self) -> float:
        """What the plan holds on the fullest chip under its own stack."""
        held = (one.theirs - one.ours for one in self.stack_differences if one.quantity == "hbm_bytes")
        return (self.peak.planned if self.peak is not None else 0.0) + sum(held)

    @property
    def fits(self) -> bool:
        """Whether the program fits that the plan was made for: our own by the compiler, another stack's by the
        planner."""
        other = self.stack != "dragonscale" and self.request.program == "train" and self.peak is not None
        return self.stack_bytes <= self.limit_bytes if other else self.fits_compiled


@functools.cache
def explanations(table: str) -> dict[str, str]:
    """A table of `explanations.toml`."""
    text = (resources.files("dragonscale.evidence.verify") / "explanations.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)[table]


WORSE = ("differs", "explained", "agrees")
"""Verdicts, the worst first."""
_ERRORS = {"argument bytes": "arguments_error", "peak memory": "peak_error", "FLOPs": "flops_error"}
_ERRORS |= {"bytes sent": "wire_bytes_error", "bytes, worst axes": "wire_error"}


class VerifyRow(msgspec.Struct, frozen=True):
    """A verification in one line. Errors are compiled over planned less one; None where there is nothing to compare.
    `wire_error` is that of the mesh axes that differ most, `wire_bytes_error` that of all bytes together, and
    `wire_verdict` the worst of all axes."""

    program: str
    model: str
    slice: str
    chips: int
    plan: str
    batch: int
    seq: int
    mode: str
    verdict: str
    arguments_error: float | None
    peak_error: float | None
    flops_error: float | None
    wire_error: float | None
    wire_bytes_error: float | None
    wire_verdict: str
    wire: str
    overlap: str
    fits_planned: bool
    fits_compiled: bool
    compile_s: float
    resident_bytes: float
    compiler: str
    why: str


class Spread(msgspec.Struct, frozen=True):
    """Errors of one number over many rows, in size."""

    name: str
    rows: int
    median: float | None
    worst: float | None
    worst_row: str = ""


class SweepScore(msgspec.Struct, frozen=True):
    """All verifications together. `wire_ok` is the share of rows whose bytes agree, or differ for a reason that is
    known; `wrongly_accepted` counts plans that the planner takes and the compiler does not."""

    rows: int
    compiled: int
    verdicts: dict[str, int]
    spreads: tuple[Spread, ...]
    wire_ok: float | None
    wrongly_accepted: int


def flat(report: VerifyReport) -> VerifyRow:
    """One report as a row."""
    asked = report.request
    lines = [axis.line for axis in report.axes]
    ratios = [(abs(ratio - 1), ratio - 1) for line in lines if (ratio := line.ratio) is not None]
    planned, compiled = sum(line.planned for line in lines), sum(line.compiled for line in lines)
    every = (report.arguments, report.peak, report.host, report.flops, *lines)
    reasons = [line.why for line in every if line is not None and line.why]
    agreeing = sum(one.agrees for one in report.overlap)
    wire_lines = [f"{'+'.join(axis.axes) or 'none'} {_signed(axis.line)}" for axis in report.axes]
    named = ("program", "model", "slice", "plan", "batch", "mode")
    same: dict[str, Any] = {name: getattr(asked, name) for name in named}
    same |= {name: getattr(report, name) for name in ("fits_planned", "fits_compiled", "resident_bytes")}
    same |= {f"{name}_error": error(getattr(report, name)) for name in ("arguments", "peak", "flops")}
    return VerifyRow(
        **same,
        chips=parse_slice(asked.slice).chips,
        seq=asked.sequence,
        verdict=report.verdict if report.compiled else "does not fit" if not report.fits_compiled else "not compiled",
        wire_error=max(ratios)[1] if ratios else None,
        wire_bytes_error=compiled / planned - 1 if planned else None,
        wire_verdict=next((word for word in WORSE if word in {line.verdict for line in lines}), ""),
        wire="; ".join(wire_lines),
        overlap=f"{agreeing} of {len(report.overlap)}" if report.overlap else "",
        compile_s=report.seconds,
        compiler=" ".join(f"{name} {version}" for name, version in report.versions.items() if name != "jaxlib"),
        why=" ".join(dict.fromkeys([report.trouble, *reasons])).strip(),
    )


def error(line: VerifyLine | None) -> float | None:
    """Compiled over planned, less one."""
    return None if line is None or line.ratio is None else line.ratio - 1


def _signed(line: VerifyLine) -> str:
    found = error(line)
    return "new" if found is None else f"{found:+.2%}".replace("-0.00%", "+0.00%")


def score(rows: Sequence[VerifyRow]) -> SweepScore:
    """The medians and the worst over all rows.

    >>> score([]).wire_ok is None
    True
    """
    compiled = [row for row in rows if row.verdict in ("agrees", "explained", "differs")]
    fine = [row for row in compiled if row.wire_verdict != "differs"]
    return SweepScore(
        rows=len(rows),
        compiled=len(compiled),
        verdicts=dict(Counter(row.verdict for row in rows)),
        spreads=tuple(_spread(name, compiled, field) for name, field in _ERRORS.items()),
        wire_ok=len(fine) / len(compiled) if compiled else None,
        wrongly_accepted=sum(row.fits_planned and not row.fits_compiled for row in rows),
    )


def _spread(name: str, rows: Iterable[VerifyRow], field: str) -> Spread:
    sizes = [(abs(value), row) for row in rows if (value := getattr(row, field)) is not None]
    if not sizes:
        return Spread(name, 0, None, None)
    worst, row = max(sizes, key=lambda pair: pair[0])
    middle = median(size for size, _ in sizes)
    return Spread(name, len(sizes), middle, worst, f"{row.program} {row.model} on {row.slice}")
