"""The record that `dscale profile` answers with: what the profile says, with the faces of an answer."""

from typing import Any, ClassVar, cast

from msgspec import structs

from dragonscale.commands.record import Beside, Record
from dragonscale.evidence.profiles.analysis import Analysis
from dragonscale.evidence.profiles.records import ProfileReading
from dragonscale.physics.units import render


# Answers carry attributes beside their fields (the question, notes), so they are not frozen as the reading is.
class ProfileReport(ProfileReading, Record, frozen=False):  # pyright: ignore[reportGeneralTypeIssues]
    """Where the time of a step went. `analysis` has what stands behind it: the recording, each op's role, the steps."""

    ROWS: ClassVar[str] = "groups"
    analysis = Beside[Analysis](cast(Any, None))
    """The recording and the arrays that the numbers were made of."""

    @classmethod
    def of(cls, analysis: Analysis) -> "ProfileReport":
        """An analysis as an answer."""
        report = cls(**structs.asdict(analysis.reading))
        report.analysis = analysis
        return report

    def headline(self) -> str:
        text = f"a step of {render(self.step_s, 's')}"
        if self.chip or self.device:
            text += f" on {self.chip or self.device}"
        if self.mfu is not None:
            text += f", MFU {self.mfu:.0%}"
        return text
