"""Predicted against measured: points about the line where both are equal, in the band within which most should lie."""

from collections.abc import Sequence

from dragonscale.charts.amounts import log_domain, log_ticks
from dragonscale.charts.axes import APART, Axis, ChartLayer, Row, along, labels, layered, upward
from dragonscale.charts.chart import Chart, framed
from dragonscale.charts.stacks import StackPart, legend_line
from dragonscale.charts.theme import SERIES, SMALL

SIDE = 520
MOST = 7
"""Groups that get a colour of their own; the rest are drawn as others."""


def predicted_against_measured(
    rows: Sequence[tuple[float, float, str, str]], dimension: str, title: str, subtitle: str = "", band: float = 0.1
) -> Chart:
    """Rows are (measured, predicted, group, name); the largest groups have their own colours."""
    known = [row for row in rows if row[0] > 0 and row[1] > 0]
    sizes: dict[str, int] = {}
    for row in known:
        sizes[row[2]] = sizes.get(row[2], 0) + 1
    large = sorted(sizes, key=lambda name: (-sizes[name], name))
    large = large if len(large) <= MOST + 1 else large[:MOST]  # one more needs no group of others
    paints = {name: SERIES[place] for place, name in enumerate(large)}
    low, high = log_domain([value for row in known for value in row[:2]], 0.03)
    ticks = tuple(log_ticks(low, high, 8))
    x = Axis("measured", dimension, low, high, True, ticks=ticks)
    y = Axis("predicted", dimension, low, high, True, ticks=ticks)
    edges = [{"x": at, "y": at * (1 - band), "y1": at * (1 + band)} for at in (low, high)]
    dots: list[Row] = [
        {"x": row[0], "y": row[1], "name": row[3], "group": row[2], "paint": paints.get(row[2], "overhead:1")}
        for row in sorted(known, key=lambda row: -sizes[row[2]])
    ]
    place = along(x, "x") | upward(y, "y")
    size = 60 if len(dots) < 300 else 34 if len(dots) < 1500 else 18
    within = sum(abs(row[1] / row[0] - 1) <= band for row in known)
    note = f"band: within {band:.0%} ({within / len(known):.0%} of {len(known):,} rows)" if known else "no rows"
    view = layered([
        ChartLayer({"type": "area", "color": "@compute:2", "opacity": 0.5, "clip": True}, edges, along(x, "x") | upward(y, "y", "y1")),
        ChartLayer({"type": "line", "color": "@muted", "strokeWidth": 1.5}, [{"x": low, "y": low}, {"x": high, "y": high}], place),
        ChartLayer(
            {"type": "circle", "size": size, "opacity": 0.8, "clip": True}, dots,
            place | {"tooltip": [{"field": name} for name in ("name", "group", "x", "y")]},
        ),
        labels([{"x": high, "y": low * (high / low) ** 0.035, "text": note}], x, y, align="right", dx=-6, color="@muted", fontSize=SMALL),
    ], SIDE, SIDE)  # fmt: skip
    parts = [StackPart(f"{name} ({sizes[name]})", 0.0, paints[name]) for name in large if name]
    rest = sum(size for name, size in sizes.items() if name not in large)
    if rest:
        parts.append(StackPart(f"others ({rest})", 0.0, "overhead:1"))
    if len(parts) < 2:
        return framed(title, view, subtitle)
    return framed(title, {"vconcat": [view, legend_line(parts, SIDE + 40)], "spacing": 14, "resolve": APART}, subtitle)
