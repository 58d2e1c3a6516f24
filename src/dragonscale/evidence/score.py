"""How far predictions are from measurements.

`ape` is |predicted − measured| / measured, `mape` its mean and `median_ape` its median; `bias` is
the mean of (predicted − measured) / measured, so a positive one means pessimism about time."""

import csv
import io
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dragonscale.files import write_file


@dataclass(frozen=True)
class Scored:
    """One row of measurements and what was predicted for it; `group` and `large` are labels for
    tables. `inferred`: a setting of the prediction was read off results, this one among them."""

    id: str
    source: str
    measured: float
    predicted: float
    group: str = ""
    large: bool = True
    inferred: bool = False

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


def stated_of(rows: Iterable[Scored]) -> list[Scored]:
    """The rows that an overall error is of: those with nothing inferred from results, or all where there are no others.

    >>> [row.id for row in stated_of([Scored("a", "s", 2.0, 3.0), Scored("b", "s", 2.0, 2.0, inferred=True)])]
    ['a']
    """
    every = list(rows)
    return [row for row in every if not row.inferred] or every


def by(rows: Iterable[Scored], label: Callable[[Scored], str]) -> dict[str, list[Scored]]:
    """Rows by a label, in the order in which labels appear."""
    groups: dict[str, list[Scored]] = {}
    for row in rows:
        groups.setdefault(label(row), []).append(row)
    return groups


def worst_of(rows: Iterable[Scored], most: int = 10) -> list[dict[str, Any]]:
    """The rows with the largest errors, as JSON has them."""
    ordered = sorted(rows, key=lambda row: -row.ape)[:most]
    return [{"id": row.id, "measured": row.measured, "predicted": row.predicted, "ape": row.ape} for row in ordered]


@dataclass(frozen=True)
class ScoreReport:
    """What a validation found: every scored row, how many were left out for which reason, in
    `apart` what is scored apart, as JSON has it, and how many rows were only `decided` (yes or no). Errors are those
    of rows with nothing inferred from results."""

    scored: tuple[Scored, ...]
    skipped: dict[str, int]
    group_name: str = "network"
    apart: dict[str, Any] = field(default_factory=dict)
    decided: int = 0

    @property
    def rows(self) -> int:
        """Rows read in all."""
        return len(self.scored) + self.decided + sum(self.skipped.values())

    def as_json(self) -> dict[str, Any]:
        """The record of `dscale validate --json`."""
        stated = stated_of(self.scored)
        overall = statistics_of(stated)
        groups = by(stated, lambda row: row.group)
        names = ("mape", "median_ape", "bias", "within_10pct")
        return {
            "rows": self.rows,
            "scored": len(self.scored),
            "skipped": dict(sorted(self.skipped.items())),
            **{name: overall.get(name) for name in names},
            "by_source": {name: statistics_of(rows) for name, rows in by(stated, lambda row: row.source).items()},
            f"by_{self.group_name}": {
                name: statistics_of(rows) | {"large": statistics_of([row for row in rows if row.large])}
                for name, rows in sorted(groups.items())
            },
            "worst": worst_of(stated),
            **self.apart,
        }


def report_of(
    scored: Iterable[Scored], skipped: Iterable[str], group_name: str = "network", **apart: Any
) -> ScoreReport:
    """Collect results: the scored rows, one reason for each row left out, and what is scored
    apart."""
    return ScoreReport(tuple(scored), dict(Counter(skipped)), group_name, apart)


def write_scores(report: ScoreReport, path: str | Path) -> None:
    """`id,measured,predicted,ape` for every scored row."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["id", "measured", "predicted", "ape"])
    for row in report.scored:
        writer.writerow([row.id, f"{row.measured:.6g}", f"{row.predicted:.6g}", f"{row.ape:.4f}"])
    write_file(path, text.getvalue(), "The file of scores")
