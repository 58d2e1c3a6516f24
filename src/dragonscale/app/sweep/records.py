"""The records of `dscale sweep`: what is asked, what was answered, and the answer to the whole."""

import hashlib
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec

from dragonscale.app.record import Record
from dragonscale.errors import MISSED
from dragonscale.evidence.verify.sweep_score import SweepScore
from dragonscale.sheets.sheet import Sheet

if TYPE_CHECKING:
    from dragonscale.sheets.charts.chart import Chart

INTERRUPTED = 130

COMMANDS = ("verify", "train", "serve")


class Entry(msgspec.Struct, frozen=True):
    """One question of a grid: a command and its flags, by name."""

    command: Literal["verify", "train", "serve"]
    asks: dict[str, Any]

    @property
    def key(self) -> str:
        """A name for what is asked, the same for equal entries.

        >>> Entry("train", {"model": "a", "on": "b"}).key == Entry("train", {"on": "b", "model": "a"}).key
        True
        """
        return f"{self.command}-{hashlib.sha256(msgspec.json.encode(self, order='sorted')).hexdigest()[:20]}"


class Answer(msgspec.Struct, frozen=True):
    """A line of the results: the entry, the record that its command prints as JSON, or why there is none."""

    key: str
    command: str
    asks: dict[str, Any]
    seconds: float
    failed: str = ""
    answer: dict[str, Any] | None = None


class SweepReport(Record, frozen=True):  # pyright: ignore[reportGeneralTypeIssues]  Record has no fields
    """A whole sweep. `known` entries were answered before; `lines` (`rows` in JSON) are flat, one for each entry,
    in the grid's order."""

    CHARTS: ClassVar[tuple[str, ...]] = ("auto", "lines", "heat", "bars")

    grid: str
    entries: int
    known: int
    answered: int
    failed: int
    seconds: float
    lines: list[dict[str, Any]] = msgspec.field(name="rows")
    verify: SweepScore | None = None
    stopped: bool = False

    @property
    def exit_code(self) -> int:
        """4 where an entry failed or a verification differs; 130 where Ctrl-C ended it."""
        if self.stopped:
            return INTERRUPTED
        differing = self.verify is not None and "differs" in self.verify.verdicts
        return MISSED if differing or self.failed else 0

    def counts(self) -> str:
        """How many entries there are, and what became of them."""
        return f"{self.entries} entries: {self.known} known before, {self.answered} answered now, {self.failed} failed"

    def headline(self) -> str:
        return self.counts()

    def rows(self) -> list[dict[str, Any]]:
        return self.lines

    def sheet(self, detail: bool = False) -> Sheet:
        from dragonscale.app.sweep.sheet import sweep_sheet

        return sweep_sheet(self, detail)

    def draw(self, kind: str) -> "Chart":
        from dragonscale.app.sweep.charts import draw

        return draw(kind, self.asked.columns if self.asked is not None else "", self)

    def save_table(self, path: str) -> str:
        """Write the rows as .csv or .md; of a page with marks only what lies between them is replaced."""
        from dragonscale.app.sweep.table import save_table

        save_table(self, path)
        return ""
