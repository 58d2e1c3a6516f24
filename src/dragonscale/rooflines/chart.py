"""Roofline plots as data: Vega-Lite charts that a browser shows interactively, and PNG or SVG files of them.

The x axis is intensity (FLOPs per byte), the y axis FLOP/s, both logarithmic. Each memory level is a slanted line that
meets the compute roof at its critical intensity; operations are points under the roof they are bound by.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dragonscale.errors import InputError, shorten
from dragonscale.files import is_stream, write_file
from dragonscale.hardware import Chip
from dragonscale.rooflines.bounds import attainable

FORMATS = (".png", ".svg", ".json", ".html")
SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"


def roof(chip: Chip, dtype: str, levels: Sequence[str] = ("hbm",)) -> list[dict[str, Any]]:
    """Points of the roof for each memory level: attainable FLOP/s at intensities from 0.1 to 100,000."""
    peak = chip.peak(dtype)
    points: list[dict[str, Any]] = []
    for level in levels:
        bandwidth = chip.bandwidth(level)
        for intensity in sorted({0.1, peak / bandwidth, 1e5}):
            reached = attainable(intensity, peak, bandwidth)
            points.append({"level": level, "intensity": intensity, "flops_per_s": reached})
    return points


def roofline_chart(
    chip: Chip, operations: Sequence[tuple[str, float, float]], dtype: str = "bf16", levels: Sequence[str] = ("hbm",)
) -> dict[str, Any]:
    """A Vega-Lite chart of a chip's roofs and some operations, each (name, intensity, FLOP/s)."""
    x = {"field": "intensity", "type": "quantitative", "scale": {"type": "log"}, "title": "intensity (FLOPs per byte)"}
    y = x | {"field": "flops_per_s", "title": "FLOP/s", "axis": {"format": "~s"}}
    points = [{"name": name, "intensity": i, "flops_per_s": rate} for name, i, rate in operations]
    tooltip = [{"field": field} for field in ("name", "intensity", "flops_per_s")]
    at, marked = {"x": x, "y": y}, {"values": points}
    colour = {"color": {"field": "level", "type": "nominal", "title": "memory"}}
    line = {"type": "line", "strokeWidth": 2}
    point = {"type": "point", "filled": True, "size": 70, "color": "#c0392b"}
    text = {"type": "text", "align": "left", "dx": 7, "dy": -5, "fontSize": 11}
    layers = [
        {"data": {"values": roof(chip, dtype, levels)}, "mark": line, "encoding": at | colour},
        {"data": marked, "mark": point, "encoding": at | {"tooltip": tooltip}},
        {"data": marked, "mark": text, "encoding": at | {"text": {"field": "name"}}},
    ]
    return _framed(f"{chip.title}, {dtype}", layer=layers)


def line_chart(rows: list[dict[str, Any]], x: str, y: str, colour: str, title: str) -> dict[str, Any]:
    """A Vega-Lite chart of one quantity against another on logarithmic axes, a line for each value of `colour`."""

    def axis(field: str) -> dict[str, Any]:
        return {"field": field, "type": "quantitative", "scale": {"type": "log"}, "axis": {"format": "~s"}}

    encoding = {"x": axis(x), "y": axis(y), "color": {"field": colour, "type": "nominal"}}
    mark = {"type": "line", "strokeWidth": 2, "tooltip": True}
    return _framed(title, data={"values": rows}, mark=mark, encoding=encoding)


def _framed(title: str, **content: Any) -> dict[str, Any]:
    config = {"axis": {"gridColor": "#eeeeee"}}
    return {"$schema": SCHEMA, "title": title, "width": 560, "height": 360, "config": config} | content


def save_chart(chart: dict[str, Any], path: str) -> None:
    """Write a chart as PNG or SVG, as a web page, or as the Vega-Lite JSON itself, by the file's ending."""
    check_chart(path)
    write_file(path, _encoded(chart, Path(path).suffix.lower() or ".json"), "The chart")


def check_chart(path: str) -> None:
    """Refuse a file that no chart can be, before anything is computed. A device or a pipe without an
    ending gets the JSON."""
    ending = Path(path).suffix.lower()
    if ending not in FORMATS and (ending or not is_stream(path)):
        raise InputError(f"The plot file {shorten(path)} should end in one of {', '.join(FORMATS)}.")


def _encoded(chart: dict[str, Any], suffix: str) -> bytes:
    if suffix == ".json":
        return (json.dumps(chart, indent=1) + "\n").encode()
    try:
        import vl_convert
    except ImportError:
        extra = "pip install 'dragonscale[plot]'; .json needs nothing."
        raise InputError(f"Plots as PNG, SVG or HTML need the extra: {extra}") from None
    if suffix == ".png":
        return vl_convert.vegalite_to_png(chart, scale=2)
    if suffix == ".svg":
        return vl_convert.vegalite_to_svg(chart).encode()
    # The page holds the chart as JSON inside a script, where a name that contains </script> would end
    # it: "<" travels as a character of no alphabet and arrives as JSON's escape.
    page = vl_convert.vegalite_to_html(_swapped(chart), bundle=True)
    return page.replace(_LESS, "\\u003c").encode()


_LESS = "\uf4a3"


def _swapped(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace(_LESS, "?").replace("<", _LESS)
    if isinstance(value, dict):
        return {_swapped(name): _swapped(one) for name, one in value.items()}
    return [_swapped(one) for one in value] if isinstance(value, list | tuple) else value
