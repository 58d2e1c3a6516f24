"""Rooflines: what an operation can reach by its intensity, with the roofs of a chip or of several.

Both axes are logarithmic and go no further than what is shown. Each roof says its own name along its line; operations
are points, labelled beside them where there is room, and otherwise numbered, with the names in a list.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dragonscale.blocks.charts.amounts import amount, log_ticks
from dragonscale.blocks.charts.axes import APART, Axis, ChartLayer, Picture, Row, log_axis, pane, tooltip
from dragonscale.blocks.charts.chart import HEIGHT, Chart, framed
from dragonscale.blocks.charts.placing import Box, PlacedLabel, Segment, place_labels, spread
from dragonscale.blocks.charts.text import distinct, text_width
from dragonscale.blocks.charts.theme import LABEL, SERIES, SMALL

SAME = 0.02
"""Operations this close in both directions (as parts of the picture) share a point and a label."""
INSIDE = 700
"""Pixels of width, so that a list of names has room beside it."""


ABOVE = 36
"""Pixels above the highest roof: room for the names of operations that reach it."""


@dataclass(frozen=True)
class Roof:
    """A peak in FLOP/s and a bandwidth in bytes/s under one name (`HBM`, or a chip)."""

    name: str
    peak: float
    bandwidth: float
    rates: str = ""
    """What its name says of its rates instead of these two, where it stands for several chips."""

    @property
    def ridge(self) -> float:
        """FLOPs per byte from which compute binds."""
        return self.peak / self.bandwidth

    def at(self, intensity: float) -> float:
        """FLOP/s that can be reached."""
        return min(self.peak, intensity * self.bandwidth)


@dataclass(frozen=True)
class RoofPoint:
    """An operation: FLOPs per byte, and FLOP/s that it reaches."""

    name: str
    intensity: float
    rate: float


def roofline_chart(roofs: Sequence[Roof], ops: Sequence[RoofPoint], title: str, subtitle: str = "") -> Chart:
    """Roofs and the operations below them."""
    x, y = _axes(roofs, ops)
    here = Picture(x, y, INSIDE, HEIGHT)
    several = len(roofs) > 1
    lines, segments = list[Row](), list[Segment]()
    for number, roof in enumerate(roofs):
        points = sorted({x.low, min(max(roof.ridge, x.low), x.high), x.high})
        drawn = [
            {"x": intensity, "y": roof.at(intensity), "roof": roof.name, "paint": _paint(number, several)}
            for intensity in points
        ]
        lines += [row for row in drawn if row["y"] >= y.low * 0.999] if not several else drawn
        segments += [(*here.at(a["x"], a["y"]), *here.at(b["x"], b["y"])) for a, b in itertools.pairwise(drawn)]
    label_rows, occupied = _roof_labels(roofs, here, several)
    points = _merged(ops, here)
    texts, leads, listed = _op_labels(points, here, segments, occupied)
    ridge = [] if several else [{"x": roofs[0].ridge, "y": y.low, "top": roofs[0].peak}]
    dots = [{"x": op.intensity, "y": op.rate, "name": op.name, "told": f"{amount(op.rate, 'FLOP/s')}"} for op in points]
    line = {"type": "line", "strokeWidth": 3, "clip": True, "strokeJoin": "round"}
    dot = {"color": "@tensor", "stroke": "@background", "strokeWidth": 1.5}
    layers = [
        here.layer({"type": "rule", "strokeDash": [4, 4], "color": "@muted"}, ridge, y2="top"),
        here.layer(line, lines, detail={"field": "roof"}),
        here.leads(leads, color="@muted", strokeWidth=1),
        here.dots(dots, 110, tooltip("name", "told"), **dot),
        *(
            here.texts([row], angle=row["angle"], align=row["align"], color="@muted", fontSize=SMALL)
            for row in label_rows
        ),
        here.texts(texts, color="@ink"),
    ]
    content = here.view(layers)
    if several:  # a view of their own has its own scale of colours
        content["layer"] += here.view(_roof_names(roofs, here))["layer"]
    if not listed:
        return framed(title, content, subtitle)
    return framed(title, {"hconcat": [content, _names(listed)], "spacing": 24, "resolve": APART}, subtitle)


def _paint(number: int, several: bool) -> str:
    return SERIES[number % len(SERIES)] if several else "compute"


def _axes(roofs: Sequence[Roof], ops: Sequence[RoofPoint]) -> tuple[Axis, Axis]:
    """Both axes around the ridges and the operations: a third of a decade past them, and never an empty decade."""
    ridges = [roof.ridge for roof in roofs]
    across = [*(ridge / 6 for ridge in ridges), *(ridge * 6 for ridge in ridges), *(op.intensity for op in ops)]
    x = log_axis("intensity (FLOPs per byte)", "number", across, margin=0.04)
    lowest = min(roof.at(x.low) for roof in roofs)
    down = [op.rate for op in ops if op.rate < lowest]
    low, peak = min([lowest, *down]) * 0.93, max(roof.peak for roof in roofs)
    high = peak * (peak / low) ** (ABOVE / (HEIGHT - ABOVE))
    return x, Axis("rate (FLOP/s)", "FLOP/s", low, high, True, ticks=tuple(log_ticks(low, high)))


def _merged(ops: Sequence[RoofPoint], here: Picture) -> list[RoofPoint]:
    """Operations at the same place as one, with all their names."""
    groups: list[list[RoofPoint]] = []
    for op in ops:
        at = here.x.share(op.intensity), here.y.share(op.rate)
        for group in groups:
            if math.dist(at, (here.x.share(group[0].intensity), here.y.share(group[0].rate))) < SAME:
                group.append(op)
                break
        else:
            groups.append([op])
    return [RoofPoint(", ".join(op.name for op in group), group[0].intensity, group[0].rate) for group in groups]


def _roof_labels(roofs: Sequence[Roof], here: Picture, several: bool) -> tuple[list[Row], list[Box]]:
    """What each roof is, along its line, and the room that takes."""
    label_rows, occupied = list[Row](), list[Box]()
    for roof in () if several else roofs:
        left, top = here.at(roof.ridge, roof.peak)
        flat = f"peak {amount(roof.peak, 'FLOP/s')}"
        label_rows.append(here.label(left - 14, top, flat, angle=0, align="right"))
        occupied.append((left - 16 - text_width(flat, SMALL), top - 10, left - 12, top + 10))
        start, end = here.at(here.x.low, roof.at(here.x.low)), here.at(roof.ridge, roof.peak)
        angle = math.degrees(math.atan2(end[1] - start[1], end[0] - start[0]))
        middle = [first + (last - first) * 0.42 for first, last in zip(start, end, strict=True)]
        away = 13.0
        sine, cosine = math.sin(math.radians(angle)), math.cos(math.radians(angle))
        slanted = f"{roof.name} {amount(roof.bandwidth, 'bytes/s')}"
        center = middle[0] + away * sine, middle[1] - away * cosine
        label_rows.append(here.label(*center, slanted, angle=angle, align="center"))
        long = text_width(slanted, SMALL) / 2
        half, rise = long * cosine, long * abs(sine)
        occupied.append((middle[0] - half - 14, middle[1] - rise - 20, middle[0] + half, middle[1] + rise))
        text = f"compute binds from {amount(roof.ridge, 'number')} FLOPs per byte"
        (left, bottom), long = here.at(roof.ridge, here.y.low), text_width(text, SMALL)
        fits = left + 8 + long < here.width
        label_rows.append(
            here.label(left + (8 if fits else -8), bottom - 12, text, angle=0, align="left" if fits else "right")
        )
        edge = left + 8 if fits else left - 8 - long
        occupied.append((edge, bottom - 22, edge + long, bottom))
    return label_rows, occupied


def _roof_names(roofs: Sequence[Roof], here: Picture) -> list[ChartLayer]:
    """Names of several roofs at their right ends, moved apart where they are equally high."""
    ends = [here.at(here.x.high, roof.at(here.x.high)) for roof in roofs]
    tops = spread([top for _, top in ends], LABEL + 5, 8, here.height - 8)
    names = distinct([roof.name for roof in roofs], 64)
    texts, leads = list[Row](), list[Row]()
    for number, (roof, name, (left, top), moved) in enumerate(zip(roofs, names, ends, tops, strict=True)):
        rates = amount(roof.peak, "FLOP/s")
        rates += f", {amount(roof.bandwidth, 'bytes/s')}" if len({other.bandwidth for other in roofs}) > 1 else ""
        texts.append(here.label(left + 26, moved, f"{name}: {roof.rates or rates}"))
        leads.append(here.lead((left, top), (left + 22, moved), paint=_paint(number, True)))
    return [here.leads(leads, strokeWidth=1.5), here.texts(texts, color="@ink")]


def _op_labels(
    points: Sequence[RoofPoint], here: Picture, segments: list[Segment], occupied: list[Box]
) -> tuple[list[Row], list[Row], list[tuple[str, str]]]:
    """Names beside points, thin lines where they are further away, and numbers with a list where there is no room."""
    at = [here.at(op.intensity, op.rate) for op in points]
    names = distinct([op.name for op in points], 34)
    frame = (0.0, 0.0, here.width, here.height)
    placed = place_labels(at, [(text_width(name, LABEL), LABEL + 2) for name in names], frame, segments, occupied)
    listed: list[tuple[str, str]] = []
    if any(label is None for label in placed):
        listed = [(str(number), name) for number, name in enumerate(names, 1)]
        names = [number for number, _ in listed]
        sizes = [(text_width(name, LABEL), LABEL + 2) for name in names]
        clear = place_labels(at, sizes, frame, segments, occupied)
        placed = [label or other for label, other in zip(clear, place_labels(at, sizes, frame), strict=True)]
    texts, leads = list[Row](), list[Row]()
    for spot, (left, top), name in zip(placed, at, names, strict=True):
        label = spot or PlacedLabel(left + 8, top - 10, False)
        texts.append(here.label(label.x, label.y, name))
        if label.far:
            edge = label.x - 3 if label.x > left else label.x + text_width(name, LABEL) + 3
            leads.append(here.lead((left, top), (edge, label.y)))
    return texts, leads, listed


def _names(listed: list[tuple[str, str]]) -> dict[str, Any]:
    """The list beside a roofline whose points are numbered."""
    wide = max(text_width(name, LABEL) for _, name in listed) + 30
    here = pane(wide, len(listed) * 22)
    rows = [{"x": 0.0, "y": 22 * index + 11, "text": number} for index, (number, _) in enumerate(listed)]
    names = [{"x": 26.0, "y": 22 * index + 11, "text": name} for index, (_, name) in enumerate(listed)]
    return here.view([here.texts(rows, fontWeight="bold", color="@ink"), here.texts(names, color="@ink")])
