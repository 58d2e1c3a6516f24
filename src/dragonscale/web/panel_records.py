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
from dragonscale.web import panel_training as training
from dragonscale.web.panel_pieces import (
    BarPart,
    Shape,
    ShownAmount,
    ShownFigure,
)


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
        "answer": training.TrainAnswer,
        "time": training.TimePanel,
        "memory": training.MemoryPanel,
        "mesh": training.MeshPanel,
        "sliders": training.SlidersPanel,
        "roofline": serving.RooflinePanel,
        "timeline": training.TimelinePanel,
        "trace": training.TraceFile,
        "batches": training.LinesPanel,
        "best_batches": training.BestBatchesPanel,
        "scaling": training.ScalingPanel,
        "against": training.AgainstPanel,
    },
    "serve": {
        "answer": serving.ServePanel,
        "time": serving.PhaseBars,
        "memory": training.MemoryPanel,
        "roofline": serving.RooflinePanel,
        "mesh": training.MeshPanel,
        "timeline": training.TimelinePanel,
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
