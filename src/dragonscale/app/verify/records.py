"""The record that `dscale verify` answers with: the comparison, with the faces of an answer."""

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from dragonscale.app.record import Record
from dragonscale.app.verify import words
from dragonscale.evidence.verify.records import VerifyReport
from dragonscale.sheets.sheet import Sheet

if TYPE_CHECKING:
    from dragonscale.sheets.charts.chart import Chart


# Record has no fields of its own, so nothing of a frozen record can change through it
class Verification(VerifyReport, Record, frozen=True):  # pyright: ignore[reportGeneralTypeIssues]
    """Planned and compiled side by side."""

    CHARTS: ClassVar[tuple[str, ...]] = ("compiled",)

    @classmethod
    def of(cls, report: VerifyReport) -> "Verification":
        """A comparison as an answer."""
        return cls(**{name: getattr(report, name) for name in VerifyReport.__struct_fields__})

    @property
    def exit_code(self) -> int:
        return words.exit_code(self)

    def headline(self) -> str:
        return f"{words.title(self.request)}: {words.outcome(self)}"

    def rows(self) -> list[dict[str, Any]]:
        """A row for each number that was compared."""
        return [{"what": name, **msgspec.to_builtins(line)} for name, line in words.judged(self)]

    def sheet(self, detail: bool = False) -> Sheet:
        from dragonscale.app.verify.sheet import verify_sheet

        return verify_sheet(self, detail)

    def draw(self, kind: str) -> "Chart":
        from dragonscale.app.verify.charts import draw

        return draw(kind, self.asked, self)

    def save_page(self, path: str) -> str:
        """Write the comparison as a page of HTML that needs nothing else."""
        from dragonscale.app.verify.html import save_page

        save_page(self, path)
        return ""
