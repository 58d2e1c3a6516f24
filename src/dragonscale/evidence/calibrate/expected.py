"""What a profile expects of measured cases, by the formulas of `kernels/` as these programs use them; and whether it
still holds on a device, by a few fresh measurements.

Operands come from memory (`cold`), activations are in their format already, nothing is written into a paged cache.
"""

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy

from dragonscale.errors import InputError
from dragonscale.evidence.calibrate.cases import BenchCase, calibrated
from dragonscale.evidence.calibrate.records import TimedCase
from dragonscale.physics.hardware.chip import Chip
from dragonscale.physics.kernels import (
    attention_seconds,
    decode_attention_seconds,
    grouped_matmul_seconds,
    matmul_seconds,
    memory_seconds,
)
from dragonscale.physics.kernels.attention import attention_backward_seconds
from dragonscale.physics.kernels.dtypes import FORMATS, stand_ins
from dragonscale.physics.kernels.profile import FittedOn, KernelProfile

LEAST_ALLOWED = 0.10
TIMES_STATED = 2.0
TAKEN_OVER = "taken from the built-in profile"
"""How the note of a table begins that was not measured."""
TABLES = {kind: row["table"] for kind, row in calibrated("kinds").items() if "table" in row}
"""The kind of table that a kind of case is expected by."""
RAGGED = "ragged_dot"
"""The name of JAX's own grouped matmuls among the implementations of experts."""


def expected_seconds(rows: Sequence[TimedCase], profile: KernelProfile) -> Any:
    """Seconds that a profile expects for each row; all of one kind and format."""
    kind, dtype = rows[0].kind, rows[0].dtype
    sizes: list[Any] = [numpy.array(column, dtype=float) for column in zip(*(row.sizes for row in rows), strict=True)]
    common: dict[str, Any] = {"dtype": dtype, "profile": profile}
    if kind.startswith("matmul"):
        return matmul_seconds(*sizes, **common, out_bytes=4 if dtype in ("fp32", "int8") else 2)
    if kind == "decode":
        return decode_attention_seconds(*sizes, **common)
    if kind.startswith("attention"):
        batch, tokens, *heads = sizes
        forward = attention_seconds(batch, tokens, tokens, *heads, **common)
        if kind == "attention":
            return forward
        return forward + attention_backward_seconds(batch, tokens, tokens, *heads, **common)
    if kind == "experts":
        known = profile.grouped.of(dtype)
        return grouped_matmul_seconds(*sizes, **common, implementation=RAGGED if RAGGED in known else "")
    if kind in ("copy", "read", "product"):
        return memory_seconds(sizes[0], profile)
    raise InputError(f"No profile of kernels says how long a {kind} takes.")


def has_rate(case: BenchCase | TimedCase, chip: Chip) -> bool:
    """Whether a profile of a chip can say how long a case takes: its matrix unit has a rate for the format, which most
    have not for fp32. What only moves bytes needs none."""
    return TABLES.get(case.kind) == "stream" or chip.rate(FORMATS[case.dtype].compute) is not None


def by_kind(rows: Sequence[TimedCase]) -> dict[tuple[str, str], list[TimedCase]]:
    """Rows that can be predicted in one call."""
    found: dict[tuple[str, str], list[TimedCase]] = {}
    for row in rows:
        found.setdefault((row.kind, row.dtype), []).append(row)
    return found


def log_errors(rows: Sequence[TimedCase], profile: KernelProfile) -> Any:
    """log(expected / measured) of each row, kind by kind."""
    found = [
        numpy.log(numpy.maximum(expected_seconds(alike, profile), 1e-12)) - numpy.log([row.seconds for row in alike])
        for alike in by_kind(rows).values()
    ]
    return numpy.concatenate(found) if found else numpy.zeros(0)


def shape_of(row: TimedCase) -> tuple[object, ...]:
    """What is held out together: the weights of a matmul whatever its rows, the heads of attention, a mixture."""
    sizes = row.sizes
    if row.kind == "matmul_dw":
        return ("matmul", *sorted(sizes[:2]))
    if row.kind.startswith("matmul"):
        return ("matmul", *sorted(sizes[1:]))
    if row.kind.startswith("attention") or row.kind == "decode":
        return (row.kind.split("_")[0], *sizes[2:])
    return (row.kind, *sizes[1:]) if row.kind == "experts" else (row.kind, *sizes)


class CheckedCase(msgspec.Struct):
    """A fresh measurement beside what the profile expects."""

    case: str
    measured_s: float
    expected_s: float
    error: float


class CheckedTable(msgspec.Struct):
    """The median error of fresh measurements of a table, beside the error that it states of shapes it was not fitted
    on."""

    table: str
    cases: int
    error: float
    stated_error: float | None
    holds: bool


def few_cases(cases: Sequence[BenchCase], chip: Chip) -> list[BenchCase]:
    """The first of each table that a profile of the chip can have, as many as tell whether it holds."""
    taken, few = Counter[tuple[str, str]](), []
    for case in cases:
        table = TABLES.get(case.kind)
        if table is None or not has_rate(case, chip):
            continue
        taken[table, case.dtype] += 1
        if taken[table, case.dtype] <= calibrated("few")[table]:
            few.append(case)
    return few


def check_tables(rows: Sequence[TimedCase], profile: KernelProfile) -> tuple[list[CheckedTable], list[CheckedCase]]:
    """Each table's error, and each case beside what the profile expects of it, of tables that were themselves measured;
    formats that the chip has no rate for are left out.

    A table holds if the median error of its fresh cases is no more than twice the error that it states of shapes it was
    not fitted on, and no more than a tenth where that is small or not stated: a profile of another driver, another
    clock or another library misses by more."""
    rows = [row for row in rows if TABLES.get(row.kind) and has_rate(row, profile.chip)]
    rows = [row for row in rows if not _taken_over(row, profile)] or rows
    expected: dict[str, float] = {}
    for alike in by_kind(rows).values():
        seconds = expected_seconds(alike, profile)
        expected |= {row.case.id: float(value) for row, value in zip(alike, seconds, strict=True)}
    cases = [
        CheckedCase(row.case.id, row.seconds, expected[row.case.id], expected[row.case.id] / row.seconds - 1)
        for row in rows
    ]
    tables: dict[str, tuple[FittedOn | None, list[float]]] = {}
    for row, case in zip(rows, cases, strict=True):
        name, rest = _table_of(row, profile)
        tables.setdefault(name, (rest, []))[1].append(abs(case.error))
    checks = []
    for name, (rest, errors) in tables.items():
        stated = (rest.unseen_shapes or rest.held_out or rest.median_ape) if rest else None
        error = float(statistics.median(errors))
        holds = error <= max(LEAST_ALLOWED, TIMES_STATED * (stated or 0.0))
        checks.append(CheckedTable(name, len(errors), error, stated, holds))
    return checks, cases


def _taken_over(row: TimedCase, profile: KernelProfile) -> bool:
    """Whether the row's table is not the profile's own, but that of the built-in one it started from."""
    rest = _table_of(row, profile)[1]
    return rest is not None and rest.note.startswith(TAKEN_OVER)


def _table_of(row: TimedCase, profile: KernelProfile) -> tuple[str, FittedOn | None]:
    """The table that a row is expected by, and what that rests on."""
    kind = TABLES[row.kind]
    if kind == "stream":
        return kind, profile.rests_on.get(kind)
    tables = getattr(profile, kind).by_format
    name = next((one for one in stand_ins(row.dtype) if one in tables), next(iter(tables)))
    if kind != "grouped":
        return f"{kind}.{name}", profile.rests_on.get(f"{kind}.{name}")
    who = RAGGED if RAGGED in tables[name] else next(iter(tables[name]))
    return f"{kind}.{name}.{who}", profile.rests_on.get(f"{kind}.{name}.{who}")
