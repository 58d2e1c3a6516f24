"""The record that scores one run: what was measured beside what its plan was expected to do."""

import csv
import io
from typing import ClassVar

import msgspec

from dragonscale.app.record import Record
from dragonscale.app.train.records import SuspectRow
from dragonscale.files import write_file
from dragonscale.sheets.sheet import Sheet, amount


class MeasureRow(msgspec.Struct):
    """One number of a run. `low` and `high` are the band around the expectation, in which four of five published runs
    of the kind lie; null where none is known. `ratio` is measured over expected."""

    name: str
    dimension: str
    """Of both numbers: `s`, `bytes`, `count` (tokens a second), or `share`."""
    measured: float
    expected: float
    ratio: float
    low: float | None = None
    high: float | None = None
    inside: bool | None = None
    spread_low: float | None = None
    """The tenth and ninetieth percentile of what was measured, where the log has several."""
    spread_high: float | None = None

    def shown(self, value: float | None) -> str:
        """One of its numbers with its unit."""
        if self.dimension == "share":
            return "–" if value is None else f"{value:.1%}"
        return amount(value, self.dimension)


def measure(
    name: str,
    dimension: str,
    measured: float,
    expected: float,
    band: tuple[float, float] | None = None,
    spread: tuple[float, float] | None = None,
) -> MeasureRow:
    """A row from both numbers and the band around the expected one."""
    low, high = band or (None, None)
    inside = None if low is None or high is None else low <= measured <= high
    return MeasureRow(
        name,
        dimension,
        measured,
        expected,
        measured / expected if expected else 0.0,
        low,
        high,
        inside,
        *(spread or (None, None)),
    )


class RunScore(Record):
    """A run against its plan. `counted` steps (or requests) were measured, `skipped` ones were warm-up, after `starts`
    starts of the run; `failed` requests are in no number."""

    ROWS: ClassVar[str] = "measures"

    kind: str
    software: str
    """What wrote the log."""
    model: str
    slice: str
    plan: str
    judged_by: str
    """The stack or the engine whose expectation it is."""
    workload: str
    measures: list[MeasureRow]
    inside: bool | None
    """Whether every number with a band lies in it."""
    text: str
    counted: int
    skipped: int = 0
    starts: int = 1
    failed: int = 0
    band: str = ""
    """What the band rests on."""
    suspects: list[SuspectRow] = []
    notes: list[str] = []

    def headline(self) -> str:
        first = self.measures[0]
        told = {True: "inside the band", False: "outside the band", None: "no band"}[first.inside]
        return (
            f"{self.model} on {self.slice}: {first.name} {first.shown(first.measured)}, {first.ratio:.2f}x expected, "
            f"{told}"
        )

    def sheet(self, detail: bool = False) -> Sheet:
        from dragonscale.app.validate.run_sheet import run_sheet

        return run_sheet(self, detail)

    def save_rows(self, path: str) -> str:
        """Write every number as CSV."""
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, MeasureRow.__struct_fields__)
        writer.writeheader()
        writer.writerows(msgspec.to_builtins(row) for row in self.measures)
        write_file(path, text.getvalue(), "The file of scores")
        return ""
