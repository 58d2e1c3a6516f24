"""Panels of the Train tab; its mesh, memory and timeline are those of Serve too."""

from typing import Any

from msgspec import UNSET, UnsetType

from dragonscale.web.panel_pieces import (
    BarPart,
    ChartAxis,
    ChartLine,
    ChartMark,
    ChartRule,
    DrawnAxis,
    HeldPart,
    Leftover,
    Shape,
    ShownAmount,
    ShownFigure,
)


class MeshPanel(Shape):
    slice: str
    axes: list[DrawnAxis]
    frames: list[list[Any]]
    dots: list[list[Any]]
    wiring: str
    chip: str
    chips: ShownAmount | UnsetType = UNSET
    copies: int | UnsetType = UNSET


class TimePanel(Shape):
    parts: list[BarPart]
    total: ShownAmount | UnsetType = UNSET
    lower: ShownAmount | UnsetType = UNSET
    upper: ShownAmount | UnsetType = UNSET
    hidden: ShownAmount | UnsetType = UNSET


class MemoryPanel(Shape):
    parts: list[HeldPart]
    used: ShownAmount | UnsetType = UNSET
    limit: ShownAmount | UnsetType = UNSET
    rest: list[Leftover] | UnsetType = UNSET
    fits: list[ShownFigure] | UnsetType = UNSET


class Track(Shape):
    name: str
    slices: list[list[Any]]


class TimelinePanel(Shape):
    total: ShownAmount
    tracks: list[Track]
    about: str | UnsetType = UNSET


class BatchSizes(Shape):
    tokens: int
    sequences: int
    seq: int


class BoundRegion(Shape):
    bound: str
    title: str
    text: str


class Help(Shape):
    change: str
    needs: str
    gain: ShownAmount


class StackBeside(Shape):
    """The best plan of another stack."""

    stack: str
    plan: str
    tight: bool
    mostly: str
    step: ShownAmount
    mfu: ShownAmount


class PlanRow(Shape):
    """One of the best plans."""

    plan: str
    step: ShownAmount
    mfu: ShownAmount
    slower: str
    memory: ShownAmount
    runnable: bool
    verifiable: bool
    bound_by: str


class TrainAnswer(Shape):
    """The answer of the Train tab; without a plan it is the sentence and what surrounds it."""

    model: str
    slice: str
    stack: str
    stack_why: str
    dtype: str
    on: str
    parameters: ShownAmount
    batch: BatchSizes
    searched: str
    slices: list[Any]
    stacks: list[StackBeside]
    neighbours: list[Any]
    notes: list[str]
    feasible: bool
    sentence: str
    figures: list[ShownFigure]
    chips: int | UnsetType = UNSET
    bound_by: str | UnsetType = UNSET
    advice: str | UnsetType = UNSET
    problems: list[str] | UnsetType = UNSET
    gradients: str | UnsetType = UNSET
    plan: str | UnsetType = UNSET
    plan_words: str | UnsetType = UNSET
    settings: dict[str, Any] | UnsetType = UNSET
    divides: int | UnsetType = UNSET
    band: str | UnsetType = UNSET
    region: BoundRegion | UnsetType | None = UNSET
    helps: list[Help] | UnsetType = UNSET
    plans: list[PlanRow] | UnsetType = UNSET
    run: list[ShownFigure] | UnsetType = UNSET


class SliderStop(Shape):
    value: int
    text: str
    typed: str | UnsetType = UNSET
    on: str | UnsetType = UNSET


class SlidersPanel(Shape):
    batch: list[SliderStop]
    seq: list[SliderStop]
    chips: list[SliderStop]
    plan: dict[str, Any]
    at: dict[str, int | None]


class LinesPanel(Shape):
    """The given plan over sizes of the batch; empty lines where it cannot run."""

    series: list[ChartLine]
    rules: list[ChartRule]
    marks: list[ChartMark]
    words: list[str]
    x: ChartAxis | UnsetType = UNSET
    y: ChartAxis | UnsetType = UNSET
    plan: str | UnsetType = UNSET
    about: str | UnsetType = UNSET


class BatchPoint(Shape):
    """The best plan at a batch."""

    sequences: int
    tokens: float
    batch: str
    plan: str
    mfu: float
    part: ShownAmount
    step: ShownAmount
    divides: int
    bound: str
    role: str
    why: str


class BestBatchesPanel(Shape):
    x: ChartAxis
    y: ChartAxis
    series: list[ChartLine]
    rules: list[ChartRule]
    points: list[BatchPoint]
    missing: list[str]
    done: int
    whole: int


class SliceScale(Shape):
    """The best plan of a slice."""

    on: str
    chips: int
    here: bool
    plan: str
    step: ShownAmount
    mfu: ShownAmount
    efficiency: ShownAmount
    bound_by: str


class ScalingPanel(Shape):
    x: ChartAxis
    y: ChartAxis
    series: list[ChartLine]
    rules: list[ChartRule]
    words: list[str]
    marks: list[ChartMark]
    rows: list[SliceScale]


class BestBeside(Shape):
    plan: str
    step: ShownAmount
    mfu: ShownAmount


class ChangedSetting(Shape, rename={"old": "from", "new": "to"}):
    """One setting of a given plan changed."""

    setting: str
    plan: str
    old: str
    new: str
    step: ShownAmount
    gain: str
    better: bool


class GapSuspect(Shape):
    cause: str
    look: str
    step: ShownAmount
    explains: str


class GapPanel(Shape):
    """A measured step against the expected one."""

    text: str
    suspects: list[GapSuspect]


class AgainstPanel(Shape):
    """A given plan beside the best one."""

    text: str
    changes: list[ChangedSetting]
    best: BestBeside | UnsetType | None = UNSET
    measured: GapPanel | UnsetType | None = UNSET


class TraceFile(Shape, rename={"unit": "displayTimeUnit", "events": "traceEvents"}):
    """A step in the format of Perfetto."""

    unit: str
    events: list[dict[str, Any]]
