"""Many verifications as a table: one flat row each, and how large the errors are over all of them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

import msgspec

from dragonscale.evidence.verify.records import VerifyLine, VerifyReport
from dragonscale.physics.hardware import parse_slice

WORSE = ("differs", "explained", "agrees")
"""Verdicts, the worst first."""
_ERRORS = {
    "argument bytes": "arguments_error",
    "peak memory": "peak_error",
    "FLOPs": "flops_error",
    "bytes sent": "wire_bytes_error",
    "bytes, worst axes": "wire_error",
}


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
    every = (report.arguments, report.peak, report.flops, *lines)
    reasons = [line.why for line in every if line is not None and line.why]
    agreeing = sum(one.agrees for one in report.overlap)
    wire_lines = [f"{'+'.join(axis.axes) or 'none'} {_signed(axis.line)}" for axis in report.axes]
    same: dict[str, Any] = {
        name: getattr(asked, name) for name in ("program", "model", "slice", "plan", "batch", "mode")
    }
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
