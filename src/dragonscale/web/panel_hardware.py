"""Panels of the tabs Chips and Models."""

from msgspec import UNSET, UnsetType

from dragonscale.web.panel_pieces import (
    BarPart,
    ChartAxis,
    ChartLine,
    ChartMark,
    ChartRule,
    DrawnRoof,
    Shape,
    ShownAmount,
    ShownFigure,
)


class TableColumn(Shape):
    name: str
    title: str
    unit: str | UnsetType = UNSET


class ChipRow(Shape):
    name: str
    title: str
    kind: str
    released: str
    network: str
    largest: str
    cells: dict[str, ShownAmount]


class ChipsTable(Shape):
    columns: list[TableColumn]
    rows: list[ChipRow]


class ScatterPoint(Shape):
    x: float
    y: float
    name: str
    role: str


class ScatterPicture(Shape):
    title: str
    about: str
    x: ChartAxis
    y: ChartAxis
    points: list[ScatterPoint]


class ScatterPanel(Shape):
    pictures: list[ScatterPicture]


class NamedText(Shape):
    """A source, a file, or another text with a name."""

    name: str
    text: str


class OtherValue(Shape):
    """What another source says."""

    source: str
    note: str
    number: ShownAmount
    source_text: str


class ChipFactRow(Shape):
    path: str
    source: str
    number: ShownAmount
    about: str
    source_text: str
    also: list[OtherValue]


class FactGroup(Shape):
    title: str
    facts: list[ChipFactRow]


class ChipPart(Shape):
    part: str
    count: ShownAmount
    rate: ShownAmount


class ChipPanel(Shape):
    name: str
    title: str
    kind: str
    released: str
    network: str
    largest: str
    price: str
    sentence: str
    figures: list[ShownFigure]
    parts: list[ChipPart]
    groups: list[FactGroup]
    sources: list[NamedText]


class SliceAxisRow(Shape):
    """An axis of a torus."""

    axis: str
    size: int
    wraps: bool
    out: ShownAmount
    hops: ShownAmount
    bisection: ShownAmount


class SliceTierRow(Shape):
    """A tier of a network of switches."""

    tier: str
    groups: int
    children: int
    child: ShownAmount
    chip: ShownAmount
    bisection: ShownAmount
    switches: ShownAmount


class SlicePanel(Shape):
    """A slice; of one chip nothing but that there are no axes and tiers."""

    slice: str
    axes: list[SliceAxisRow]
    tiers: list[SliceTierRow]
    chip: str | UnsetType = UNSET
    chips: int | UnsetType = UNSET
    pods: int | UnsetType = UNSET
    host_chips: int | UnsetType = UNSET
    host_shape: list[int] | UnsetType = UNSET
    sentence: str | UnsetType = UNSET
    figures: list[ShownFigure] | UnsetType = UNSET
    notes: list[str] | UnsetType = UNSET


class ChipBeside(Shape):
    name: str
    title: str
    kind: str
    released: str


class BesideNumber(Shape):
    """A number, or a word that has none."""

    value: float | None
    text: str
    why: str
    unit: str | UnsetType = UNSET


class BesideCell(Shape):
    number: BesideNumber
    ratio: str
    differs: bool


class BesideRow(Shape):
    title: str
    cells: list[BesideCell]


class BesidePanel(Shape):
    chips: list[ChipBeside]
    rows: list[BesideRow]
    roofs: list[DrawnRoof]


class KnobStop(Shape):
    value: str
    factor: float
    text: str


class KnobRow(Shape):
    """A number of a chip that can be changed."""

    name: str
    title: str
    value: str
    factor: float
    own: ShownAmount
    now: ShownAmount
    stops: list[KnobStop]


class KnobsPanel(Shape):
    chip: str
    title: str
    knobs: list[KnobRow]
    kept: list[str]


class PresetRow(Shape):
    name: str
    family: str
    moe: bool
    cells: dict[str, ShownAmount]


class ModelsTable(Shape):
    columns: list[TableColumn]
    rows: list[PresetRow]


class StackedSum(Shape):
    total: ShownAmount
    parts: list[BarPart]


class FormatBytes(Shape):
    format: str
    bytes: ShownAmount


class PolicyBytes(Shape):
    policy: str
    bytes: ShownAmount


class ExtraPart(Shape):
    part: str
    count: ShownAmount


class ModelPanel(Shape):
    name: str
    advice: str
    sequence: int
    shape: str
    sentence: str
    figures: list[ShownFigure]
    parameters: StackedSum
    flops: StackedSum
    weights: list[FormatBytes]
    stored: list[FormatBytes]
    extra: list[ExtraPart]
    activations: list[PolicyBytes]
    notes: list[str]


class LinesOverLength(Shape):
    x: ChartAxis
    y: ChartAxis
    series: list[ChartLine]
    rules: list[ChartRule]
    marks: list[ChartMark] | UnsetType = UNSET


class LengthsPanel(Shape):
    meets: ShownAmount
    rule: ShownAmount
    cache: LinesOverLength
    flops: LinesOverLength


class ProgramPanel(Shape):
    program: str


class ModelLine(Shape):
    name: str
    parameters: ShownAmount
    text: str
    notes: list[str]


class DroppedConfig(Shape):
    name: str
    text: str
    in_address: bool
    characters: int
