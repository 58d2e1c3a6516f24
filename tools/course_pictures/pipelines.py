"""Pictures of the chapter on pipelines: schedules tick by tick, bubbles by microbatches."""

from collections.abc import Callable

from dragonscale.blocks.charts import Chart, LineSeries, line_chart
from dragonscale.blocks.charts.axes import (
    Row,
    log_axis,
    pane,
    zero_axis,
)
from dragonscale.blocks.charts.chart import framed, together
from dragonscale.blocks.charts.theme import SMALL
from dragonscale.course.closed_forms.rules_of_thumb import stage_utilisation
from dragonscale.training.plan.pipeline_order import max_in_flight, timeline

TICK, ROW = 19.0, 24.0
"""Pixels of a tick and of a rank."""
NAMES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "1F1B, 2 chunks on each rank"}


def _schedule(schedule: str, pipe: int, virtual: int, microbatches: int) -> Chart:
    """Every rank's pieces at their ticks; a chunk of a rank takes its part of a tick."""
    ticks = timeline(schedule, pipe, virtual, microbatches)
    tick = TICK / virtual
    boxes: list[Row] = []
    texts: list[Row] = []
    for time, pieces in enumerate(ticks):
        for rank, piece in enumerate(pieces):
            if piece is None:
                continue
            paint = ("compute" if piece.kind == "F" else "hbm") + (":1" if piece.chunk else "")
            left, top = 46 + time * tick, rank * ROW
            boxes.append({"x": left, "x1": left + tick - 1, "y": top + 1, "y1": top + ROW - 1, "paint": paint})
            if virtual == 1:
                texts.append({"x": left + tick / 2, "y": top + ROW / 2, "text": str(piece.microbatch + 1)})
    names = [{"x": 0.0, "y": rank * ROW + ROW / 2, "text": f"rank {rank}"} for rank in range(pipe)]
    here = pane(46 + 2 * TICK * (microbatches + pipe) + 10, pipe * ROW)
    view = here.view(
        [
            here.layer({"type": "rect"}, boxes, x2="x1", y2="y1"),
            here.texts(texts, align="center", color="@background", fontSize=SMALL - 1),
            here.texts(names, color="@muted", fontSize=SMALL),
        ]
    )
    kept = max_in_flight(ticks, 0) / virtual
    told = f"{len(ticks) / virtual:g} ticks; the first rank holds {kept:g} microbatches at most"
    return framed(f"{NAMES[schedule]}: {told}", view)


def _schedules() -> Chart:
    parts = [_schedule("gpipe", 4, 1, 8), _schedule("1f1b", 4, 1, 8), _schedule("interleaved", 4, 2, 8)]
    told = (
        "blue: forward, the other colour: backward; lighter: a rank's second chunk. Forward and backward take a tick "
        "each"
    )
    return together(parts, "Eight microbatches through four stages", told)


def _bubbles() -> Chart:
    """The part of a step that is lost, by microbatches and schedule."""
    pieces = [float(2**power) for power in range(3, 9)]
    asked = {
        "GPipe, 1F1B": ("1f1b", 1),
        "interleaved, 2 chunks": ("interleaved", 2),
        "interleaved, 5 chunks": ("interleaved", 5),
        "ZB-H1": ("zb-h1", 1),
        "DualPipe": ("dualpipe", 1),
    }
    series = [
        LineSeries(name, tuple((one, 1 - float(stage_utilisation(8, one, *how))) for one in pieces), dots=True)
        for name, how in asked.items()
    ]
    x = log_axis("microbatches of a step", "degree", pieces, margin=0.02)
    y = zero_axis("part of the step that a stage waits", "share", [value for one in series for _, value in one.points])
    told = "equal stages, backward twice as long as forward, half of it for the weights"
    return line_chart(series, x, y, "Bubbles of a pipeline of eight stages", told)


PICTURES: dict[str, Callable[[], Chart]] = {"pipelines-schedules": _schedules, "pipelines-bubbles": _bubbles}
