"""Predicted against measured: points about the line where both are equal, in the bands within which most should lie.

Over many decades an error of ten percent is thinner than a point, so the ratio of the two stands below, on an axis of
its own.
"""

from collections.abc import Callable, Mapping, Sequence

from dragonscale.blocks.charts.amounts import log_domain, log_ticks
from dragonscale.blocks.charts.axes import APART, Axis, ChartLayer, Picture, Row, tooltip
from dragonscale.blocks.charts.chart import Chart, framed
from dragonscale.blocks.charts.stacks import StackPart, legend_line
from dragonscale.blocks.charts.theme import SERIES, SMALL

SIDE, STRIP = 520, 170
MOST = 7
"""Groups that get a colour of their own; the rest are drawn as others."""
BANDS = (0.2, 0.1)
"""Drawn widest first; the narrowest is counted."""
RATIOS = (0.5, 2.0)
"""The strip's ends; points beyond lie on its edge."""

Edges = Callable[[float, float], float]
"""The edge of a band at a place, so many parts off."""
Point = tuple[float, float, str, str]
"""Measured, predicted, group, name."""


def predicted_against_measured(rows: Sequence[Point], dimension: str, title: str, subtitle: str = "") -> Chart:
    """Rows are (measured, predicted, group, name); the largest groups have their own colours."""
    positive_rows = [row for row in rows if row[0] > 0 and row[1] > 0]
    sizes: dict[str, int] = {}
    for row in positive_rows:
        sizes[row[2]] = sizes.get(row[2], 0) + 1
    large = sorted(sizes, key=lambda name: (-sizes[name], name))
    large = large if len(large) <= MOST + 1 else large[:MOST]  # one more needs no group of others
    paints = {name: SERIES[index] for index, name in enumerate(large)}
    ordered = sorted(positive_rows, key=lambda row: -sizes[row[2]])
    low, high = log_domain([value for row in positive_rows for value in row[:2]], 0.03)
    ticks = tuple(log_ticks(low, high, 8))
    parts = [StackPart(f"{name} ({sizes[name]:,})", 0.0, paints[name]) for name in large if name]
    rest = sum(size for name, size in sizes.items() if name not in large)
    if rest:
        parts.append(StackPart(f"others ({rest:,})", 0.0, "overhead:1"))
    bare = Axis("measured", dimension, low, high, True, ticks=ticks)
    views = [_square(ordered, paints, bare, dimension), _strip(ordered, paints, bare)]
    if len(parts) > 1:
        views.append(legend_line(parts, SIDE + 40))
    return framed(title, {"vconcat": views, "spacing": 18, "resolve": APART}, subtitle)


def _size(rows: Sequence[Point]) -> int:
    """The area of a point in square pixels: the more points, the smaller."""
    if len(rows) < 300:
        return 60
    return 34 if len(rows) < 1500 else 18


def _row(row: Point, y: float, paints: Mapping[str, str]) -> Row:
    measured, predicted, group, name = row
    tip = {"measured": measured, "predicted": predicted, "name": name, "group": group}
    return {"x": measured, "y": y, **tip, "paint": paints.get(group, "overhead:1")}


def _layers(here: Picture, edges: Edges, rows: Sequence[Row], size: int, **area: bool) -> list[ChartLayer]:
    """The bands about where both are equal, the line itself, and the points."""
    ends = (here.x.low, here.x.high)
    band = {"type": "area", "color": "@compute:2", "opacity": 0.4, **area}
    line = {"type": "line", "color": "@muted", "strokeWidth": 1.5}
    tip = tooltip("name", "group", "measured", "predicted")
    return [
        *(
            here.layer(band, [{"x": at, "y": edges(at, -part), "y1": edges(at, part)} for at in ends], y2="y1")
            for part in BANDS
        ),
        here.layer(line, [{"x": at, "y": edges(at, 0.0)} for at in ends]),
        here.dots(rows, size, tip, opacity=0.8, clip=True),
    ]


def _square(rows: Sequence[Point], paints: Mapping[str, str], x: Axis, dimension: str) -> dict[str, object]:
    """Both quantities on the same axis, the line where they are equal and the bands about it."""
    here = Picture(x, Axis("predicted", dimension, x.low, x.high, True, ticks=x.ticks), SIDE, SIDE)
    inside = [sum(abs(row[1] / row[0] - 1) <= band for row in rows) / max(len(rows), 1) for band in BANDS]
    counted = ", ".join(f"{part:.0%} within {band:.0%}" for part, band in zip(inside[::-1], BANDS[::-1], strict=True))
    note = f"{counted} of {len(rows):,} rows" if rows else "no rows"
    corner = [{"x": x.high, "y": x.low * (x.high / x.low) ** 0.035, "text": note}]
    points = [_row(row, row[1], paints) for row in rows]
    layers = _layers(here, lambda at, part: at * (1 + part), points, _size(rows), clip=True)
    return here.view([*layers, here.texts(corner, align="right", dx=-6, color="@muted", fontSize=SMALL)])


def _strip(rows: Sequence[Point], paints: Mapping[str, str], x: Axis) -> dict[str, object]:
    """Predicted over measured, where one is right; what lies beyond the ends is put on them."""
    title = "predicted / measured, what lies beyond on the edge"
    here = Picture(x, Axis(title, "number", *RATIOS, True, ticks=(0.5, 0.8, 1.0, 1.25, 2.0)), SIDE, STRIP)
    points = [_row(row, min(max(row[1] / row[0], RATIOS[0]), RATIOS[1]), paints) for row in rows]
    return here.view(_layers(here, lambda _, part: 1 + part, points, _size(rows) // 2))
