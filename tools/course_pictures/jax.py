"""Pictures of the chapter on JAX: when a collective matmul hides its hops."""

from collections.abc import Callable

import dragonscale as ds
from dragonscale.blocks.charts import Chart, LineSeries, RuleLine, line_chart
from dragonscale.blocks.charts.axes import log_axis
from dragonscale.course.closed_forms import wire_intensity
from dragonscale.physics.collectives import BOOK
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.notation import parse_einsum
from dragonscale.physics.sharding import Mesh, strategies

LINE = "A[B_X, D_Y] @ W[D, F_Y] -> Out[B_X, F_Y]"
WIDTHS = tuple(1024 * 2**power for power in range(8))


def _overlap() -> Chart:
    chip = load_chip("v5e")
    mesh, serial, overlapped, alone = Mesh({"X": 2, "Y": 4}, chip), [], [], []
    for width in WIDTHS:
        sizes = {"B": 1024, "D": 2048, "F": width}
        way = next(
            one
            for one in strategies(parse_einsum(LINE), sizes, mesh)
            if [step.before.name for step in one.collectives] == ["A"]
        )
        math, comms = float(way.math_seconds(sizes, mesh)), float(way.comms_seconds(sizes, mesh, BOOK))
        serial.append((width / 4, math + comms))
        overlapped.append((width / 4, max(math, comms)))
        alone.append((width / 4, math))
    series = [
        LineSeries("gather, then multiply", tuple(serial), "tensor"),
        LineSeries("collective matmul, at best", tuple(overlapped), "compute"),
        LineSeries("the matmul alone", tuple(alone), "overhead", dashed=True),
    ]
    x = log_axis("columns of W on a chip, F/Y", "count", [width / 4 for width in WIDTHS])
    y = log_axis("time", "s", [value for line in series for _, value in line.points])
    return line_chart(
        series,
        x,
        y,
        LINE,
        "B = 1,024, D = 2,048 on X=2, Y=4 of TPU v5e, to first order",
        [RuleLine(wire_intensity(chip), "hops can hide from here")],
    )


def _mesh() -> Chart:
    sizes = {"B": 1024, "D": 2048, "F": 8192}
    return ds.shard("In[B_X, D_Y] @ W[D_Y, F] -> Out[B_X, F]", mesh={"X": 4, "Y": 2}, on="v5e", sizes=sizes).plot(
        "mesh"
    )


PICTURES: dict[str, Callable[[], Chart]] = {"jax-overlap": _overlap, "jax-mesh": _mesh}
