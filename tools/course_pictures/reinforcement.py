"""Pictures of the chapter on reinforcement learning: the few long answers that a batch waits for."""

from collections.abc import Callable

import numpy

from dragonscale.blocks.charts import Chart, LineSeries, line_chart
from dragonscale.blocks.charts.axes import zero_axis
from dragonscale.simulation.rl.lengths import AnswerLengths

ANSWERS = 1024
MEAN = 2048
CAPS = (4096, 8192, 32768)


def _left(cap: int) -> tuple[tuple[float, float], ...]:
    """Decode steps, and the part of the answers that are still under way after them."""
    lengths = AnswerLengths(MEAN, cap).draw(ANSWERS)
    steps = numpy.unique(numpy.linspace(0, lengths.max(), 161).round())
    under_way = 1 - numpy.searchsorted(lengths, steps, side="left") / ANSWERS
    return tuple((float(step), float(part)) for step, part in zip(steps, under_way, strict=True))


def _tail() -> Chart:
    series = [LineSeries(f"cut at {cap:,}", _left(cap), dashed=cap == max(CAPS)) for cap in CAPS]
    return line_chart(
        series,
        zero_axis("decode steps", "count", [step for one in series for step, _ in one.points], grid=False),
        zero_axis("answers under way", "share", [1.0], margin=0.0),
        "The last answers of a batch",
        f"{ANSWERS:,} answers of {MEAN:,} tokens on average, lengths lognormal",
    )


PICTURES: dict[str, Callable[[], Chart]] = {"reinforcement-tail": _tail}
