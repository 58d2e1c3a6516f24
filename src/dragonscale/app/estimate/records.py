"""The records that `dscale estimate` answers with; `--json` prints them as they are."""

from typing import ClassVar

import msgspec

from dragonscale.app.record import Record
from dragonscale.errors import unknown
from dragonscale.sheets.sheet import Sheet


class EstimateLine(msgspec.Struct):
    """A quantity in its unit, the formula it comes from, and the formula with the numbers put in."""

    name: str
    value: float
    unit: str
    formula: str
    numbers: str
    group: str = ""
    note: str = ""


class EstimateReport(Record):
    """The lines in the order of the groups; `letters` is what each letter of the formulas stands for."""

    ROWS: ClassVar[str] = "lines"

    model: str
    on: str
    parameters: float
    active_parameters: float
    tokens: float
    seq: int
    context: int
    mfu: float
    lines: list[EstimateLine]
    letters: dict[str, float]
    notes: list[str]
    weights: str
    """The format of the weights that are served."""

    def line(self, name: str) -> EstimateLine:
        """The line of a name, such as `run time`."""
        for one in self.lines:
            if one.name == name:
                return one
        raise unknown("line of the estimate called", name, [one.name for one in self.lines])

    def __getitem__(self, name: str) -> float:
        """The value of a line: `estimate["training FLOPs"]`."""
        return self.line(name).value

    def find(self, name: str) -> EstimateLine | None:
        """The line of a name where the estimate has it."""
        return next((one for one in self.lines if one.name == name), None)

    def headline(self) -> str:
        from dragonscale.app.estimate.sheet import headline

        return headline(self)

    def sheet(self, detail: bool = False) -> Sheet:  # noqa: ARG002  its formulas are the answer
        from dragonscale.app.estimate.sheet import estimate_sheet

        return estimate_sheet(self)
