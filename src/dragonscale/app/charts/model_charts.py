"""Charts of `dscale models`: parameters and FLOPs by part, or presets beside each other."""

from dragonscale.app.charts.roles import chosen_kind
from dragonscale.app.models_report import CHARTS, ModelReport, ModelRow, ModelsReport
from dragonscale.sheets.charts import Bar, Chart, bars
from dragonscale.sheets.charts.amounts import amount

KINDS = CHARTS


def draw(kind: str, asked: object, report: ModelReport | ModelsReport) -> Chart:  # noqa: ARG001
    """One model by part, or all presets by size."""
    wanted = chosen_kind(kind, KINDS)
    if not isinstance(report, ModelReport):
        rows = sorted(report.models, key=lambda row: -row.parameters)
        shown = [Bar(row.name, row.parameters, "compute", _active(row)) for row in rows]
        return bars(shown, f"Parameters of {len(rows)} presets", "in brackets: used per token, of MoE models", "count")
    if wanted == "flops":
        parts = report.forward_flops_per_token_by_part
        title = f"{report.name}: forward FLOPs of a token by part"
        subtitle = f"{amount(report.forward_flops_per_token, 'FLOP')} at {report.sequence:,} tokens"
        return bars(_parts(parts, report.forward_flops_per_token), title, subtitle, "FLOP")
    title = f"{report.name}: parameters by part"
    subtitle = (
        f"{amount(report.parameters, 'count')} in all, {amount(report.active_parameters, 'count')} used per token"
    )
    return bars(_parts(report.parameters_by_part, report.parameters), title, subtitle, "count")


def _parts(parts: dict[str, float] | dict[str, int], total: float) -> list[Bar]:
    ordered = sorted(parts.items(), key=lambda part: -part[1])
    return [Bar(name, float(value), "compute", amount(value / total, "share")) for name, value in ordered if value > 0]


def _active(row: ModelRow) -> str:
    return amount(row.active_parameters, "count") if row.active_parameters < 0.8 * row.parameters else ""
