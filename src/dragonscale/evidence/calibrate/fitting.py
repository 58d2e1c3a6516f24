"""The constants of a table that fit measured kernels best, and how far off they are on kernels left out.

Least squares of log(predicted/measured) with a soft loss and a weak pull towards usual constants, which decides what
the rows leave open. Every constant is searched as its logarithm, so that none becomes negative. Deterministic.

What a profile expects of measured cases, by the formulas of `kernels/` as these programs use them; and whether it
still holds on a device, by a few fresh measurements.

Operands come from memory (`cold`), activations are in their format already, nothing is written into a paged cache.
"""

import hashlib
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
import numpy

from dragonscale.errors import InputError
from dragonscale.evidence.calibrate.cases import BenchCase, TimedCase, calibrated
from dragonscale.physics import kernels
from dragonscale.physics.hardware.chip import Chip
from dragonscale.physics.kernels.attention import attention_backward_seconds
from dragonscale.physics.kernels.dtypes import FORMATS, stand_ins
from dragonscale.physics.kernels.profile import FittedOn, KernelProfile

Case = TypeVar("Case")
Solve = Callable[..., Any]

PULL = 0.05
SOFT = 0.1
BOUNDS = msgspec.convert(calibrated("bounds"), dict[str, dict[str, tuple[float, float, float]]])
"""The constants that are fitted, by kind of table: lowest, where the search starts, highest."""
STEP = 1e-3
TIGHT = 1e-6
"""The search ends when a step brings less than this of the cost."""

Bounds = dict[str, tuple[float, float, float]]
Errors = Callable[[Any], Any]
"""log(predicted/measured) of some cases, by a table's constants."""


def fit_between(residual: Any, start: Any, low: Any, high: Any, effort: int = 60, soft: float = SOFT) -> Any:
    """The parameters between `low` and `high` with the least soft cost, found in at most `effort` steps of Levenberg
    and Marquardt, in NumPy alone.

    A residual r counts as 2·s²·(√(1 + (r/s)²) - 1): as a square where it is small beside s, as its size where it is
    large, so that odd rows do not pull. Slopes come from small differences; a parameter at its bound that would go
    beyond it stays.

    >>> import numpy
    >>> x = numpy.array([0.0, 1.0, 2.0, 3.0])
    >>> line = lambda p: p[0] + p[1] * x - numpy.array([1.0, 3.0, 5.0, 7.0])
    >>> wide = numpy.full(2, 100.0)
    >>> fit_between(line, numpy.zeros(2), -wide, wide, soft=0.1).round(1)
    array([1., 2.])
    >>> fit_between(line, numpy.zeros(2), -wide, numpy.array([100.0, 1.5]), soft=10.0).round(2)
    array([1.75, 1.5 ])
    """

    def cost(residuals: numpy.ndarray) -> float:
        with numpy.errstate(over="ignore", invalid="ignore"):
            total = float((numpy.sqrt(1 + (residuals / soft) ** 2) - 1).sum())
        return total if numpy.isfinite(total) else float("inf")

    at = numpy.clip(start, low, high)
    now = residual(at)
    least, damping = cost(now), 1e-2
    for _ in range(effort):
        nudges = numpy.where(at + STEP <= high, STEP, -STEP)
        moved = zip(numpy.diag(nudges), nudges, strict=True)
        slopes = numpy.stack([(residual(at + nudge) - now) / step for nudge, step in moved], axis=1)
        weight = 1 / numpy.sqrt(1 + (now / soft) ** 2)  # rows count the less the farther off they are
        gradient, curvature = slopes.T @ (weight * now), (slopes.T * weight) @ slopes
        held = ((at <= low) & (gradient > 0)) | ((at >= high) & (gradient < 0))
        free = numpy.flatnonzero(~held)
        block = curvature[numpy.ix_(free, free)]
        damped, step = numpy.diag(numpy.maximum(numpy.diag(block), 1e-9)), numpy.zeros_like(at)
        for _ in range(12 if len(free) else 0):
            step[free] = numpy.linalg.lstsq(block + damping * damped, -gradient[free], rcond=None)[0]
            trial = numpy.clip(at + step, low, high)
            then = residual(trial)
            if (reached := cost(then)) < least:
                break
            damping *= 4
        else:  # no step is any better
            return at
        gained, at, now, least = least - reached, trial, then, reached
        damping = max(damping / 6, 1e-9)
        if gained < TIGHT * least:
            break
    return at


def fit_table(start: Any, bounds: Bounds, errors: Errors, solve: Solve = fit_between, effort: int = 60) -> Any:
    """The constants that leave the least errors, the others as they are in `start`."""
    free = {name: pair for name, pair in bounds.items() if getattr(start, name)}
    low, centre, high = (numpy.log([pair[side] for pair in free.values()]) for side in (0, 1, 2))

    def made(values: numpy.ndarray) -> Any:
        return replace(start, **dict(zip(free, map(float, numpy.exp(values)), strict=True)))

    def residual(values: numpy.ndarray) -> numpy.ndarray:
        return numpy.concatenate([errors(made(values)), PULL * (values - centre)])

    found = made(solve(residual, centre, low, high, effort))
    return replace(found, **{name: float(f"{getattr(found, name):.4g}") for name in free})


def held_out_error(
    cases: Sequence[Case],
    label: Callable[[Case], Any],
    fitted: Callable[[Sequence[Case]], Any],
    errors: Callable[[Sequence[Case], Any], Any],
) -> float | None:
    """The median error on cases left out of the fit, a label at a time; None if there is only one label."""
    found: list[numpy.ndarray] = []
    for left in sorted({label(case) for case in cases}):
        kept = [case for case in cases if label(case) != left]
        if kept:
            found.append(errors([case for case in cases if label(case) == left], fitted(kept)))
    return median_error(numpy.concatenate(found)) if found else None


def median_error(logs: Any) -> float:
    """The median of |predicted/measured - 1|.

    >>> import math
    >>> round(median_error([math.log(1.1), math.log(0.9), 0.0]), 3)
    0.1
    >>> median_error([1000.0]) > 1e300
    True
    """
    return float(numpy.median(numpy.abs(numpy.expm1(numpy.minimum(logs, 700.0)))))


def fold(text: Any, folds: int) -> int:
    """One of so many parts, by a hash: the same on every machine."""
    return int(hashlib.sha256(repr(text).encode()).hexdigest(), 16) % folds


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
        return kernels.matmul_seconds(*sizes, **common, out_bytes=4 if dtype in ("fp32", "int8") else 2)
    if kind == "decode":
        return kernels.decode_attention_seconds(*sizes, **common)
    if kind.startswith("attention"):
        batch, tokens, *heads = sizes
        forward = kernels.attention_seconds(batch, tokens, tokens, *heads, **common)
        if kind == "attention":
            return forward
        return forward + attention_backward_seconds(batch, tokens, tokens, *heads, **common)
    if kind == "experts":
        known = profile.grouped.of(dtype)
        return kernels.grouped_matmul_seconds(*sizes, **common, implementation=RAGGED if RAGGED in known else "")
    if kind in ("copy", "read", "product"):
        return kernels.memory_seconds(sizes[0], profile)
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
