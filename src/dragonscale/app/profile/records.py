"""The record that `dscale profile` answers with: what the profile says, with the faces of an answer."""

from typing import TYPE_CHECKING, ClassVar

from dragonscale.app.record import Record
from dragonscale.evidence.profiles.records import ProfileReading
from dragonscale.physics.units import render
from dragonscale.sheets.sheet import Sheet

if TYPE_CHECKING:
    from dragonscale.evidence.profiles.analysis import Analysis


# Record has no fields of its own, so nothing of a frozen record can change through it
class ProfileReport(ProfileReading, Record, frozen=True):  # pyright: ignore[reportGeneralTypeIssues]
    """Where the time of a step went. `analysis` has what stands behind it: the recording, each op's role, the steps."""

    ROWS: ClassVar[str] = "groups"

    @classmethod
    def of(cls, analysis: "Analysis") -> "ProfileReport":
        """An analysis as an answer."""
        made = cls(**{name: getattr(analysis.reading, name) for name in ProfileReading.__struct_fields__})
        vars(made)["analysis"] = analysis
        return made

    @property
    def analysis(self) -> "Analysis":
        """The recording and the arrays that the numbers were made of; not part of `--json`."""
        return vars(self)["analysis"]

    def headline(self) -> str:
        chip = f" on {self.chip or self.device}" if self.chip or self.device else ""
        told = f", MFU {self.mfu:.0%}" if self.mfu is not None else ""
        return f"a step of {render(self.step_s, 's')}{chip}{told}"

    def sheet(self, detail: bool = False) -> Sheet:
        from dragonscale.app.profile.sheet import profile_sheet

        return profile_sheet(self, detail)

    def save_page(self, path: str) -> str | None:
        from dragonscale.app.profile.page import save_page

        return save_page(self, path)

    def save_timeline(self, path: str) -> str:
        from dragonscale.app.profile.trace import save_trace

        return save_trace(self, path)
