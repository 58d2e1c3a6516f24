"""The record that `dscale profile` answers with: what the profile says, with the faces of an answer."""

from typing import ClassVar

from dragonscale.commands.record import Record
from dragonscale.evidence.profiles.analysis import Analysis
from dragonscale.evidence.profiles.records import ProfileReading
from dragonscale.physics.units import render


# Record has no fields of its own, so nothing of a frozen record can change through it
class ProfileReport(ProfileReading, Record, frozen=True):  # pyright: ignore[reportGeneralTypeIssues]
    """Where the time of a step went. `analysis` has what stands behind it: the recording, each op's role, the steps."""

    ROWS: ClassVar[str] = "groups"

    @classmethod
    def of(cls, analysis: Analysis) -> "ProfileReport":
        """An analysis as an answer."""
        made = cls(**{name: getattr(analysis.reading, name) for name in ProfileReading.__struct_fields__})
        vars(made)["analysis"] = analysis
        return made

    @property
    def analysis(self) -> Analysis:
        """The recording and the arrays that the numbers were made of; not part of `--json`."""
        return vars(self)["analysis"]

    def headline(self) -> str:
        chip = f" on {self.chip or self.device}" if self.chip or self.device else ""
        told = f", MFU {self.mfu:.0%}" if self.mfu is not None else ""
        return f"a step of {render(self.step_s, 's')}{chip}{told}"
