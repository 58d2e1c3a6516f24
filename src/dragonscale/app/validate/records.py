"""The record that `dscale validate` answers with: every scored row, and what the errors come to."""

from typing import TYPE_CHECKING, Any, ClassVar

from dragonscale.app.record import Record
from dragonscale.evidence.score import ScoreReport, write_scores
from dragonscale.sheets.sheet import Sheet

if TYPE_CHECKING:
    from dragonscale.sheets.charts.chart import Chart


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
        found = self.to_dict()
        error = "" if found["median_ape"] is None else f", median error {found['median_ape']:.1%}"
        return f"{self.kind}: {found['scored']} of {found['rows']} rows scored{error}"

    def rows(self) -> list[dict[str, Any]]:
        """A row for each one scored."""
        return [
            {
                "id": row.id,
                "source": row.source,
                "group": row.group,
                "measured": row.measured,
                "predicted": row.predicted,
                "ape": row.ape,
            }
            for row in self.scores.scored
        ]

    def sheet(self, detail: bool = False) -> Sheet:
        from dragonscale.app.validate.sheet import score_sheet

        return score_sheet(self, detail)

    def draw(self, kind: str) -> "Chart":
        from dragonscale.app.charts.validate import draw

        return draw(kind, self.kind, self.scores)

    def save_rows(self, path: str) -> str:
        """Write `id,measured,predicted,ape` of every scored row as CSV."""
        write_scores(self.scores, path)
        return ""
