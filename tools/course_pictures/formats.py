"""Pictures of the chapter on FP8 and FP4: a matmul's time in each format as the batch grows."""

from collections.abc import Callable

from dragonscale.blocks.charts import Chart, LineSeries, line_chart
from dragonscale.blocks.charts.axes import log_axis
from dragonscale.course.closed_forms.decode_floor import linear_cost
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.rooflines import rates_of, roofline

BATCHES = tuple(2**power for power in range(14))
PAIRS = (("bf16", "bf16"), ("int4", "bf16"), ("fp8", "fp8"), ("fp4", "fp4"))


def _times() -> Chart:
    rates = rates_of(load_chip("b200"))

    def seconds(batch: int, weights: str, compute: str) -> float:
        return float(roofline(linear_cost(batch, 8192 * 28672, weights, compute), rates).lower)

    series = [
        LineSeries(
            f"{weights} weights, {compute} matmuls" if weights != compute else f"all in {weights}",
            tuple((float(batch), seconds(batch, weights, compute)) for batch in BATCHES),
        )
        for weights, compute in PAIRS
    ]
    y = log_axis("time at best", "s", [value for one in series for _, value in one.points])
    return line_chart(
        series,
        log_axis("batch (tokens)", "count", BATCHES),
        y,
        "A matmul on a B200 in four formats",
        (
            "8,192 x 28,672 weights, bytes of activations and scales left out: bytes decide at the left, matmul "
            "rates at the right"
        ),
    )


PICTURES: dict[str, Callable[[], Chart]] = {"formats-times": _times}
