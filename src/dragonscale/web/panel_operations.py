"""Panels of the tab of operations: rooflines, sharded products, collectives."""

from msgspec import UNSET, UnsetType

from dragonscale.web.panel_pieces import (
    ChartAxis,
    ChartLine,
    ChartMark,
    ChartRule,
    HeldPart,
    Shape,
    ShownAmount,
    ShownFigure,
)


class LetterStop(Shape):
    size: int
    text: str


class LetterSlider(Shape):
    """A dim with its slider."""

    name: str
    size: int
    text: str
    stops: list[LetterStop]


class NotationPanel(Shape):
    """What is wrong with an expression and where, and its dims."""

    wrong: str
    at: list[int] | None
    letters: list[LetterSlider]


class ResourceRow(Shape):
    name: str
    formula: str
    role: str
    seconds: ShownAmount


class ShownCrossover(Shape):
    variable: str
    value: float
    below: str
    above: str
    number: ShownAmount


class OperationPanel(Shape):
    advice: str
    expression: str
    chip: str
    chip_title: str
    bound_by: str
    sentence: str
    notes: list[str]
    figures: list[ShownFigure]
    resources: list[ResourceRow]
    crossovers: list[ShownCrossover]


class OperationCurve(Shape):
    """Time over one of the letters."""

    letter: str
    letters: list[str]
    series: list[ChartLine]
    x: ChartAxis | UnsetType = UNSET
    y: ChartAxis | UnsetType = UNSET
    rules: list[ChartRule] | UnsetType = UNSET
    marks: list[ChartMark] | UnsetType = UNSET


class MeshSide(Shape):
    name: str
    size: int
    role: str


class ShardMesh(Shape):
    axes: list[MeshSide]
    chips: int
    rows: int
    places: list[str]


class ShardPanel(Shape):
    sentence: str
    on: str
    expression: str
    figures: list[ShownFigure]
    bound_by: str
    notes: list[str]
    mesh: ShardMesh


class LaidArray(Shape):
    array: str
    shape: str
    bytes: ShownAmount
    total: ShownAmount
    replicas: ShownAmount


class ShardMove(Shape):
    when: str
    axes: list[str]
    array: str
    result: str
    collective: str
    bytes: ShownAmount
    sent: ShownAmount
    seconds: ShownAmount
    book: ShownAmount


class DrawnSide(Shape):
    """A side of a drawn array, cut by mesh axes."""

    dim: str
    axes: list[str]
    cuts: int
    drawn: int
    role: str
    size: str


class DrawnArray(Shape):
    text: str
    name: str
    rows: DrawnSide
    cols: DrawnSide
    others: list[DrawnSide]
    copied: list[str]
    copies: int
    partial: list[str]
    summands: int
    held: list[int]
    shape: str
    bytes: ShownAmount


class ShardStage(Shape):
    """A step of the animation."""

    kind: str
    title: str
    axes: list[str]
    role: str
    arrays: list[DrawnArray]
    move: int | UnsetType = UNSET


class ShardWay(Shape):
    """A legal way of running a product."""

    local: str
    computes: bool
    bound_by: str
    repeated_over: list[str]
    free_slices: list[str]
    lower: ShownAmount
    upper: ShownAmount
    sent: ShownAmount
    flops: ShownAmount
    read: ShownAmount
    written: ShownAmount
    times: list[HeldPart]
    moves: list[ShardMove]
    stages: list[ShardStage]


class ShardLine(Shape):
    einsum: str
    case: int
    arrays: list[LaidArray]
    ways: list[ShardWay]


class ShardPass(Shape):
    name: str
    lines: list[ShardLine]


class PassesPanel(Shape):
    mesh: ShardMesh
    passes: list[ShardPass]


class PassedTier(Shape):
    """A tier that a collective goes through."""

    tier: str
    children: ShownAmount
    link: ShownAmount
    seconds: ShownAmount
    into: ShownAmount
    out: ShownAmount


class CollectivePanel(Shape):
    bytes: float
    figures: list[ShownFigure]
    kinds: list[str]
    notes: list[str]
    sentence: str
    advice: str
    regime: str
    mesh: dict[str, int]
    axes: list[str]
    tiers: list[PassedTier]


class CollectiveCurve(Shape):
    x: ChartAxis
    y: ChartAxis
    series: list[ChartLine]
    rules: list[ChartRule]
    marks: list[ChartMark]
