"""Lines over two axes: scaling, latency and throughput, distributions, a fleet over time, a sweep.

Each line says its name itself: at its right end where it ends at the edge, else beside it where there is room; only
what finds no room goes into a legend. Rules mark values that matter (a target, a crossover), marks name single points.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dragonscale.blocks.charts.axes import APART, Axis, ChartLayer, LayerRows, Picture, Row, pane, tooltip, upward
from dragonscale.blocks.charts.chart import HEIGHT, Chart, framed
from dragonscale.blocks.charts.placing import Box, Segment, place_labels, spread
from dragonscale.blocks.charts.stacks import StackPart, legend_line
from dragonscale.blocks.charts.text import distinct, text_width
from dragonscale.blocks.charts.theme import LABEL, SERIES, SMALL

INSIDE = 720
"""Pixels of width; names at the right ends come on top."""
STROKE = 2.8
BADGE = 10.0
"""Half the width of a numbered circle."""


@dataclass(frozen=True)
class LineSeries:
    """A line through points; `role` is a colour by meaning where it has one."""

    name: str
    points: tuple[tuple[float, float], ...]
    role: str = ""
    dashed: bool = False
    dots: bool = False
    steps: bool = False


@dataclass(frozen=True)
class RuleLine:
    """A value of one axis that matters, with what it is."""

    value: float
    name: str
    role: str = "limit"
    across: bool = False


@dataclass(frozen=True)
class Mark:
    """A named point."""

    x: float
    y: float
    name: str
    role: str = "ink"
    dot: bool = True


def line_chart(
    series: Sequence[LineSeries],
    x: Axis,
    y: Axis,
    title: str,
    subtitle: str = "",
    rules: Sequence[RuleLine] = (),
    marks: Sequence[Mark] = (),
    width: float = INSIDE,
    height: float = HEIGHT,
    numbered: Sequence[tuple[float, float, str]] = (),
) -> Chart:
    """Lines, rules and named points; `numbered` points (x, y, name) get numbers, and their names stand below."""
    here = Picture(x, replace(y, count=max(3, int(height // 50))), width, height)
    view, unnamed = line_view(series, here, rules, marks, numbered)
    below = [legend_line(unnamed, width)] if unnamed else []
    below += [numbered_list([name for _, _, name in numbered], width)] if numbered else []
    if not below:
        return framed(title, view, subtitle)
    return framed(title, {"vconcat": [view, *below], "spacing": 14, "resolve": APART}, subtitle)


def line_view(
    series: Sequence[LineSeries],
    here: Picture,
    rules: Sequence[RuleLine] = (),
    marks: Sequence[Mark] = (),
    numbered: Sequence[tuple[float, float, str]] = (),
) -> tuple[dict[str, Any], list[StackPart]]:
    """The layers of a line chart, and the lines that found no room for their names."""
    names = distinct([line.name for line in series], 60)
    series = [
        replace(line, name=name, role=line.role or SERIES[number % len(SERIES)])
        for number, (line, name) in enumerate(zip(series, names, strict=True))
    ]
    segments = [segment for line in series for segment in _segments(line, here)]
    segments += [_rule_segment(rule, here) for rule in rules]
    ruled, occupied = _rules(rules, here)
    ends, named, last = _ends(series, here)
    marked, boxes = _marks(marks, here, segments, [*occupied, *last])
    others = [line for number, line in enumerate(series) if number not in named]
    name_layers, missing = _beside(others, here, segments, [*occupied, *boxes])
    layers = [*ruled]
    for line in series:
        rows = [{"x": a, "y": b, "line": line.name, "paint": line.role} for a, b in line.points]
        dashes = {"strokeDash": [7, 5]} if line.dashed else {}
        steps = {"interpolate": "step-after"} if line.steps else {}
        drawn = {"type": "line", "strokeWidth": STROKE, "clip": True, "strokeJoin": "round"} | dashes | steps
        layers.append(here.layer(drawn, rows, **tooltip("line", "x", "y")))
        if line.dots:
            layers.append(here.dots(rows, 62, stroke="@background", strokeWidth=1.2))
    layers += [*ends, *name_layers, *marked, *_numbers(numbered, here, segments)]
    return here.view(layers), missing


def _numbers(numbered: Sequence[tuple[float, float, str]], here: Picture, segments: list[Segment]) -> list[ChartLayer]:
    """Numbers in circles at their points; where one would cover another it stands beside its point,
    with a line to it."""
    layers, occupied = list[ChartLayer](), list[Box]()
    for number, (x, y, name) in enumerate(numbered, 1):
        at = here.at(x, y)
        box = (at[0] - BADGE, at[1] - BADGE, at[0] + BADGE, at[1] + BADGE)
        if any(_touches(box, other) for other in occupied):
            frame = (0.0, -BADGE, here.width, here.height)
            [spot] = place_labels([at], [(2 * BADGE, 2 * BADGE)], frame, segments, occupied, gap=14.0)
            if spot is not None:
                box = (spot.x, spot.y - BADGE, spot.x + 2 * BADGE, spot.y + BADGE)
        occupied.append(box)
        x1, y1 = here.value((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
        rows = [{"x": x1, "y": y1, "name": name, "text": str(number)}]
        layers += [
            here.leads([{"x": x, "y": y, "x1": x1, "y1": y1}], color="@ink", strokeWidth=1.5),
            here.dots(rows, 340, tooltip("name"), color="@ink", stroke="@background", strokeWidth=1.5),
            here.texts(rows, align="center", color="@background", fontWeight="bold"),
        ]
    return layers


def numbered_list(names: Sequence[str], width: float) -> dict[str, Any]:
    """What the numbers stand for, in two columns where names are short."""
    wide = max(text_width(name, LABEL) for name in names) + 50
    columns = 2 if wide * 2 <= width and len(names) > 3 else 1
    lines = -(-len(names) // columns)
    rows = [
        {"x": index // lines * width / 2, "y": index % lines * 24 + 12, "text": str(index + 1), "name": name}
        for index, name in enumerate(names)
    ]
    here = pane(width, lines * 24)
    names_beside = here.texts(rows, text="name", dx=24, color="@ink")
    return here.view([here.texts(rows, fontWeight="bold", color="@ink"), names_beside])


def _segments(line: LineSeries, here: Picture) -> list[Segment]:
    points = [here.at(x, y) for x, y in line.points if here.inside(x, y)]
    segments: list[Segment] = []
    for a, b in itertools.pairwise(points):
        segments += [(*a, b[0], a[1]), (b[0], a[1], *b)] if line.steps else [(*a, *b)]
    return segments


def _rule_segment(rule: RuleLine, here: Picture) -> Segment:
    if rule.across:
        _, top = here.at(here.x.low, rule.value)
        return 0.0, top, here.width, top
    left, _ = here.at(rule.value, here.y.low)
    return left, 0.0, left, here.height


def _rules(rules: Sequence[RuleLine], here: Picture) -> tuple[list[ChartLayer], list[Box]]:
    """Rules with their names, which go into rows above the picture so that none covers another."""
    title = (0.0, -24.0, text_width(here.y.title, LABEL) + 12, -6.0)
    layers, occupied = list[ChartLayer](), list[Box]()
    # From right to left, each name to the right of its rule: no rule then crosses the name of another.
    for rule in sorted(rules, key=lambda rule: -rule.value):
        mark = {"type": "rule", "color": f"@{rule.role}", "strokeWidth": 1.8, "strokeDash": [6, 4]}
        wide = text_width(rule.name, SMALL) + 6
        if rule.across:
            _, top = here.at(here.x.low, rule.value)
            box = (here.width - wide, top - 18, here.width, top - 2)
            layers.append(ChartLayer(mark, [{"y": rule.value}], {"y": upward(here.y, "y")}))
        else:
            left, _ = here.at(rule.value, here.y.low)
            top = -24.0
            while any(_touches((left, top, left + wide, top + 16), other) for other in [*occupied, title]):
                top -= 18
            box = (left + 5, top, left + wide, top + 16)
            _, end = here.value(0, top + 3)
            rows = [{"x": rule.value, "y": here.y.low, "top": end}]
            layers.append(here.layer(mark, rows, y2="top"))
        occupied.append(box)
        name = here.label(box[0], (box[1] + box[3]) / 2, rule.name)
        layers.append(here.texts([name], color=f"@{rule.role}", fontSize=SMALL))
    return layers, occupied


def _touches(box: Box, other: Box) -> bool:
    return box[0] < other[2] + 4 and other[0] < box[2] + 4 and box[1] < other[3] and other[1] < box[3]


def _marks(
    marks: Sequence[Mark], here: Picture, segments: list[Segment], occupied: list[Box]
) -> tuple[list[ChartLayer], list[Box]]:
    """Named points, with their names where there is room."""
    if not marks:
        return [], []
    at = [here.at(mark.x, mark.y) for mark in marks]
    sizes = [(text_width(mark.name, LABEL), LABEL + 2.0) for mark in marks]
    frame = (0.0, -4.0, here.width + 120, here.height)
    placed = place_labels(at, sizes, frame, segments, occupied)
    rows, boxes = LayerRows(list), list[Box]()
    for spot, mark, (left, _), (wide, tall) in zip(placed, marks, at, sizes, strict=True):
        if spot is None:
            continue
        rows["texts"].append(here.label(spot.x, spot.y, mark.name))
        boxes.append((spot.x, spot.y - tall / 2, spot.x + wide, spot.y + tall / 2))
        if spot.far:
            edge = spot.x - 3 if spot.x > left else spot.x + wide + 3
            x1, y1 = here.value(edge, spot.y)
            rows["leads"].append({"x": mark.x, "y": mark.y, "x1": x1, "y1": y1})
    dots = [{"x": mark.x, "y": mark.y, "name": mark.name, "paint": mark.role} for mark in marks if mark.dot]
    return [
        here.leads(rows["leads"], color="@muted", strokeWidth=1),
        here.dots(dots, 110, tooltip("name"), stroke="@background", strokeWidth=1.5),
        here.texts(rows["texts"], color="@ink"),
    ], boxes


def _ends(series: Sequence[LineSeries], here: Picture) -> tuple[list[ChartLayer], set[int], list[Box]]:
    """Names at the right edge of the lines that end there, and the room they take."""
    ending = {
        number: here.at(*line.points[-1])
        for number, line in enumerate(series)
        if line.name and line.points and here.x.share(line.points[-1][0]) > 0.93 and here.inside(*line.points[-1])
    }
    if not ending:
        return [], set(), []
    tops = spread([top for _, top in ending.values()], LABEL + 5, 6, here.height - 6)
    column = max(left for left, _ in ending.values()) + 30
    rows, last = LayerRows(list), list[Box]()
    for (number, (left, top)), moved in zip(ending.items(), tops, strict=True):
        name = series[number].name
        rows["texts"].append(here.label(column + 4, moved, name))
        rows["leads"].append(here.lead((left + 5, top), (column, moved), paint=series[number].role))
        last.append((left + 5, min(top, moved) - 2, column, max(top, moved) + 2))
        last.append((column, moved - 9, column + text_width(name, LABEL) + 8, moved + 9))
    return [here.leads(rows["leads"], strokeWidth=1.4), here.texts(rows["texts"], color="@ink")], set(ending), last


def _beside(
    series: Sequence[LineSeries], here: Picture, segments: list[Segment], occupied: list[Box]
) -> tuple[list[ChartLayer], list[StackPart]]:
    """Names beside the lines that end inside, and those that find no room."""
    texts, missing, boxes, frame = list[Row](), list[StackPart](), list(occupied), (0.0, 0.0, here.width, here.height)
    for line in series:
        size = (text_width(line.name, LABEL), LABEL + 2.0)
        points_inside = [here.at(x, y) for x, y in line.points if here.inside(x, y)]
        for part in (0.999, 0.62, 0.5, 0.75, 0.38, 0.25, 0.86, 0.12, 0.0) if points_inside else ():
            anchor = points_inside[min(int(part * len(points_inside)), len(points_inside) - 1)]
            [spot] = place_labels([anchor], [size], frame, segments, boxes, gap=7.0)
            if spot is not None and not spot.far:
                texts.append(here.label(spot.x, spot.y, line.name))
                boxes.append((spot.x, spot.y - 8, spot.x + size[0], spot.y + 8))
                break
        else:
            missing.append(StackPart(line.name, 0.0, line.role))
    return [here.texts(texts, color="@ink")] if texts else [], missing
