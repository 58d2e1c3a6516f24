"""The record that `dscale run train` answers with."""

from dataclasses import fields
from typing import Any

from dragonscale.app.profile.records import ProfileReport
from dragonscale.app.record import Record
from dragonscale.errors import InputError
from dragonscale.physics.units import render
from dragonscale.sheets.sheet import Sheet


class TrainRun(Record):
    """What came of a run. Times are medians over the steps after the first, which also compiles; `planned` is the
    planner's step on the slice that was named, none without one."""

    model: str
    plan: str
    devices: int
    device_kind: str
    parameters: int
    first_step: int
    last_step: int
    steps: int
    stopped: str
    loss: float | None
    compile_s: float | None
    step_s: float | None
    tokens_per_s: float | None
    flops_per_s_per_device: float | None
    mfu: float | None
    state_bytes_per_device: int
    capacity: float | None
    """Room of an expert over its even share of tokens (0: none are dropped); null of a model without experts."""
    planned: Any
    profile: ProfileReport | None = None
    """Where the time of the recorded steps went, with `--profile`."""

    @classmethod
    def of(cls, result: Any, profile: ProfileReport | None = None) -> "TrainRun":
        """The answer from the loop's own `TrainResult`."""
        return cls(**{field.name: getattr(result, field.name) for field in fields(result)}, profile=profile)

    def headline(self) -> str:
        step = "" if self.step_s is None else f", {render(self.step_s, 's')} a step"
        return f"{self.model}: steps {self.first_step:,} to {self.last_step:,}{step}"

    def sheet(self, detail: bool = False) -> Sheet:
        from dragonscale.app.run.sheet import run_sheet

        own = run_sheet(self)
        return own if self.profile is None else Sheet((*own.blocks, *self.profile.sheet(detail).blocks))

    def save_page(self, path: str) -> str | None:
        return self._recorded().save_page(path)

    def save_timeline(self, path: str) -> str | None:
        return self._recorded().save_timeline(path)

    def _recorded(self) -> ProfileReport:
        if self.profile is None:
            raise InputError("A run has a page and a timeline where it records steps; give --profile 3.")
        return self.profile
