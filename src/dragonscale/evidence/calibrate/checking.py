"""A profile beside a few fresh measurements: does it still hold on this device?

A table holds if the median error of its fresh cases is no more than twice the error that it states of shapes it was not
fitted on, and no more than a tenth where that is small or not stated: a profile of another driver, another clock or
another library misses by more.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dragonscale.evidence.calibrate.cases import BenchCase
from dragonscale.evidence.calibrate.expected import RAGGED, TABLES, by_kind, expected_seconds, has_rate
from dragonscale.evidence.calibrate.records import TimedCase
from dragonscale.physics.hardware.chip import Chip
from dragonscale.physics.kernels.dtypes import stand_ins
from dragonscale.physics.kernels.profile import FittedOn, KernelProfile

LEAST_ALLOWED = 0.10
TIMES_STATED = 2.0
TAKEN_OVER = "taken from the built-in profile"
"""How the note of a table begins that was not measured."""
FEW = {"matmul": 10, "attention": 5, "decode": 4, "grouped": 2, "stream": 4}


@dataclass(frozen=True)
class TableCheck:
    """A table's fresh error beside the one that it states."""

    name: str
    cases: int
    error: float
    stated: float | None

    @property
    def holds(self) -> bool:
        return self.error <= max(LEAST_ALLOWED, TIMES_STATED * (self.stated or 0.0))


def few_cases(cases: Sequence[BenchCase], chip: Chip) -> list[BenchCase]:
    """The first of each table that a profile of the chip can have, as many as tell whether it holds."""
    left, kept = dict[tuple[str, str], int](), []
    for case in cases:
        table = TABLES.get(case.kind)
        if table is None or not has_rate(case, chip):
            continue
        key = (table, case.dtype)
        left.setdefault(key, FEW[table])
        if left[key] > 0:
            left[key] -= 1
            kept.append(case)
    return kept


def check_tables(rows: Sequence[TimedCase], profile: KernelProfile) -> tuple[list[TableCheck], dict[str, float]]:
    """Each table's error, and what the profile expects of each case that it was itself measured for; formats that the
    chip has no rate for are left out."""
    import numpy

    rows = [row for row in rows if has_rate(row, profile.chip)]
    rows = [row for row in rows if not _taken_over(row, profile)] or rows
    expected: dict[str, float] = {}
    for alike in by_kind(rows).values():
        found = expected_seconds(alike, profile)
        expected |= {row.case.id: float(value) for row, value in zip(alike, found, strict=True)}
    errors: dict[str, list[float]] = {}
    stated: dict[str, FittedOn | None] = {}
    for row in rows:
        name, rest = _table_of(row, profile)
        errors.setdefault(name, []).append(abs(expected[row.case.id] / row.seconds - 1))
        stated[name] = rest
    checks = []
    for name, own in errors.items():
        rest = stated[name]
        states = (rest.unseen_shapes or rest.held_out or rest.median_ape) if rest else None
        checks.append(TableCheck(name, len(own), float(numpy.median(own)), states))
    return checks, expected


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
