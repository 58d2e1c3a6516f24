"""How far predictions are from measurements.

`ape` is |predicted − measured| / measured, `mape` its mean and `median_ape` its median; `bias` is the mean of
(predicted − measured) / measured, so a positive one means pessimism about time.
"""

import csv
import io
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragonscale.errors import InputError, shorten


@dataclass(frozen=True)
class Scored:
    """One row of measurements and what was predicted for it; `group` and `large` are labels for tables."""

    id: str
    source: str
    measured: float
    predicted: float
    group: str = ""
    large: bool = True

    @property
    def error(self) -> float:
        """Signed, relative to the measurement."""
        return (self.predicted - self.measured) / self.measured

    @property
    def ape(self) -> float:
        """Without its sign."""
        return abs(self.error)


def statistics_of(rows: Sequence[Scored]) -> dict[str, Any]:
    """The error statistics of some rows; only their number if there are none.

    >>> statistics_of([Scored("a", "s", 2.0, 3.0), Scored("b", "s", 2.0, 2.0)])["mape"]
    0.25
    """
    if not rows:
        return {"rows": 0}
    errors = [row.ape for row in rows]
    return {
        "rows": len(rows),
        "mape": statistics.fmean(errors),
        "median_ape": statistics.median(errors),
        "bias": statistics.fmean(row.error for row in rows),
        "within_10pct": sum(error <= 0.10 for error in errors) / len(errors),
    }


def by(rows: Iterable[Scored], label: Callable[[Scored], str]) -> dict[str, list[Scored]]:
    """Rows by a label, in the order in which labels appear."""
    groups: dict[str, list[Scored]] = {}
    for row in rows:
        groups.setdefault(label(row), []).append(row)
    return groups


@dataclass(frozen=True)
class Report:
    """What a validation found: every scored row, and how many were left out for which reason."""

    scored: tuple[Scored, ...]
    skipped: dict[str, int]
    group_name: str = "network"

    @property
    def rows(self) -> int:
        """Rows read in all."""
        return len(self.scored) + sum(self.skipped.values())

    def as_json(self, worst: int = 10) -> dict[str, Any]:
        """The record of `dscale validate --json`."""
        overall = statistics_of(self.scored)
        ordered = sorted(self.scored, key=lambda row: -row.ape)[:worst]
        groups = by(self.scored, lambda row: row.group)
        return {
            "rows": self.rows,
            "scored": len(self.scored),
            "skipped": dict(sorted(self.skipped.items())),
            "mape": overall.get("mape"),
            "median_ape": overall.get("median_ape"),
            "bias": overall.get("bias"),
            "within_10pct": overall.get("within_10pct"),
            "by_source": {
                source: statistics_of(rows) for source, rows in by(self.scored, lambda row: row.source).items()
            },
            f"by_{self.group_name}": {
                name: statistics_of(rows) | {"large": statistics_of([row for row in rows if row.large])}
                for name, rows in sorted(groups.items())
            },
            "worst": [
                {"id": row.id, "measured": row.measured, "predicted": row.predicted, "ape": row.ape} for row in ordered
            ],
        }


def write_scores(report: Report, path: str | Path) -> None:
    """`id,measured,predicted,ape` for every scored row."""
    try:
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "measured", "predicted", "ape"])
            for row in report.scored:
                writer.writerow([row.id, f"{row.measured:.6g}", f"{row.predicted:.6g}", f"{row.ape:.4f}"])
    except OSError as error:
        raise InputError(f"The scores cannot be written to {shorten(str(path))}: {error.strerror}.") from None


MAX_CSV_BYTES = 100_000_000


def read_rows(path: str | Path) -> tuple[list[str], list[dict[str, str]]]:
    """The columns and rows of a CSV file, every cell as stripped text, or one sentence about why not."""
    file = Path(path)
    shown = shorten(str(path))
    try:
        if file.stat().st_size > MAX_CSV_BYTES:
            raise InputError(f"The file {shown} is larger than {MAX_CSV_BYTES // 10**6} MB; split it into parts.")
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"The file {shown} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise InputError(f"The file {shown} is not text; give a CSV file of measurements.") from None
    try:
        lines = csv.reader(io.StringIO(text, newline=""))
        header = [name.strip() for name in next(lines, [])]
        cells = [line for line in lines if any(cell.strip() for cell in line)]
    except csv.Error as error:
        raise InputError(f"The file {shown} is not CSV: {error}.") from None
    if not any(header):
        raise InputError(f"The file {shown} is empty; give a CSV file of measurements with a line of column names.")
    rows = [dict(zip(header, [cell.strip() for cell in line] + [""] * len(header), strict=False)) for line in cells]
    return header, rows


def number(cell: str | None) -> float | None:
    """A cell as a positive number of a size that anything measured has, or None."""
    try:
        value = float((cell or "").replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 < value < 1e18 else None


def report_of(scored: Iterable[Scored], skipped: Iterable[str], group_name: str = "network") -> Report:
    """Collect results: the scored rows, and one reason for each row left out."""
    return Report(tuple(scored), dict(Counter(skipped)), group_name)
