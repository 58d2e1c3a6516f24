"""What `dscale calc` answers."""

from typing import ClassVar

import msgspec

from dragonscale.app.record import Record
from dragonscale.sheets.sheet import Sheet


class CalcLine(msgspec.Struct):
    """One answer: in base units, in the unit that was asked for, and as text; a formula where letters are left open."""

    name: str
    """The letter that was assigned or solved for, or the part of a result; empty for the expression itself."""
    sign: str
    value: float | None
    unit: str
    """The base unit: s, bytes, FLOP, USD, W and what is made of them; hourly prices are in USD/h. Empty for a count."""
    text: str
    formula: str = ""
    case: str = ""
    """The values of letters that were given several: `B=8`."""


class CalcName(msgspec.Struct):
    """What a name or a function stood for."""

    name: str
    value: float | None
    unit: str
    text: str
    source: str
    """Where a fact comes from; what a function works out."""
    function: bool = False


class CalcReport(Record):
    """The answers in order (`value`, `unit` and `text` are those of the last), and every name that was looked up."""

    ROWS: ClassVar[str] = "answers"

    expression: str
    value: float | None
    unit: str
    text: str
    formula: str
    answers: list[CalcLine]
    names: list[CalcName]

    def headline(self) -> str:
        return f"{self.expression}: {self.text}"

    def sheet(self, detail: bool = False) -> Sheet:  # noqa: ARG002 - there is no more to say
        from dragonscale.app.calc.sheet import calc_sheet

        return calc_sheet(self)
