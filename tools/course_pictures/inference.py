"""Pictures of the chapter on inference: a decode step, caches, prefill, drafts."""

from collections.abc import Callable

from dragonscale.blocks.charts import Chart, LineSeries, RuleLine, line_chart
from dragonscale.blocks.charts.axes import Axis, log_axis, zero_axis
from dragonscale.course.closed_forms.decode_floor import critical_batch, decode_times
from dragonscale.course.closed_forms.serving_fleet import largest_batch
from dragonscale.course.closed_forms.speculation import loop_seconds, seconds_for
from dragonscale.models import cache_bytes, forward_flops, kv_bytes_per_token, load_model
from dragonscale.models.flops import Workload
from dragonscale.physics.hardware import Chip, load_chip
from dragonscale.physics.rooflines import Rates, rates_of
from dragonscale.serving.steady.speculation import tokens_per_loop

CHIPS, PARAMS = 16, 70e9
SLICE = "a v5e 4x4, int8 weights and KV cache, bf16 matmuls; floors at datasheet rates"


def v5e() -> tuple[Chip, Rates]:
    chip = load_chip("v5e").reading("book")
    return chip, rates_of(chip)


def token_bytes() -> float:
    return kv_bytes_per_token(load_model("llama3-70b"), "int8")


def decode_step() -> Chart:
    """What a decode step waits for, batch by batch."""
    chip, rates = v5e()
    cache = token_bytes() * 8192
    batches = range(1, 193)
    steps = [decode_times(batch, cache, PARAMS, CHIPS, rates, weights="int8") for batch in batches]
    most = float(largest_batch(CHIPS * chip.hbm.capacity, PARAMS, cache))
    series = [
        LineSeries("decode step", tuple((b, float(s.lower)) for b, s in zip(batches, steps, strict=True)), "ink"),
        LineSeries("matmuls", tuple((b, float(s.math)) for b, s in zip(batches, steps, strict=True)), "compute"),
        LineSeries("weight reads", tuple((b, float(s.weights)) for b, s in zip(batches, steps, strict=True)), "hbm"),
        LineSeries("KV cache reads", tuple((b, float(s.cache)) for b, s in zip(batches, steps, strict=True)), "tensor"),
    ]
    rules = (
        RuleLine(float(critical_batch(rates, "int8")), "critical batch 120", "compute"),
        RuleLine(most, f"memory is full at {most:.0f}"),
    )
    x = Axis("batch (sequences that decode at once, 8,192 tokens of context each)", "count", 0, 192)
    y = zero_axis("seconds", "s", [float(steps[-1].lower)])
    return line_chart(series, x, y, "A decode step of LLaMA-3 70B", SLICE, rules)


def cache_by_context() -> Chart:
    """Bytes of cache of one sequence, for ways to make it smaller."""
    names = {
        "llama2-13b": "LLaMA-2 13B: 40 KV heads",
        "llama3-70b": "LLaMA-3 70B: 8 KV heads",
        "gemma3-27b": "Gemma 3 27B: 5 of 6 layers local",
        "deepseek-v3": "DeepSeek-V3: latent",
    }
    contexts = [2.0**power for power in range(9, 18)]
    series = []
    for name, said in names.items():
        sections = load_model(name).program().sections
        points = tuple((tokens, float(sum(cache_bytes(sections, int(tokens)).values()))) for tokens in contexts)
        series.append(LineSeries(said, points))
    x = log_axis("tokens of context", "degree", contexts, margin=0.02)
    y = log_axis("KV cache of one sequence in bf16", "bytes", [value for one in series for _, value in one.points])
    return line_chart(series, x, y, "What a sequence keeps in memory", "keys and values of every layer")


def prefill_time() -> Chart:
    """A prompt at 40% of the peak: matmuls grow with it, attention with its square."""
    chip, _ = v5e()
    sections = load_model("llama3-70b").program().sections
    prompts = [2.0**power for power in range(8, 18)]
    rate = CHIPS * chip.peak("bf16") * 0.4
    flops = [forward_flops(sections, Workload(1, int(tokens), int(tokens))) for tokens in prompts]
    dots = [float(one["scores"]) / rate for one in flops]
    rest = [float(sum(one.values()) - one["scores"]) / rate for one in flops]
    series = [
        LineSeries(
            "prefill", tuple(zip(prompts, [a + b for a, b in zip(dots, rest, strict=True)], strict=True)), "ink"
        ),
        LineSeries("matmuls", tuple(zip(prompts, rest, strict=True)), "compute"),
        LineSeries("attention's dot products", tuple(zip(prompts, dots, strict=True)), "tensor"),
    ]
    x = log_axis("prompt tokens", "degree", prompts, margin=0.02)
    y = log_axis("seconds", "s", [value for one in series for _, value in one.points])
    return line_chart(series, x, y, "Prefill of LLaMA-3 70B", "a v5e 4x4 at 40% of its bf16 peak")


def speculation() -> Chart:
    """Time per token against drafts, for three chances of acceptance."""
    series = []
    for chance in (0.9, 0.8, 0.7, 0.5):
        points = tuple(
            (
                float(drafts),
                float(seconds_for(1, loop_seconds(14.1e-3, 2.06e-3, drafts), tokens_per_loop(chance, drafts))),
            )
            for drafts in range(13)
        )
        best = min(points, key=lambda point: point[1])
        series.append(LineSeries(f"{chance:.0%} accepted, best at {best[0]:.0f}", points, dots=True))
    x = Axis("drafted tokens in a loop", "count", 0, 12)
    y = zero_axis("seconds for each token that is kept", "s", [0.0195])
    return line_chart(series, x, y, "How many tokens to draft", "a pass of the target 14.1 ms, a draft 2.06 ms")


PICTURES: dict[str, Callable[[], Chart]] = {
    "inference-decode-step": decode_step,
    "inference-kv-cache": cache_by_context,
    "inference-prefill-time": prefill_time,
    "inference-speculation": speculation,
}
