"""What a calibration found, as a record."""

from typing import ClassVar

import msgspec

from dragonscale.commands.record import Record
from dragonscale.errors import MISSED
from dragonscale.evidence.calibrate.fitting import CheckedCase, CheckedTable
from dragonscale.evidence.calibrate.own_profile import ProfileTable


class MeasuredCollective(msgspec.Struct):
    """A collective over the devices of this machine, beside what the built-in profile of the network expects."""

    collective: str
    bytes: float
    devices: int
    measured_s: float
    expected_s: float | None


class SettledConstant(msgspec.Struct):
    """A constant of the stack or the engine, as `dragonscale` has it and as the steps say."""

    of: str
    name: str
    before: float
    after: float


class TimedStep(msgspec.Struct):
    """A step beside what was expected of it before and with the settled constants; `use`: to fit on, or left out."""

    case: str
    use: str
    measured_s: float
    before_s: float
    expected_s: float


class LeftOutSteps(msgspec.Struct):
    """The errors on steps of models that constants were not settled on."""

    what: str
    fitted: int
    left_out: int
    median_error: float
    worst_error: float


class CalibrationReport(Record):
    """The device, what was measured, the profile's tables; or, of a check, what the profile says beside it."""

    ROWS: ClassVar[str] = "tables"

    device: str
    devices: int
    chip: str
    timed_with: str
    software: dict[str, str]
    measured: int
    failed: int
    planned: list[str]
    """With --dry-run: the cases, in their order."""
    planned_s: float
    tables: list[ProfileTable]
    checked: list[CheckedCase]
    checked_tables: list[CheckedTable]
    checked_profile: str
    host_dispatch_s: float | None
    """What a call costs the host."""
    host_round_trip_s: float | None
    """A call and the wait for its result."""
    collectives: list[MeasuredCollective]
    records: str
    profile: str
    installed: str
    constants: list[SettledConstant] = []
    """With --whole-steps: what was settled."""
    steps: list[TimedStep] = []
    left_out: list[LeftOutSteps] = []
    unknown_rows: list[str] = []
    """Rows of the file of steps that are of no case there is, and were not used."""

    @property
    def exit_code(self) -> int:
        if all(table.holds for table in self.checked_tables):
            return 0
        return MISSED

    def headline(self) -> str:
        if self.planned:
            return f"{len(self.planned)} cases to measure on {self.device}"
        if self.steps:
            errors = ", ".join(f"{row.what} {row.median_error:.0%}" for row in self.left_out)
            return f"{self.chip}: a stack settled on {self.measured} steps" + (
                f"; left out: {errors}" if errors else ""
            )
        if self.checked_tables:
            missed = [row.table for row in self.checked_tables if not row.holds]
            return f"{self.checked_profile} on {self.device}: {'missed by ' + ', '.join(missed) if missed else 'holds'}"
        fitted = [row for row in self.tables if row.rows and row.error is not None]
        return f"{self.chip}: {len(fitted)} tables fitted on {self.measured} measurements"
