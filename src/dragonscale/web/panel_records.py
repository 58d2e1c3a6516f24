"""What panels are, as typed records: the shapes that the page's scripts read.

`tools/write_page_types.py` makes `page/js/types.d.ts` and the JSON Schema of them, so that a script that reads a key
which no panel has is found by `tsc`; a test holds real answers against them, unknown keys refused.
"""

from typing import Any

from msgspec import UNSET, UnsetType

from dragonscale.web import panel_forms as forms
from dragonscale.web import panel_hardware as hardware
from dragonscale.web import panel_operations as operations
from dragonscale.web import panel_serving as serving
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
    figures: list[ShownFigure]
    plan: str | UnsetType = UNSET
    about: str | UnsetType = UNSET
    advice: str | UnsetType = UNSET


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


class CrossoversPanel(Shape):
    id: str
    crossovers: list[str]


SHAPES: dict[str, dict[str, type[Shape]]] = {
    "train": {
        "answer": TrainAnswer,
        "time": TimePanel,
        "memory": MemoryPanel,
        "mesh": MeshPanel,
        "sliders": SlidersPanel,
        "roofline": serving.RooflinePanel,
        "timeline": TimelinePanel,
        "trace": TraceFile,
        "batches": LinesPanel,
        "best_batches": BestBatchesPanel,
        "scaling": ScalingPanel,
        "against": AgainstPanel,
    },
    "serve": {
        "answer": serving.ServePanel,
        "time": serving.PhaseBars,
        "memory": MemoryPanel,
        "roofline": serving.RooflinePanel,
        "mesh": MeshPanel,
        "timeline": TimelinePanel,
        "frontier": serving.FrontierPanel,
        "batches": serving.ServeBatchesPanel,
    },
    "simulate": {
        "answer": serving.SimulatePanel,
        "over_time": serving.OverTimePanel,
        "percentiles": serving.PercentilesPanel,
        "replicas": serving.ReplicasPanel,
    },
    "rl": {"answer": RlAnswer, "phases": PhasesPanel},
    "roofline": {
        "notation": operations.NotationPanel,
        "answer": operations.OperationPanel,
        "roof": serving.RooflinePanel,
        "curve": operations.OperationCurve,
    },
    "shard": {
        "notation": operations.NotationPanel,
        "answer": operations.ShardPanel,
        "passes": operations.PassesPanel,
    },
    "collective": {"answer": operations.CollectivePanel, "curve": operations.CollectiveCurve},
    "chips": {
        "table": hardware.ChipsTable,
        "scatter": hardware.ScatterPanel,
        "chip": hardware.ChipPanel,
        "roof": serving.RooflinePanel,
        "slice": hardware.SlicePanel,
        "beside": hardware.BesidePanel,
        "knobs": hardware.KnobsPanel,
    },
    "models": {
        "table": hardware.ModelsTable,
        "model": hardware.ModelPanel,
        "lengths": hardware.LengthsPanel,
        "program": hardware.ProgramPanel,
        "line": hardware.ModelLine,
        "config": hardware.DroppedConfig,
    },
    "compare": {"sides": serving.SidesPanel, "suggest": serving.SuggestPanel},
    "catalogue": {"catalogue": forms.CataloguePanel},
    "why": {"facts": WhyFacts, "formula": WhyFormula, "crossovers": CrossoversPanel},
    "copied": {"texts": forms.TextsPanel, "plan": forms.PlanFilePanel, "verify": forms.VerifyPanel},
    "judge": {"read": forms.JudgedCommand},
    "export": {"targets": forms.TargetsPanel, "files": forms.FilesPanel},
    "learn": {"course": CoursePanel, "problem": forms.ProblemPanel},
}
"""The record of every panel by view; `sheet`, which views of a command have too, is a `SheetPanel`, and `record` is
what the command's `--json` prints, which has a schema of its own."""
