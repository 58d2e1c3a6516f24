"""Pictures of the chapter on Transformers: where parameters and FLOPs lie, attention's share, what recompute saves."""

from collections.abc import Callable

from dragonscale.blocks.charts import Bar, Chart, LineSeries, RuleLine, bars, line_chart
from dragonscale.blocks.charts.axes import log_axis, zero_axis
from dragonscale.commands.models import draw_models, model_report
from dragonscale.models import load_model
from dragonscale.models.activations import activation_bytes
from dragonscale.models.flops import Workload, forward_flops

LENGTHS = tuple(2**power for power in range(10, 21))
POLICIES = {"none": "no recompute", "matmuls": "matmuls kept", "block": "only inputs of blocks kept"}


def _flops() -> Chart:
    return draw_models(model_report(load_model("llama3-70b"), 8192), "flops")


def _attention() -> Chart:
    series = []
    for name in ("llama3-8b", "llama3-70b", "llama3-405b", "deepseek-v3"):
        sections = load_model(name).program().sections
        points = []
        for length in LENGTHS:
            flops = forward_flops(sections, Workload(1, length, length))
            points.append((float(length), float(flops["scores"] / sum(flops.values()))))
        series.append(LineSeries(name, tuple(points)))
    x = log_axis("tokens of a sequence", "count", LENGTHS)
    y = zero_axis("share of all FLOPs", "share", [0.0, 1.0])
    return line_chart(
        series,
        x,
        y,
        "What attention's dot products are of a Transformer's FLOPs",
        "causal mask counted; weights' matmuls are the rest",
        [RuleLine(0.5, "half", across=True)],
    )


def _recompute() -> Chart:
    rows = []
    for name in ("llama3-8b", "llama3-70b", "llama3-405b"):
        blocks = [section for section in load_model(name).program().sections if section.name == "block"]
        for policy, words in POLICIES.items():
            kept = sum(activation_bytes(blocks, Workload(1, 1, 1), policy).values())
            rows.append(Bar(name, float(kept), "", group=words))
    return bars(rows, "Activations kept for the backward pass, for each token", "bf16, all layers", "bytes")


PICTURES: dict[str, Callable[[], Chart]] = {
    "transformers-flops": _flops,
    "transformers-attention": _attention,
    "transformers-recompute": _recompute,
}
