"""Panels of the tabs Serve and Simulate, and of answers side by side."""

from typing import Any

from msgspec import UNSET, UnsetType

from dragonscale.web.panel_pieces import (
    BarPart,
    ChartAxis,
    ChartLine,
    ChartMark,
    ChartRule,
    DrawnPoint,
    DrawnRoof,
    Shape,
    ShownAmount,
    ShownFigure,
)


class ServeRow(Shape):
    """One of the configurations that were judged."""

    plan: str
    config: str
    slice: str
    engine: str
    bound_by: str
    formats: str
    batch: ShownAmount
    ttft: ShownAmount
    tpot: ShownAmount
    tokens: ShownAmount
    cost: ShownAmount
    chips: ShownAmount
    meets: bool
    fields: dict[str, str]


class ServeSizes(Shape):
    """What the form's sliders stand at, and their stops."""

    batch: int | None
    max_batch: int | None
    prompt: int
    output: int
    chips: int
    chip: str
    slices: list[list[int | str]]
    several: bool
    context: int
    rate: float | None
    caches: list[str]


class PlacedPoint(Shape):
    x: float
    y: float


class ServePanel(Shape):
    """The answer of the Serve tab; where nothing fits it is the sentence and the sizes."""

    feasible: bool
    meets: bool
    sentence: str
    notes: list[str]
    configs: list[ServeRow]
    sizes: ServeSizes
    plan: str | UnsetType = UNSET
    config: str | UnsetType = UNSET
    settings: dict[str, str] | UnsetType = UNSET
    slice: str | UnsetType = UNSET
    copy_slice: str | UnsetType = UNSET
    engine: str | UnsetType = UNSET
    engine_why: str | UnsetType = UNSET
    violations: list[str] | UnsetType = UNSET
    formats: str | UnsetType = UNSET
    bound_by: str | UnsetType = UNSET
    advice: str | UnsetType = UNSET
    error: str | UnsetType = UNSET
    fleet: str | UnsetType = UNSET
    better: str | UnsetType = UNSET
    figures: list[ShownFigure] | UnsetType = UNSET
    searched: int | UnsetType = UNSET
    point: PlacedPoint | UnsetType = UNSET
    simulate: dict[str, str] | UnsetType | None = UNSET


class PhaseBar(Shape):
    """A prefill, a decode step or a whole request as a bar."""

    name: str
    title: str
    about: str
    total: ShownAmount
    lower: ShownAmount
    parts: list[BarPart]
    roofline: ShownAmount | UnsetType = UNSET
    beside: ShownAmount | UnsetType = UNSET


class PhaseBars(Shape):
    bars: list[PhaseBar]


class RooflinePanel(Shape):
    """Operations under roofs."""

    roofs: list[DrawnRoof]
    points: list[DrawnPoint]
    ridge: ShownAmount | UnsetType = UNSET
    about: str | UnsetType = UNSET
    chip: str | UnsetType = UNSET


class FrontierSpot(Shape):
    """A configuration by what a user sees and what a chip gives."""

    x: float
    y: float
    name: str
    group: str
    about: str
    role: str
    chosen: bool
    meets: bool
    fields: dict[str, str]


class FrontierPanel(Shape):
    points: list[FrontierSpot]
    x: ChartAxis
    y: ChartAxis
    frontier: list[list[float]]
    rules: list[ChartRule]
    about: str


class BatchCrossing(Shape):
    """A batch at which something changes."""

    text: str
    number: ShownAmount
    here: bool
    formula: str | UnsetType = UNSET


class ServeBatchesPanel(Shape):
    series: list[ChartLine]
    x: ChartAxis
    y: ChartAxis
    rules: list[ChartRule]
    marks: list[ChartMark]
    crossings: list[BatchCrossing]
    about: str | UnsetType = UNSET


class NextSimulation(Shape):
    """What to ask of the fleet next."""

    text: str
    command: str
    fields: dict[str, Any]


class FleetSizes(Shape):
    replicas: int
    kv_tokens: int
    rate: float
    seconds: float


class SimulatePanel(Shape):
    feasible: bool
    meets: bool | None
    holds: bool
    sentence: str
    tone: str
    bound_by: str
    advice: str
    requests: str
    notes: list[str]
    capacity: str
    figures: list[ShownFigure]
    next: NextSimulation | None
    sizes: FleetSizes


class FleetSamples(Shape):
    """A fleet at the moments of its run."""

    running: list[float]
    waiting: list[float]
    pages: list[float]
    busy: list[float]
    replicas: list[float]
    tokens: list[float]


class ReplicaSamples(Shape):
    index: int
    pool: str
    name: str
    running: list[float]
    waiting: list[float]
    pages: list[float]
    tokens: list[float]


class RequestRates(Shape):
    arriving: list[list[float]]
    ending: list[list[float]]


class OverTimePanel(Shape):
    seconds: ShownAmount
    moments: list[float]
    texts: list[str]
    fleet: FleetSamples
    replicas: list[ReplicaSamples]
    arrivals: RequestRates
    about: str
    room: int


class PercentileRow(Shape):
    name: str
    cells: list[ShownAmount]
    about: str


class PercentilesPanel(Shape):
    series: list[ChartLine]
    rules: list[ChartRule]
    x: ChartAxis
    y: ChartAxis
    columns: list[str]
    rows: list[PercentileRow]


class ReplicaShown(Shape):
    name: str
    pool: str
    batch: ShownAmount
    busy: ShownAmount
    tokens: ShownAmount


class ReplicasPanel(Shape):
    columns: list[str]
    rows: list[ReplicaShown]


class ComparedSide(Shape):
    """One of the answers that stand side by side."""

    key: str
    label: str
    slice: str
    software: str
    chips: int
    feasible: bool
    bound_by: str
    problems: list[str]
    plan: str
    fields: dict[str, Any]


class ComparedCell(Shape):
    number: ShownAmount
    band: str
    mark: str
    text: str


class ComparedRow(Shape):
    name: str
    less: bool
    cells: list[ComparedCell]


class ComparedBar(Shape):
    key: str
    label: str
    total: ShownAmount
    parts: list[BarPart]
    limit: float | UnsetType | None = UNSET


class ComparedBars(Shape):
    bars: list[ComparedBar]
    scale: float
    what: str | UnsetType = UNSET


class ComparedSetting(Shape):
    name: str
    cells: list[str]


class SidesPanel(Shape):
    kind: str
    model: str
    workload: str
    winner: str
    notes: list[str]
    sides: list[ComparedSide]
    rows: list[ComparedRow]
    time: ComparedBars
    memory: ComparedBars
    settings: list[ComparedSetting]
    sentences: list[str]


class SuggestedSlice(Shape):
    on: str
    chip: str
    why: str
    chips: str


class SuggestPanel(Shape):
    slices: list[SuggestedSlice]
