"""Axes that know where a value lies in pixels, so that labels can be placed before anything is drawn."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dragonscale.blocks.charts.amounts import linear_ceiling, log_domain, log_ticks, tick_expression

APART = {"scale": {"color": "independent"}}
"""Views that stand beside each other have their own scales of colour: Vega-Lite would join them."""


@dataclass(frozen=True)
class Axis:
    """A quantity from `low` to `high`. Without a title it is not drawn: its values are pixels."""

    title: str
    dimension: str
    low: float
    high: float
    log: bool = False
    grid: bool = True
    ticks: tuple[float, ...] = ()
    count: int = 8

    def share(self, value: float) -> float:
        """Where a value lies between the ends, 0 to 1.

        >>> Axis("size", "bytes", 1.0, 100.0, log=True).share(10.0)
        0.5
        """
        if not self.log:
            return (value - self.low) / (self.high - self.low)
        if value <= 0:
            return -1.0  # nothing lies infinitely far below the low end: outside
        return math.log(value / self.low) / math.log(self.high / self.low)

    def value(self, share: float) -> float:
        """The value at a part of the way between the ends."""
        if self.log:
            return self.low * (self.high / self.low) ** share
        return self.low + (self.high - self.low) * share

    def channel(self, field: str) -> dict[str, Any]:
        """Vega-Lite's channel for a field on this axis."""
        scale: dict[str, Any] = {"domain": [self.low, self.high], "nice": False, "zero": False}
        scale |= {"type": "log"} if self.log else {}
        drawn: dict[str, Any] | None = None
        if self.title:
            # A linear axis has one unit throughout; a logarithmic one changes it on the way.
            label = tick_expression(self.dimension, 0.0 if self.log else max(abs(self.low), abs(self.high)))
            drawn = {"labelExpr": label, "grid": self.grid, "title": self.title}
            drawn |= {"values": list(self.ticks)} if self.ticks else {"tickCount": self.count}
        return {"field": field, "type": "quantitative", "scale": scale, "axis": drawn}


def upward(axis: Axis, field: str) -> dict[str, Any]:
    """The y of a layer; its title stands above the axis, where it is read without turning the head."""
    channel = axis.channel(field)
    if channel["axis"] is not None:
        above = {"titleAngle": 0, "titleAlign": "left", "titleBaseline": "bottom", "titleX": 2, "titleY": -8}
        channel["axis"] |= above
    return channel


def log_axis(title: str, dimension: str, values: Iterable[float], ticks: int = 9, margin: float = 0.06) -> Axis:
    """A logarithmic axis around values, with ticks at round numbers and no empty decade."""
    low, high = log_domain(list(values), margin)
    marks = powers(low, high) if dimension == "degree" else log_ticks(low, high, ticks)
    return Axis(title, dimension, low, high, True, ticks=tuple(marks))


def zero_axis(title: str, dimension: str, values: Iterable[float], margin: float = 0.04, grid: bool = True) -> Axis:
    """A linear axis from zero to a little more than the largest value."""
    return Axis(title, dimension, 0.0, linear_ceiling(max(values, default=1.0), margin), grid=grid)


def powers(low: float, high: float, max_ticks: int = 10) -> list[float]:
    """Powers of two between two numbers, every other one where there are many.

    >>> powers(30, 600)
    [32.0, 64.0, 128.0, 256.0, 512.0]
    """
    ticks = [2.0**power for power in range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)]
    return ticks[:: -(-len(ticks) // max_ticks)] if ticks else []


Row = dict[str, Any]
LayerRows = defaultdict[str, list[Row]]
"""Rows of several layers, by what they are."""


@dataclass(frozen=True)
class ChartLayer:
    """Marks over rows. A row's `paint` is a colour by meaning, such as `compute:1`; all layers share
    one scale of them."""

    mark: dict[str, Any]
    rows: Sequence[Row]
    encoding: dict[str, Any]


def layered(layers: Sequence[ChartLayer], width: float, height: float) -> dict[str, Any]:
    """A view of layers, first drawn first."""
    paints = sorted({row["paint"] for layer in layers for row in layer.rows if "paint" in row})
    scale = {"domain": paints, "range": [f"@{paint}" for paint in paints]}
    colour = {"field": "paint", "type": "nominal", "scale": scale, "legend": None}
    drawn = []
    for layer in layers:
        if layer.rows:
            encoding = layer.encoding | ({"color": colour} if "paint" in layer.rows[0] else {})
            drawn.append({"data": {"values": list(layer.rows)}, "mark": layer.mark, "encoding": encoding})
    return {"width": width, "height": height, "layer": drawn}


def tooltip(*names: str) -> dict[str, Any]:
    """What a reader sees who points at a mark."""
    return {"tooltip": [{"field": name} for name in names]}


@dataclass(frozen=True)
class Picture:
    """Two axes with the pixels they have, and the layers that are drawn over them."""

    x: Axis
    y: Axis
    width: float
    height: float

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Pixels of a point, from the left and from the top."""
        return self.x.share(x) * self.width, (1 - self.y.share(y)) * self.height

    def value(self, left: float, top: float) -> tuple[float, float]:
        """The point at a pixel."""
        return self.x.value(left / self.width), self.y.value(1 - top / self.height)

    def inside(self, x: float, y: float) -> bool:
        """Whether a point is drawn at all."""
        return self.x.low <= x <= self.x.high and self.y.low <= y <= self.y.high

    def label(self, left: float, top: float, text: str, **more: Any) -> Row:
        """A row of text at a pixel."""
        x, y = self.value(left, top)
        return {"x": x, "y": y, "text": text, **more}

    def lead(self, start: tuple[float, float], end: tuple[float, float], **more: Any) -> Row:
        """A row of a thin line between two pixels."""
        (x, y), (x1, y1) = self.value(*start), self.value(*end)
        return {"x": x, "y": y, "x1": x1, "y1": y1, **more}

    def layer(self, mark: dict[str, Any], rows: Sequence[Row], x: str = "x", y: str = "y", **more: Any) -> ChartLayer:
        """Marks at fields of the rows; `x2` and `y2` name the fields of their far ends."""
        ends = {end: {"field": more.pop(end)} for end in ("x2", "y2") if end in more}
        return ChartLayer(mark, rows, {"x": self.x.channel(x), "y": upward(self.y, y)} | ends | more)

    def boxes(self, rows: Sequence[Row], more: dict[str, Any] | None = None, **mark: Any) -> ChartLayer:
        """Rectangles between `from` and `to`, `top` and `bottom`."""
        return self.layer({"type": "rect"} | mark, rows, "from", "top", x2="to", y2="bottom", **(more or {}))

    def dots(self, rows: Sequence[Row], size: int, more: dict[str, Any] | None = None, **mark: Any) -> ChartLayer:
        """Circles."""
        return self.layer({"type": "circle", "size": size, "opacity": 1} | mark, rows, **(more or {}))

    def leads(self, rows: Sequence[Row], **mark: Any) -> ChartLayer:
        """Thin lines from `x`, `y` to `x1`, `y1`."""
        return self.layer({"type": "rule"} | mark, rows, x2="x1", y2="y1")

    def texts(self, rows: Sequence[Row], x: str = "x", text: str = "text", **mark: Any) -> ChartLayer:
        """Text at `x`, `y` of each row."""
        style = {"type": "text", "baseline": "middle", "align": "left"} | mark
        return self.layer(style, rows, x, text={"field": text})

    def view(self, layers: Sequence[ChartLayer]) -> dict[str, Any]:
        """The layers, first drawn first."""
        return layered(layers, self.width, self.height)


def pane(width: float, height: float, x: Axis | None = None) -> Picture:
    """A picture whose places are pixels, from the top; across it may have an axis."""
    return Picture(x or Axis("", "number", 0.0, width), Axis("", "number", height, 0), width, height)
