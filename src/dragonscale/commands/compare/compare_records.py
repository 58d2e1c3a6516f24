"""The records that `dscale compare` answers with; `--json` prints them as they are."""

from typing import Any, ClassVar

import msgspec

from dragonscale.commands.record import Record
from dragonscale.errors import INFEASIBLE


class Figure(msgspec.Struct):
    """A number of a side; between `low` and `high` lay four of five published runs of its kind."""

    name: str
    value: float | None
    unit: str
    low: float | None = None
    high: float | None = None


class SideTerm(msgspec.Struct):
    """A term of the step: what it waits for, and what overlaps."""

    name: str
    exposed_s: float
    hidden_s: float


class HeldPart(msgspec.Struct):
    """A part of the memory of the fullest chip."""

    name: str
    bytes: float


class Side(msgspec.Struct):
    """One of the things compared. `label` says in what it differs from the others; `tokens` are those that its step
    trains on, or that a decode step gives."""

    key: str
    label: str
    plan: str
    slice: str
    software: str
    chips: int
    feasible: bool
    tokens: float
    figures: list[Figure]
    terms: list[SideTerm]
    memory: list[HeldPart]
    hbm_bytes: float
    hbm_limit_bytes: float
    bound_by: str
    settings: dict[str, Any]
    problems: list[str] = []
    measured_s: float | None = None
    measured: str = ""
    method: str = ""

    def figure(self, name: str) -> Figure | None:
        """A figure by its name, where the side has it."""
        return next((figure for figure in self.figures if figure.name == name and figure.value is not None), None)

    def value(self, name: str) -> float:
        """The value of a figure; 0 where the side has none."""
        figure = self.figure(name)
        return 0.0 if figure is None or figure.value is None else figure.value

    @property
    def exposed(self) -> dict[str, float]:
        """Exposed seconds of the step by term."""
        seconds: dict[str, float] = {}
        for term in self.terms:
            seconds[term.name] = seconds.get(term.name, 0.0) + term.exposed_s
        return seconds


class TermDifference(msgspec.Struct):
    """A term of both steps, in exposed seconds."""

    name: str
    first_s: float
    second_s: float
    difference_s: float


class SettingDifference(msgspec.Struct):
    """A setting that two plans have otherwise."""

    setting: str
    first: Any
    second: Any


class Difference(msgspec.Struct):
    """The second side against the first. `ratio` is the second's step over the first's, for the same tokens; the terms
    are sorted by difference and add up to it. `beyond_bands` is None where a side has no band."""

    first: str
    second: str
    ratio: float
    difference_s: float
    terms: list[TermDifference]
    settings: list[SettingDifference]
    beyond_bands: bool | None
    text: str


class CompareReport(Record):
    """Sides in the order they were given, and each against the first."""

    ROWS: ClassVar[str] = "sides"
    CHARTS: ClassVar[tuple[str, ...]] = ("time", "memory")

    kind: str
    """training or serving"""
    model: str
    workload: str
    sides: list[Side]
    differences: list[Difference]
    winner: str
    """The key of the fastest side (of serving: of the one with most tokens for a dollar or a chip)."""
    notes: list[str]
    memories: list[str] = []
    """Of fine-tuning: the parts of each side's memory, and how much less it is than the largest."""
    overtakes: list[str] = []
    """Prices, bandwidths and batches at which the order of two sides turns."""

    def side(self, key: str) -> Side:
        """A side by its letter."""
        return next(side for side in self.sides if side.key == key)

    @property
    def best(self) -> Side | None:
        """The fastest side; None where none can run."""
        if self.winner:
            return self.side(self.winner)
        return None

    @property
    def exit_code(self) -> int:
        if self.winner:
            return 0
        return INFEASIBLE

    def rows(self) -> list[dict[str, Any]]:
        """A row for each side, its figures as columns."""
        names = ("key", "label", "plan", "slice", "software", "chips", "feasible", "bound_by", "hbm_bytes")
        return [
            {name: getattr(side, name) for name in names} | {figure.name: figure.value for figure in side.figures}
            for side in self.sides
        ]

    def headline(self) -> str:
        if not self.winner:
            return f"{self.model}: none of {len(self.sides)} can run"
        if len(self.differences) == 1:
            return self.differences[0].text
        return f"{self.model}: {self.winner} of " + ", ".join(f"{side.key} ({side.label})" for side in self.sides)
