"""The pieces that panels are made of, as typed records: numbers, lines of the ledger, parts of bars, charts, meshes."""

from typing import Any

from msgspec import UNSET, Struct, UnsetType


class Shape(Struct, forbid_unknown_fields=True):
    """A panel, or a piece of one."""


class ShownAmount(Shape):
    """A number with its text; `why` is what derives it, or nothing."""

    value: float | None
    unit: str
    text: str
    why: str


class ShownFigure(Shape):
    """A number under its label."""

    label: str
    number: ShownAmount
    about: str
    more: list[Any] | UnsetType = UNSET
    met: bool | UnsetType | None = UNSET


class LineRow(Shape):
    """A kernel or move of the ledger."""

    what: str
    section: str
    phase: str
    kind: str
    axes: list[str]
    times: float
    flops: ShownAmount
    hbm: ShownAmount
    sent: ShownAmount
    bound: ShownAmount
    expected: ShownAmount
    exposed: ShownAmount


class HeldRow(Shape):
    """A tensor on a chip."""

    what: str
    section: str
    bytes: ShownAmount
    since: str | UnsetType = UNSET
    until: str | UnsetType = UNSET


class BarPart(Shape):
    """A part of a bar, with the lines that it opens."""

    name: str
    role: str
    shown: ShownAmount
    lines: list[LineRow] | UnsetType = UNSET
    hidden: ShownAmount | UnsetType = UNSET
    bound: ShownAmount | UnsetType = UNSET
    share: ShownAmount | UnsetType = UNSET


class HeldPart(Shape):
    """A part of memory."""

    name: str
    role: str
    shown: ShownAmount
    lines: list[HeldRow] | UnsetType = UNSET


class Leftover(Shape):
    """Memory that nothing takes."""

    name: str
    shown: ShownAmount


class ChartAxis(Shape, rename={"start": "from"}):
    """A side of a chart."""

    label: str
    unit: str
    log: bool | UnsetType = UNSET
    binary: bool | UnsetType = UNSET
    zero: bool | UnsetType = UNSET
    start: float | UnsetType = UNSET
    upto: float | UnsetType = UNSET


class ChartLine(Shape):
    """A line through points."""

    name: str
    role: str
    points: list[list[float]]
    dashed: bool | UnsetType = UNSET
    dots: bool | UnsetType = UNSET
    line: bool | UnsetType = UNSET
    band: list[Any] | UnsetType = UNSET


class ChartRule(Shape):
    """A value of one axis that matters."""

    at: float
    text: str
    role: str
    along: str | UnsetType = UNSET


class DrawnRoof(Shape):
    """A chip or its wires: a peak, and what feeds it."""

    name: str
    peak: float
    bandwidth: float
    role: str | UnsetType = UNSET
    why: str | UnsetType = UNSET
    dashed: bool | UnsetType = UNSET


class DrawnPoint(Shape):
    """An operation under roofs; `roof` is the one it lies under."""

    name: str
    intensity: float
    rate: float
    bound: str
    why: str
    role: str | UnsetType = UNSET
    roof: str | UnsetType = UNSET
    phase: str | UnsetType = UNSET
    section: str | UnsetType = UNSET
    text: str | UnsetType = UNSET


class ChartMark(Shape):
    """A named point."""

    x: float
    y: float
    text: str
    role: str | UnsetType = UNSET


class Move(Shape):
    """A collective over an axis of the mesh."""

    name: str
    bytes: ShownAmount
    seconds: ShownAmount
    exposed: ShownAmount
    hidden: bool
    phase: str | UnsetType = UNSET


class DrawnAxis(Shape):
    """An axis of the mesh."""

    name: str
    degree: int
    role: str
    splits: str
    lies: str
    moves: list[Move]
