"""A table of numbers as colours: one quantity over two parameters, each cell with its number in it."""

from collections.abc import Sequence
from typing import Any

from dragonscale.blocks.charts.amounts import amount
from dragonscale.blocks.charts.axes import ChartLayer, layered
from dragonscale.blocks.charts.chart import Chart, framed
from dragonscale.blocks.charts.text import distinct, text_width
from dragonscale.blocks.charts.theme import LABEL

CELL = 72.0, 40.0
SCHEME = "cividis"
"""Blue to yellow, made to be read alike by all kinds of sight; darker is less."""
LEAST = 0.2
"""The part of the largest value that the colours span at least."""
DARK_BELOW = 0.55
"""The part of the scheme below which its colours are dark, and want white text."""


def heat_map(
    rows: Sequence[tuple[str, str, float | None]],
    x: str,
    y: str,
    what: str,
    dimension: str,
    title: str,
    subtitle: str = "",
) -> Chart:
    """Rows are (column, line, value), in the order in which columns and lines are drawn; None is a cell without an
    answer."""
    columns, lines = list(dict.fromkeys(row[0] for row in rows)), list(dict.fromkeys(row[1] for row in rows))
    across, down = (dict(zip(names, distinct(names, 34), strict=True)) for names in (columns, lines))
    known_values = [row[2] for row in rows if row[2] is not None]
    low, high = min(known_values, default=0.0), max(known_values, default=1.0)
    domain = colour_range(low, high)
    middle = domain[0] + (domain[1] - domain[0]) * DARK_BELOW
    texts = _texts(known_values, dimension)
    cells = [
        {"x": across[a], "y": down[b], "value": value, "text": "–" if value is None else texts[value]}
        for a, b, value in rows
    ]
    cell_texts, heads = [cell["text"] for cell in cells], across.values()
    widths = [text_width(text, LABEL) + 18 for text in cell_texts] + [text_width(name, LABEL) + 14 for name in heads]
    wide = max([CELL[0], *widths])
    channels = {"x": _place("x", x, list(across.values())), "y": _place("y", y, list(down.values()))}
    key = {"title": None, "values": domain, "labelExpr": _ends(domain, dimension), "gradientLength": 80}
    colour = {"field": "value", "type": "quantitative", "scale": {"scheme": SCHEME, "domain": domain}, "legend": key}
    dark = {"condition": {"test": f"datum.value >= {middle!r}", "value": "#000000"}, "value": "#FFFFFF"}
    answered, missing = ([cell for cell in cells if (cell["value"] is None) == none] for none in (False, True))
    rect = {"type": "rect", "stroke": "@background", "strokeWidth": 2}
    text = {"type": "text", "fontSize": LABEL}
    layers = [
        ChartLayer(rect, answered, channels | {"color": colour}),
        ChartLayer(rect | {"color": "@free"}, missing, channels),
        ChartLayer(text, answered, channels | {"text": {"field": "text"}, "color": dark}),
        ChartLayer(text | {"color": "@muted"}, missing, channels | {"text": {"field": "text"}}),
    ]
    view = layered(layers, 0, 0) | {"width": {"step": round(min(wide, 150))}, "height": {"step": CELL[1]}}
    return framed(title, view, subtitle or what)


def colour_range(low: float, high: float) -> list[float]:
    """What the colours span: the values, but no less than a part of the largest, so that near values look near.

    >>> colour_range(1.0, 2.0), colour_range(0.509, 0.513)
    ([1.0, 2.0], [0.4597, 0.5623])
    """
    spare = max(LEAST * max(abs(low), abs(high)) - (high - low), 0.0) / 2
    if not spare and high == low:
        return [low, low + 1]  # nothing but zeros: any colour will do
    return [round(low - spare, 12), round(high + spare, 12)] if spare else [low, high]


def _texts(values: Sequence[float], dimension: str) -> dict[float, str]:
    """The label of each value, with as many digits as tell them apart, up to five.

    >>> list(_texts([0.509, 0.513], "share").values())
    ['50.9%', '51.3%']
    """
    texts = {value: amount(value, dimension) for value in values}
    for digits in (4, 5):
        if len(set(texts.values())) == len(texts):
            break
        if dimension == "share":
            texts = {value: f"{value:.{digits - 3}%}" for value in values}
        else:
            texts = {value: amount(value, dimension, digits) for value in values}
    return texts


def _ends(domain: Sequence[float], dimension: str) -> str:
    """The two ends of the colour scale as text, as an expression of Vega."""
    low, high = _texts(domain, dimension).values()
    return f"datum.value <= {sum(domain) / 2!r} ? '{low}' : '{high}'"


def _place(field: str, title: str, order: list[str]) -> dict[str, Any]:
    above = {"titleAngle": 0, "titleAlign": "right", "titleY": -8, "titleX": -8, "titleBaseline": "bottom"}
    turned = above if field == "y" else {"labelAngle": 0}
    axis = {"title": title, "domain": False, "ticks": False, "grid": False} | turned
    return {"field": field, "type": "nominal", "sort": order, "scale": {"domain": order}, "axis": axis}
