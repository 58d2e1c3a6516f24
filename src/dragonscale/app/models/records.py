"""The records that `dscale models` answers with: one model counted by part, or a line for each preset."""

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from dragonscale.app.record import Record
from dragonscale.physics.units import render
from dragonscale.sheets.sheet import Sheet

if TYPE_CHECKING:
    from dragonscale.sheets.charts.chart import Chart

CHARTS = ("parameters", "flops")


class ModelReport(Record):
    """A model at one sequence length. `cache_bytes_reserved` is what an engine sets aside: whole pages, and the
    full sequence even in windowed layers."""

    CHARTS: ClassVar[tuple[str, ...]] = CHARTS

    name: str
    n_layers: int
    d_model: int
    vocab: int
    parameters: int
    active_parameters: int
    checkpoint_parameters: int
    parameters_by_part: dict[str, int]
    active_parameters_by_part: dict[str, int]
    extra_parameters: dict[str, int]
    sequence: int
    causal: bool
    forward_flops_per_token: float
    training_flops_per_token: float
    six_n_flops_per_token: float
    six_n_with_embedding_flops_per_token: float
    forward_flops_per_token_by_part: dict[str, float]
    weight_bytes: dict[str, float]
    stored_bytes: dict[str, int]
    kv_dtype: str
    kv_bytes_per_token: float
    cache_bytes_per_sequence: float
    cache_bytes_reserved: float
    activation_bytes_per_token: dict[str, float]
    program: str
    notes: list[str]
    advice: str

    def headline(self) -> str:
        size, used = render(self.parameters, "count"), render(self.active_parameters, "count")
        return f"{self.name}: {size} parameters, {used} used per token"

    def rows(self) -> list[dict[str, Any]]:
        """A row for each part: its parameters, those used per token, and its forward FLOPs of a token."""
        parts = dict.fromkeys([*self.parameters_by_part, *self.forward_flops_per_token_by_part])
        return [
            {
                "part": part,
                "parameters": self.parameters_by_part.get(part, 0),
                "active_parameters": self.active_parameters_by_part.get(part, 0),
                "forward_flops_per_token": self.forward_flops_per_token_by_part.get(part, 0.0),
            }
            for part in parts
        ]

    def sheet(self, detail: bool = False) -> Sheet:
        from dragonscale.app.models.sheet import model_sheet, program_sheet

        asked_program = self.asked is not None and self.asked.program
        return program_sheet(self) if asked_program else model_sheet(self, detail)

    def draw(self, kind: str) -> "Chart":
        from dragonscale.app.charts.models import draw

        return draw(kind, self.asked, self)


class ModelRow(msgspec.Struct):
    """A preset in a line."""

    name: str
    parameters: int
    active_parameters: int
    n_layers: int
    d_model: int
    kv_bytes_per_token: float


class ModelsReport(Record):
    """Every preset; `--json` prints the rows alone."""

    ROWS: ClassVar[str] = "models"
    CHARTS: ClassVar[tuple[str, ...]] = CHARTS[:1]

    models: list[ModelRow]

    def headline(self) -> str:
        return f"{len(self.models)} presets"

    def to_dict(self) -> Any:
        return msgspec.to_builtins(self.models)

    def sheet(self, detail: bool = False) -> Sheet:  # noqa: ARG002  there is no more to say
        from dragonscale.app.models.sheet import models_sheet

        return models_sheet(self)

    def draw(self, kind: str) -> "Chart":
        from dragonscale.app.charts.models import draw

        return draw(kind, self.asked, self)
