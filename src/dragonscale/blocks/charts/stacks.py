"""Stacked bars: where the time of a step goes, and what fills a chip's memory, one bar for each plan.

A bar is as long as its total. What runs hidden behind it takes no time of its own, so it is a thinner, lighter bar
below; it would be wrong to add it to the length. Parts too small to see are drawn together as `other`. The legend is a
table in the order of the stack; with a single bar it says the amounts too, so nothing has to be read off an axis.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dragonscale.blocks.charts.amounts import amount
from dragonscale.blocks.charts.axes import APART, ChartLayer, LayerRows, Picture, Row, pane, tooltip, zero_axis
from dragonscale.blocks.charts.chart import WIDTH, Chart, framed
from dragonscale.blocks.charts.text import distinct, text_width
from dragonscale.blocks.charts.theme import LABEL, SMALL, unlike

SMALLEST = 0.012
"""A part with less than this of the longest bar is drawn with the others like it."""
HEAD, BAR, LANE, GAP = 24, 34, 10, 22
"""Pixels: the line above a bar with its name, the bar, the thin bar of what is hidden, and the room between bars."""
ROW = 23
"""Pixels of a line of the legend."""


@dataclass(frozen=True)
class StackPart:
    """A piece of a bar: `role` is its colour by meaning (`compute`, `compute:1`), `hidden` what runs
    behind the others."""

    name: str
    value: float
    role: str
    hidden: float = 0.0


@dataclass(frozen=True)
class PartStack:
    """A bar: its name above it on the left, a remark on the right (`6.75 s, 55% MFU`)."""

    name: str
    parts: tuple[StackPart, ...]
    remark: str = ""

    @property
    def total(self) -> float:
        """How long the bar is."""
        return sum(part.value for part in self.parts)


def time_bars(stacks: Sequence[PartStack], title: str, subtitle: str = "", axis: str = "time of a step") -> Chart:
    """Exposed time by part, and below each bar what is hidden."""
    return stacked_bars(stacks, title, subtitle, axis, "s")


def memory_bars(
    stacks: Sequence[PartStack], limit: float, title: str, subtitle: str = "", axis: str = "memory of a chip"
) -> Chart:
    """Bytes by part against what a chip holds."""
    return stacked_bars(stacks, title, subtitle, axis, "bytes", limit)


def stacked_bars(
    stacks: Sequence[PartStack],
    title: str,
    subtitle: str,
    axis: str,
    dimension: str,
    limit: float = 0.0,
    width: int = WIDTH,
) -> Chart:
    """Bars of parts, one below the other, and their legend. Without an axis a single bar's legend runs
    along in lines."""
    names = distinct([stack.name for stack in stacks], 90)
    named = [replace(stack, name=name) for stack, name in zip(stacks, names, strict=True)]
    shown = _recoloured(_with_others(named))
    x = zero_axis(
        axis, dimension, [limit, *(stack.total for stack in shown), *(_hidden(stack) for stack in shown)], grid=False
    )
    hides = any(part.hidden > 0 for stack in shown for part in stack.parts)
    step = HEAD + BAR + (LANE + 4 if hides else 0) + GAP
    height = step * len(shown) - GAP + 8
    here = pane(width, height, x)
    content = here.view(_layers(shown, here, step, limit, dimension))
    if len(shown) > 1:
        table = legend_line(_parts(shown), width, hides, limit > 0)
    elif axis:
        table = legend_table(shown, dimension, width)
    else:
        parts = [replace(part, name=_told(part, dimension)) for part in shown[0].parts]
        table = legend_line(parts, width, hides, limit > 0)
    return framed(title, {"vconcat": [content, table], "spacing": 18, "resolve": APART}, subtitle)


def _told(part: StackPart, dimension: str) -> str:
    """A part's name with its amounts, for a legend that runs along."""
    hidden = f", {amount(part.hidden, dimension)} hidden" if part.hidden > 0.005 * part.value else ""
    return f"{part.name} {amount(part.value, dimension)}{hidden}"


def _hidden(stack: PartStack) -> float:
    return sum(part.hidden for part in stack.parts)


def _with_others(stacks: Sequence[PartStack]) -> list[PartStack]:
    """Parts that are too small to see in every bar, added up as `other` at each bar's end."""
    longest = max((stack.total for stack in stacks), default=0.0)
    sizes: dict[str, float] = {}
    for stack in stacks:
        for part in stack.parts:
            sizes[part.name] = max(sizes.get(part.name, 0.0), part.value, part.hidden)
    small = [name for name, size in sizes.items() if size < SMALLEST * longest]
    if len(small) < 2:
        return list(stacks)
    folded = []
    for stack in stacks:
        few = [part for part in stack.parts if part.name in small]
        size, hidden = sum(part.value for part in few), sum(part.hidden for part in few)
        other = StackPart(f"other ({len(small)})", size, "overhead:2", hidden)
        large = [part for part in stack.parts if part.name not in small]
        used, free = ([part for part in large if (part.role == "free") == is_free] for is_free in (False, True))
        folded.append(replace(stack, parts=(*used, other, *free)))
    return folded


def _parts(stacks: Sequence[PartStack]) -> list[StackPart]:
    """Every part once: the order of the legend is that of the bars."""
    order: list[StackPart] = []
    for stack in stacks:
        position = 0
        for part in stack.parts:
            names = [other.name for other in order]
            if part.name in names:
                position = names.index(part.name) + 1
            else:
                order.insert(position, part)
                position += 1
    return order


def _recoloured(stacks: Sequence[PartStack]) -> list[PartStack]:
    """No two parts of one colour."""
    parts = _parts(stacks)
    roles = dict(zip((part.name for part in parts), unlike([part.role for part in parts]), strict=True))
    return [
        replace(stack, parts=tuple(replace(part, role=roles[part.name]) for part in stack.parts)) for stack in stacks
    ]


def stack_order(stacks: Sequence[PartStack]) -> list[str]:
    """Names of the parts as drawn, which is the legend's order."""
    return [part.name for part in _parts(_with_others(stacks))]


def _layers(stacks: Sequence[PartStack], here: Picture, step: float, limit: float, dimension: str) -> list[ChartLayer]:
    order = [part.name for part in _parts(stacks)]
    rows = LayerRows(list)
    for number, stack in enumerate(stacks):
        top = step * number + HEAD
        end, after = 0.0, 0.0
        rows["heads"].append({"x": 0.0, "y": top - 13, "text": stack.name, "remark": stack.remark, "end": here.x.high})
        for part in sorted(stack.parts, key=lambda part: order.index(part.name)):
            tip = {"part": part.name, "amount": amount(part.value, dimension), "bar": stack.name, "paint": part.role}
            if part.value > 0:
                rows["bars"].append(tip | {"from": end, "to": end + part.value, "top": top, "bottom": top + BAR})
                text = amount(part.value / stack.total, "share")
                if text_width(text, LABEL) + 10 < here.x.share(part.value) * here.width and part.role != "free":
                    middle = {"x": end + part.value / 2, "y": top + BAR / 2}
                    rows["shares"].append(middle | {"text": text, "paint": f"on:{part.role}"})
                end += part.value
            if part.hidden > 0:
                lane = {"from": after, "to": after + part.hidden, "top": top + BAR + 3, "bottom": top + BAR + 3 + LANE}
                rows["lanes"].append(tip | lane | {"amount": f"{amount(part.hidden, dimension)} hidden"})
                after += part.hidden
    edge, tip = {"stroke": "@background", "strokeWidth": 1.5}, tooltip("bar", "part", "amount")
    large = {"color": "@ink", "fontSize": LABEL + 1}
    remarked = [row for row in rows["heads"] if row["remark"]]
    layers = [
        here.boxes(rows["bars"], tip, **edge),
        here.boxes(rows["lanes"], tip, **edge, fillOpacity=0.42),
        here.texts(rows["shares"], align="center"),
        here.texts(rows["heads"], fontWeight="bold", **large),
        here.texts(remarked, "end", "remark", align="right", **large),
    ]
    if limit:  # the line that no bar should cross, beside every bar
        tops = [step * number + HEAD for number in range(len(stacks))]
        ends = [{"x": limit, "top": top - 1, "bottom": top + BAR + 5} for top in tops]
        rule = {"type": "rule", "color": "@limit", "strokeWidth": 3}
        layers.append(here.layer(rule, ends, y="top", y2="bottom"))
    return layers


def legend_table(stacks: Sequence[PartStack], dimension: str, width: float) -> dict[str, Any]:
    """One bar's parts with their amounts and shares, in the order of the stack."""
    [stack] = stacks
    parts, total = list(stack.parts), stack.total
    hides = _hidden(stack) > 0
    names = distinct([part.name for part in parts], 60)
    columns = 2 if len(parts) > 5 else 1
    lines = -(-len(parts) // columns)
    head = ROW if hides else 0
    wide = max(text_width(name, LABEL) for name in names) + 26
    ends = [wide + 66, wide + 118] + ([wide + 188] if hides else [])
    between = min(ends[-1] + 46, (width - ends[-1])) if columns == 2 else 0.0
    rows = LayerRows(list)
    for number, (part, name) in enumerate(zip(parts, names, strict=True)):
        x0, at = number // lines * between, (number % lines + 0.5) * ROW + head
        swatch = {"from": x0, "to": x0 + 15, "top": at - 7.5, "bottom": at + 7.5, "paint": part.role}
        rows["swatches"].append(swatch)
        rows["names"].append({"x": x0 + 24, "y": at, "text": name})
        rows["amounts"].append({"x": x0 + ends[0], "y": at, "text": amount(part.value, dimension)})
        share = amount(part.value / total, "share") if total else ""
        rows["dim"].append({"x": x0 + ends[1], "y": at, "text": share})
        if part.hidden > 0.0005 * total:
            rows["dim"].append({"x": x0 + ends[2], "y": at, "text": amount(part.hidden, dimension)})
        if hides and number % lines == 0:
            titles = zip(ends, ("exposed", "share", "hidden"), strict=True)
            rows["dim"] += [{"x": x0 + end, "y": head / 2 - 2, "text": text} for end, text in titles]
    here = pane(width, lines * ROW + head)
    amounts = here.texts(rows["amounts"], color="@ink", align="right")
    dim = here.texts(rows["dim"], color="@muted", align="right")
    return here.view([here.boxes(rows["swatches"]), here.texts(rows["names"], color="@ink"), amounts, dim])


def legend_line(parts: Sequence[StackPart], width: float, hides: bool = False, limited: bool = False) -> dict[str, Any]:
    """Names beside their colours, in lines from left to right."""
    names = distinct([part.name for part in parts], 60)
    entries = [(name, part.role, 1.0) for name, part in zip(names, parts, strict=True)]
    if hides:
        entries.append(("thin and lighter: hidden (overlapped)", "overhead", 0.42))
    if limited:
        entries.append(("HBM limit", "limit", 1.0))
    swatches, texts, x0, line = list[Row](), list[Row](), 0.0, 0
    for name, role, opacity in entries:
        wide = text_width(name, LABEL) + 50
        if x0 + wide - 20 > width and x0:
            x0, line = 0.0, line + 1
        at, half = (line + 0.5) * ROW, 7.5 if opacity == 1 else LANE / 2
        swatches.append({"from": x0, "to": x0 + 15, "top": at - half, "bottom": at + half, "paint": role, "o": opacity})
        texts.append({"x": x0 + 22, "y": at, "text": name})
        x0 += wide
    here = pane(width, (line + 1) * ROW)
    lighter = {"opacity": {"field": "o", "type": "quantitative", "scale": None, "legend": None}}
    return here.view([here.boxes(swatches, lighter), here.texts(texts, color="@ink", fontSize=SMALL + 1)])
