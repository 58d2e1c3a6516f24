"""Pictures of the chapter on rooflines: matmuls under a roof, time against batch, the batch that each chip needs."""

from collections.abc import Callable
from typing import Any

import numpy

import dragonscale as ds
from dragonscale.blocks.charts import (
    Bar,
    Chart,
    LineSeries,
    Roof,
    RoofPoint,
    RuleLine,
    bars,
    line_chart,
    roofline_chart,
)
from dragonscale.blocks.charts.axes import log_axis
from dragonscale.course.closed_forms import critical_batch
from dragonscale.physics.notation import parse_einsum
from dragonscale.physics.rooflines import einsum_cost, roofline

SQUARES = (64, 128, 256, 512, 1024, 4096)
BATCHES = tuple(2**power for power in range(13))
MATMUL = "bf16[B,D] @ bf16[D,F]"


def _roof() -> Chart:
    chip = ds.load_chip("v5e")
    roof = Roof("HBM", chip.peak("bf16"), chip.bandwidth("hbm"))
    points = []
    for side in SQUARES:
        found = ds.roofline(MATMUL, on="v5e", sizes={"B": side, "D": side, "F": side})
        assert found.intensity_flops_per_byte is not None
        assert found.attainable_flops_per_s is not None
        points.append(RoofPoint(f"{side:,}", found.intensity_flops_per_byte, found.attainable_flops_per_s))
    return roofline_chart([roof], points, "Square matmuls under the roof of a TPU v5e", "bf16, by the length of a side")


def _crossover() -> Chart:
    rates = ds.rates_of(ds.load_chip("v5e"))
    batches = numpy.array(BATCHES)
    times = roofline(einsum_cost(parse_einsum(MATMUL), {"B": batches, "D": 8192, "F": 28672}), rates)
    series = [
        LineSeries("multiply", _points(times.seconds["matrix"]), "compute"),
        LineSeries("load and store", _points(times.seconds["hbm"]), "hbm"),
        LineSeries("no overlap", _points(times.upper), "overhead", dashed=True),
    ]
    [turn] = ds.roofline(MATMUL, on="v5e", sizes={"B": 1, "D": 8192, "F": 28672}).crossovers
    x = log_axis("batch (tokens)", "count", BATCHES)
    y = log_axis("time", "s", [value for one in series for _, value in one.points])
    rule = RuleLine(turn.value, f"{turn.value:.0f} tokens")
    return line_chart(
        series,
        x,
        y,
        "A matmul on a TPU v5e: which time is longer?",
        "bf16[B, 8192] · bf16[8192, 28672] out of HBM",
        [rule],
    )


def _points(seconds: Any) -> tuple[tuple[float, float], ...]:
    return tuple(
        (batch, float(value)) for batch, value in zip(BATCHES, numpy.broadcast_to(seconds, len(BATCHES)), strict=True)
    )


def _critical() -> Chart:
    names = ("v3", "v4", "v5e", "v5p", "v6e", "tpu7x", "a100", "h100", "h200", "b200", "mi300x")
    chips = [ds.load_chip(name) for name in names]
    rows = [Bar(chip.title, critical_batch(ds.rates_of(chip)), "compute") for chip in chips]
    return bars(
        rows, "Tokens from which a bf16 matmul is bound by compute", "weights out of HBM, batch far below D and F"
    )


PICTURES: dict[str, Callable[[], Chart]] = {
    "rooflines-roof": _roof,
    "rooflines-crossover": _crossover,
    "rooflines-critical": _critical,
}
