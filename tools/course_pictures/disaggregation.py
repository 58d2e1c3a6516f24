"""Pictures of the chapter on disaggregation: what prompts do to decoding, and how many replicas of each kind."""

from collections.abc import Callable

from dragonscale.blocks.charts import Chart, LineSeries, line_chart
from dragonscale.blocks.charts.axes import log_axis, zero_axis
from dragonscale.course.closed_forms.decode_floor import decode_times
from dragonscale.course.closed_forms.pools import interrupted_step
from dragonscale.models import forward_flops, load_model
from dragonscale.models.flops import Workload
from dragonscale.serving.steady.economics import pool_ratio
from tools.course_pictures.inference import CHIPS, PARAMS, token_bytes, v5e

BATCH, OUTPUT = 32, 512


def _step(prompt: float, output: int) -> float:
    """Seconds of a decode step at best, half of the output done on average."""
    cache = token_bytes() * (prompt + output / 2)
    return float(decode_times(BATCH, cache, PARAMS, CHIPS, v5e()[1], weights="int8").lower)


def _prefill(tokens: float) -> float:
    """Seconds of a prompt at 40% of the peak."""
    chip, _ = v5e()
    flops = forward_flops(load_model("llama3-70b").program().sections, Workload(1, int(tokens), int(tokens)))
    return float(sum(flops.values())) / (CHIPS * chip.peak("bf16") * 0.4)


def interruptions() -> Chart:
    """The time per output token with the prompts of others between the steps, and without."""
    prompts = [2.0**power for power in range(8, 15)]
    apart = tuple((tokens, _step(tokens, OUTPUT)) for tokens in prompts)
    together = tuple((tokens, float(interrupted_step(step, _prefill(tokens), BATCH, OUTPUT))) for tokens, step in apart)
    series = [LineSeries("prompts between the steps", together), LineSeries("prefill elsewhere", apart)]
    x = log_axis("prompt tokens", "degree", prompts, margin=0.02)
    y = zero_axis("seconds per output token", "s", [value for _, value in together])
    title = "What prompts do to the time per output token"
    said = "LLaMA-3 70B on a v5e 4x4, batch 32, 512 output tokens, prefill at 40% of peak"
    return line_chart(series, x, y, title, said)


def ratios() -> Chart:
    """Prefill replicas for each decode replica, by the lengths of prompts and outputs."""
    prompts = [2.0**power for power in range(8, 15)]
    series = []
    for output in (128, 512, 2048):
        points = [
            (tokens, float(pool_ratio(_prefill(tokens), BATCH, _step(tokens, output), output))) for tokens in prompts
        ]
        series.append(LineSeries(f"{output:,} output tokens", tuple(points), dots=True))
    x = log_axis("prompt tokens", "degree", prompts, margin=0.02)
    y = log_axis(
        "prefill replicas for each decode replica", "number", [value for one in series for _, value in one.points]
    )
    said = "LLaMA-3 70B, both on a v5e 4x4; decode batch 32, prefill at 40% of peak"
    return line_chart(series, x, y, "How many prefill replicas feed one that decodes", said)


PICTURES: dict[str, Callable[[], Chart]] = {
    "disaggregation-interruptions": interruptions,
    "disaggregation-ratio": ratios,
}
