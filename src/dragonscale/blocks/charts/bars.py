"""Plain bars: one quantity of several things, or two of each side by side (planned and compiled, one
chip and another)."""

from collections.abc import Sequence
from dataclasses import dataclass

from dragonscale.blocks.charts.amounts import amount
from dragonscale.blocks.charts.axes import APART, Row, pane, tooltip, zero_axis
from dragonscale.blocks.charts.chart import WIDTH, Chart, framed
from dragonscale.blocks.charts.stacks import StackPart, legend_line
from dragonscale.blocks.charts.text import distinct, text_width
from dragonscale.blocks.charts.theme import LABEL, SERIES

THICK, THIN, GAP = 24, 17, 13


@dataclass(frozen=True)
class Bar:
    """A bar: its name on the left, its amount at its end, with a remark after it. `group` says which of several kinds
    it is."""

    name: str
    value: float
    role: str = ""
    remark: str = ""
    group: str = ""


def bars(
    rows: Sequence[Bar], title: str, subtitle: str = "", dimension: str = "number", axis: str = "", width: int = WIDTH
) -> Chart:
    """A bar for each row, in the order given; rows of one name stand together, coloured by their group."""
    names = list(dict.fromkeys(row.name for row in rows))
    shown = dict(zip(names, distinct(names, 52), strict=True))
    groups = list(dict.fromkeys(row.group for row in rows))
    thick = THICK if len(groups) < 2 else THIN
    left = max((text_width(name, LABEL) for name in shown.values()), default=0.0) + 14
    labels = [amount(row.value, dimension) + (f" ({row.remark})" if row.remark else "") for row in rows]
    right = max((text_width(text, LABEL) for text in labels), default=0.0) + 14
    inside = max(width - left - right, 260.0)
    x = zero_axis(axis, dimension, [row.value for row in rows], margin=0.0, grid=False)
    drawn, texts, heads, top = list[Row](), list[Row](), list[Row](), 0.0
    for name in names:
        labelled = [(row, text) for row, text in zip(rows, labels, strict=True) if row.name == name]
        heads.append({"x": 0.0, "y": top + thick * len(labelled) / 2, "text": shown[name]})
        for row, text in labelled:
            paint = row.role or SERIES[groups.index(row.group) % len(SERIES)]
            bar = {"from": 0.0, "to": row.value, "top": top + 1, "bottom": top + thick - 1, "paint": paint}
            drawn.append(bar | {"name": row.name, "amount": text, "group": row.group})
            texts.append({"x": row.value, "y": top + thick / 2, "text": text})
            top += thick
        top += GAP
    height = max(top - GAP, thick) + (8 if axis else 0)
    here = pane(inside, height, x)
    boxes = here.boxes(drawn, tooltip("name", "amount"), cornerRadius=2)
    names = here.texts(heads, align="right", dx=-10, color="@ink")
    view = here.view([boxes, names, here.texts(texts, dx=8, color="@ink")])
    if len(groups) < 2:
        return framed(title, view, subtitle)
    parts = [StackPart(group, 0.0, SERIES[number % len(SERIES)]) for number, group in enumerate(groups)]
    return framed(title, {"vconcat": [legend_line(parts, inside), view], "spacing": 12, "resolve": APART}, subtitle)
