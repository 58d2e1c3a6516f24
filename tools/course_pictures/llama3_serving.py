"""Pictures of the chapter on serving LLaMA-3: latency against throughput, and what narrower formats bring."""

from collections.abc import Callable

from dragonscale.blocks.charts import Bar, Chart, LineSeries, Mark, bars, line_chart
from dragonscale.blocks.charts.axes import Axis, zero_axis
from dragonscale.course.closed_forms.decode_floor import decode_times, throughput
from dragonscale.course.closed_forms.serving_fleet import largest_batch, requests_per_second
from dragonscale.models import kv_bytes_per_token, load_model
from dragonscale.physics.hardware import dtype_bytes
from tools.course_pictures.inference import CHIPS, PARAMS, SLICE, token_bytes, v5e


def frontier() -> Chart:
    """Tokens per second and chip against the time of a step, a line for each context."""
    chip, rates = v5e()
    series, marks = [], []
    for context in (2048, 4096, 8192, 16384, 32768):
        cache = token_bytes() * context
        most = int(largest_batch(CHIPS * chip.hbm.capacity, PARAMS, cache))
        points = []
        for batch in range(1, most + 1):
            step = float(decode_times(batch, cache, PARAMS, CHIPS, rates, weights="int8").lower)
            points.append((step, float(throughput(batch, step, CHIPS))))
        series.append(LineSeries(f"{context // 1024}k", tuple(points)))
        marks.append(Mark(points[-1][0], points[-1][1], f"batch {most}"))
    x = Axis("seconds of a decode step (latency of a token)", "s", 0.004, 0.045)
    y = zero_axis("tokens per second and chip", "count", [value for one in series for _, value in one.points])
    return line_chart(series, x, y, "Latency against throughput: LLaMA-3 70B by context", SLICE, marks=marks)


def slices_by_format() -> Chart:
    """Requests per second and chip on the smallest slice of each format and on twice that."""
    chip, rates = v5e()
    model = load_model("llama3-70b")
    rows = []
    for dtype, least in (("bf16", 16), ("int8", 8), ("int4", 4)):
        for chips in (least, 2 * least):
            cache, weights = kv_bytes_per_token(model, dtype) * 8192, PARAMS * dtype_bytes(dtype)
            batch = float(largest_batch(chips * chip.hbm.capacity, weights, cache))
            step = float(decode_times(batch, cache, PARAMS, chips, rates, weights=dtype).lower)
            value = float(requests_per_second(batch, step, 512)) / chips
            group = "smallest slice" if chips == least else "twice as large"
            rows.append(Bar(dtype, value, group=group, remark=f"{chips} chips, batch {batch:.0f}, {step * 1e3:.1f} ms"))
    return bars(
        rows, "Requests per second and chip: LLaMA-3 70B on v5e", "8k of context, 512 output tokens, floors", "number"
    )


PICTURES: dict[str, Callable[[], Chart]] = {
    "llama3-serving-frontier": frontier,
    "llama3-serving-formats": slices_by_format,
}
