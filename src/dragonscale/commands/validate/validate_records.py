"""The records that `dscale validate` answers with: every scored row of a file with what the errors come to; or one run,
what was measured of it beside what its plan was expected to do."""

import csv
import io
from typing import Any, ClassVar

import msgspec

from dragonscale.blocks.sheet import amount
from dragonscale.commands.record import Record
from dragonscale.commands.train.train_records import SuspectRow
from dragonscale.evidence.score import ScoreReport, write_scores
from dragonscale.files import write_file
from dragonscale.physics.hardware.catalogue import is_chip
from dragonscale.physics.hardware.driver_names import chip_named


class Validation(Record):
    """Predictions of one kind against measurements. `parts` names what was asked for beyond the errors.

    Its JSON is not its fields but `scores.as_json()`, whose keys depend on the kind.
    """

    CHARTS: ClassVar[tuple[str, ...]] = ("scatter",)

    kind: str
    scores: ScoreReport
    parts: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return self.scores.as_json()

    def headline(self) -> str:
        scores = self.to_dict()
        error = ""
        if scores["median_ape"] is not None:
            error = f", median error {scores['median_ape']:.1%}"
        return f"{self.kind}: {scores['scored']} of {scores['rows']} rows scored{error}"

    def rows(self) -> list[dict[str, Any]]:
        """A row for each one scored."""
        names = ("id", "source", "group", "measured", "predicted", "ape")
        return [{name: getattr(row, name) for name in names} for row in self.scores.scored]


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
            if value is None:
                return "–"
            return f"{value:.1%}"
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
    # the band within which four of five published runs lie
    low, high = band or (None, None)
    if low is None or high is None:
        inside = None
    else:
        inside = low <= measured <= high
    ratio = 0.0
    if expected:
        ratio = measured / expected
    return MeasureRow(name, dimension, measured, expected, ratio, low, high, inside, *(spread or (None, None)))


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
        verdict = {True: "inside the band", False: "outside the band", None: "no band"}[first.inside]
        return (
            f"{self.model} on {self.slice}: {first.name} {first.shown(first.measured)}, {first.ratio:.2f}x expected, "
            f"{verdict}"
        )


def save_scores(answer: Validation, path: str) -> str:
    """Write `id,measured,predicted,ape` of every scored row as CSV."""
    write_scores(answer.scores, path)
    return ""


def save_measures(answer: RunScore, path: str) -> str:
    """Write every number of a run as CSV."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, MeasureRow.__struct_fields__)
    writer.writeheader()
    writer.writerows(msgspec.to_builtins(row) for row in answer.measures)
    write_file(path, text.getvalue(), "The file of scores")
    return ""


def slice_for(on: Any, device: str, chips: int) -> Any:
    """The slice that was given; a chip alone, or the log's device, with the run's number of chips.

    >>> slice_for("h100", "", 16), slice_for("h100:8", "", 16), slice_for("", "NVIDIA GB200", 4), slice_for("", "", 4)
    ('h100:16', 'h100:8', 'gb200:4', '')
    """
    where = on or chip_named(device)
    # a chip without a number has as many as ran
    if isinstance(where, str) and chips and is_chip(where.strip()):
        return f"{where.strip()}:{chips}"
    return where
