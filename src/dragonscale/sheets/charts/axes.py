"""Axes that know where a value lies in pixels, so that labels can be placed before anything is drawn."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dragonscale.sheets.charts.amounts import linear_ceiling, log_domain, log_ticks, tick_expression

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

    def encoding(self, field: str, other: str = "", **more: Any) -> dict[str, Any]:
        """Vega-Lite's channel for a field on this axis; `other` names the field of the far end of a bar."""
        scale: dict[str, Any] = {"domain": [self.low, self.high], "nice": False, "zero": False}
        if self.log:
            scale |= {"type": "log"}
        drawn: dict[str, Any] | None = None
        if self.title:
            # A linear axis has one unit throughout; a logarithmic one changes it on the way.
            label = tick_expression(self.dimension, 0.0 if self.log else max(abs(self.low), abs(self.high)))
            drawn = {"labelExpr": label, "grid": self.grid, "title": self.title}
            drawn |= {"values": list(self.ticks)} if self.ticks else {"tickCount": self.count}
        channel = {"field": field, "type": "quantitative", "scale": scale, "axis": drawn, **more}
        return {"channel": channel, "other": {"field": other}} if other else {"channel": channel}


def along(axis: Axis, field: str, other: str = "") -> dict[str, Any]:
    """The x (and x2) of a layer."""
    found = axis.encoding(field, other)
    return {"x": found["channel"]} | ({"x2": found["other"]} if other else {})


def upward(axis: Axis, field: str, other: str = "") -> dict[str, Any]:
    """The y (and y2) of a layer."""
    found = axis.encoding(field, other)
    if found["channel"]["axis"] is not None:
        # The title stands above the axis, where it is read without turning the head.
        above = {"titleAngle": 0, "titleAlign": "left", "titleBaseline": "bottom", "titleX": 2, "titleY": -8}
        found["channel"]["axis"] |= above
    return {"y": found["channel"]} | ({"y2": found["other"]} if other else {})


def pixels(length: float) -> Axis:
    """An axis that is not drawn and counts pixels."""
    return Axis("", "number", 0.0, length)


def log_axis(title: str, dimension: str, values: Iterable[float], ticks: int = 9, room: float = 0.06) -> Axis:
    """A logarithmic axis around values, with ticks at round numbers and no empty decade."""
    low, high = log_domain(list(values), room)
    marks = powers(low, high) if dimension == "degree" else log_ticks(low, high, ticks)
    return Axis(title, dimension, low, high, True, ticks=tuple(marks))


def zero_axis(title: str, dimension: str, values: Iterable[float], room: float = 0.04, grid: bool = True) -> Axis:
    """A linear axis from zero to a little more than the largest value."""
    return Axis(title, dimension, 0.0, linear_ceiling(max(values, default=1.0), room), grid=grid)


def powers(low: float, high: float, most: int = 10) -> list[float]:
    """Powers of two between two numbers, every other one where there are many.

    >>> powers(30, 600)
    [32.0, 64.0, 128.0, 256.0, 512.0]
    """
    found = [2.0**power for power in range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)]
    return found[:: -(-len(found) // most)] if found else []


Row = dict[str, Any]


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
        if not layer.rows:
            continue
        painted = {"color": colour} if "paint" in layer.rows[0] else {}
        drawn.append({"data": {"values": list(layer.rows)}, "mark": layer.mark, "encoding": layer.encoding | painted})
    return {"width": width, "height": height, "layer": drawn}


def labels(rows: Sequence[Row], x: Axis, y: Axis, **mark: Any) -> ChartLayer:
    """Text at `x`, `y` of each row."""
    return ChartLayer(
        {"type": "text", "baseline": "middle", "align": "left"} | mark,
        rows,
        along(x, "x") | upward(y, "y") | {"text": {"field": "text"}},
    )
