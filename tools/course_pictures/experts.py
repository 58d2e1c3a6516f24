"""Pictures of the chapter on experts: what a layer waits for by batch, how wide experts must be."""

from collections.abc import Callable

from dragonscale.blocks.charts import Chart, LineSeries, RuleLine, line_chart
from dragonscale.blocks.charts.axes import log_axis
from dragonscale.course.closed_forms.switched import ep_width
from dragonscale.models import Moe, load_model
from dragonscale.physics.collectives import Options, Switches, collective_time
from dragonscale.physics.collectives.cost import ragged_fill
from dragonscale.physics.hardware import load_chip

NODES = 8


def _batch() -> Chart:
    """One MoE layer of DeepSeek-V3 on 64 H100s: reading weights, multiplying, sending, by tokens of a GPU."""
    model, chip = load_model("deepseek-v3"), load_chip("h100")
    moe = next(layer.ffn for layer in reversed(model.layers) if isinstance(layer.ffn, Moe))
    gpus, d = 8 * NODES, model.d_model
    levels = chip.network.levels  # pyright: ignore[reportAttributeAccessIssue]
    held = moe.n_experts / gpus * 3 * d * moe.d_ff * 2
    how = Options(exact=True, filled=ragged_fill(moe.experts_per_token, NODES))
    tokens = [2.0**power for power in range(2, 15)]
    rows: dict[str, list[tuple[float, float]]] = {"AllToAlls": [], "expert matmuls": [], "reading the experts": []}
    for each in tokens:
        # A token goes once to each node with one of its experts, there and back.
        volume = NODES * each * gpus * d * 2
        sent = collective_time("all_to_all", volume, Switches(gpus, levels), how)
        flops = each * moe.experts_per_token * 6 * d * moe.d_ff
        rows["AllToAlls"].append((each, 2 * float(sent.lower)))
        rows["expert matmuls"].append((each, flops / chip.peak("bf16")))
        rows["reading the experts"].append((each, held / chip.bandwidth("hbm")))
    roles = {"AllToAlls": "tensor", "expert matmuls": "compute", "reading the experts": "hbm"}
    series = [LineSeries(name, tuple(points), roles[name]) for name, points in rows.items()]
    full = chip.intensity("bf16") * moe.n_experts / moe.experts_per_token / gpus
    x = log_axis("tokens of each GPU", "degree", tokens, margin=0.02)
    y = log_axis("time of one layer, forward", "s", [value for points in rows.values() for _, value in points])
    rules = (RuleLine(full, f"experts compute-bound from {full:.0f} tokens", "muted"),)
    told = "EP=64 over 8 nodes of H100s, bf16, floors at datasheet rates"
    return line_chart(series, x, y, "One MoE layer of DeepSeek-V3 by batch", told, rules)


def _width() -> Chart:
    """The least width of experts by nodes, with the widths of known models."""
    series = []
    ways = [8.0 * nodes for nodes in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)]
    for name in ("h100", "b200"):
        for picks in (2, 8):
            points = tuple((one, float(ep_width(load_chip(name), one, picks, random=True))) for one in ways)
            series.append(LineSeries(f"{name.upper()}, {picks} experts a token", points))
    widths = {"llama4-maverick": "Llama 4 Maverick", "deepseek-v3": "DeepSeek-V3", "qwen3-30b-a3b": "Qwen3 30B-A3B"}
    rules = []
    for name, said in widths.items():
        moe = next(layer.ffn for layer in reversed(load_model(name).layers) if isinstance(layer.ffn, Moe))
        rules.append(RuleLine(float(moe.d_ff), f"{said}: F = {moe.d_ff:,}", "muted", across=True))
    x = log_axis("GPUs that hold the experts (nodes of 8)", "degree", ways, margin=0.02)
    y = log_axis("least width F", "count", [600.0, *(value for one in series for _, value in one.points)])
    title = "Experts wide enough to hide their AllToAlls"
    return line_chart(series, x, y, title, "two matrices, bf16, a copy of a token for each node; first order", rules)


PICTURES: dict[str, Callable[[], Chart]] = {"experts-batch": _batch, "experts-width": _width}
