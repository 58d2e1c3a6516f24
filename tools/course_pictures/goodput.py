"""Pictures of the chapter on goodput: what failures leave of a job as it grows."""

from collections.abc import Callable

from dragonscale.blocks.charts import Chart, LineSeries, line_chart
from dragonscale.blocks.charts.axes import log_axis, zero_axis
from dragonscale.errors import Infeasible
from dragonscale.physics.units import DAY
from dragonscale.training.cost.goodput import checkpoint_interval, goodput

GPUS = tuple(1024 * 2**power for power in range(8))
RATE = 3.8e-3 / DAY
"""Failures of an H100 host per second (LLaMA-3 405B)."""
SAVE = 10


def _share(gpus: int, restart: float) -> float:
    hosts = gpus / 8
    try:
        return goodput(hosts, RATE, checkpoint_interval(hosts, RATE, SAVE), restart, SAVE)
    except Infeasible:
        return 0.0


def _left() -> Chart:
    series = [
        LineSeries(f"restart in {minutes} min", tuple((float(one), _share(one, 60 * minutes)) for one in GPUS))
        for minutes in (3, 10, 30)
    ]
    return line_chart(
        series,
        log_axis("GPUs of the job", "count", GPUS),
        zero_axis("time that makes progress", "share", [1.0], margin=0.0),
        "What failures leave of a training job",
        "3.8 failures in 1,000 days of a host of 8; checkpoints stop the job for 10 s, at Young's interval",
    )


PICTURES: dict[str, Callable[[], Chart]] = {"goodput-left": _left}
