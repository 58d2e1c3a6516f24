"""What panels are, as typed records: the shapes that the page's scripts read.

`tools/write_page_types.py` makes `page/js/types.d.ts` and the JSON Schema of them, so that a script that reads a key
which no panel has is found by `tsc`; a test holds real answers against them, unknown keys refused.
"""

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
    chip: str | ShownAmount
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
    at: dict[str, int]


class LinesPanel(Shape):
    """The given plan over sizes of the batch."""

    x: ChartAxis
    y: ChartAxis
    series: list[ChartLine]
    rules: list[ChartRule]
    marks: list[ChartMark]
    words: list[str]
    plan: str
    about: str


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


class RlWay(Shape):
    mode: str
    stack: str
    train: str
    rollout: str
    train_chips: int
    rollout_chips: int
    feasible: bool
    step: ShownAmount
    rate: ShownAmount


class RlAnswer(Shape):
    notes: list[str]
    ways: list[RlWay]
    feasible: bool
    sentence: str
    plan: str
    about: str
    advice: str
    figures: list[ShownFigure]


class PhasesPanel(Shape):
    total: ShownAmount
    parts: list[BarPart]


class WhyRow(Shape):
    name: str
    number: ShownAmount
    note: str


class WhyStep(Shape):
    """A sum or a table that a number is put together from."""

    title: str
    text: str
    rows: list[WhyRow] | UnsetType = UNSET
    total: ShownAmount | UnsetType | None = UNSET
    columns: list[str] | UnsetType = UNSET
    lines: list[list[Any]] | UnsetType = UNSET


class WhyFacts(Shape):
    id: str
    title: str
    sentence: str
    number: ShownAmount
    steps: list[WhyStep]
    compared: dict[str, Any] | None
    error: str
    sources: list[dict[str, str]]
    docs: dict[str, str] | None
    more: bool


class WhyLetter(Shape, rename={"origin": "from"}):
    letter: str
    math: list[Any]
    value: str
    what: str
    origin: str


class WhyFormula(Shape):
    id: str
    formulas: list[dict[str, Any]]
    letters: list[WhyLetter]
    crossovers: list[str]
    notes: list[str]


class LearnChapter(Shape):
    title: str
    about: str
    chapter: str
    page: str
    picture: str
    problems: list[dict[str, str]]


class CoursePanel(Shape):
    chapters: list[LearnChapter]


SHAPES: dict[str, dict[str, type[Shape]]] = {
    "train": {
        "answer": TrainAnswer,
        "time": TimePanel,
        "memory": MemoryPanel,
        "mesh": MeshPanel,
        "sliders": SlidersPanel,
        "timeline": TimelinePanel,
        "batches": LinesPanel,
        "best_batches": BestBatchesPanel,
        "scaling": ScalingPanel,
    },
    "serve": {"memory": MemoryPanel, "mesh": MeshPanel, "timeline": TimelinePanel},
    "rl": {"answer": RlAnswer, "phases": PhasesPanel},
    "why": {"facts": WhyFacts, "formula": WhyFormula},
    "learn": {"course": CoursePanel},
}
"""The record of a panel by view; a panel that is not here is read by its script as it comes."""
