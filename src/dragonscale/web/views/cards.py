"""Pieces that panels are made of: figures under their labels, bars of parts, lines over two axes."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dragonscale.blocks.amounts import Amount, amount, quantity
from dragonscale.blocks.charts.line_charts import LineSeries
from dragonscale.blocks.charts.mesh import AxisMove, MeshAxis, mesh_frames
from dragonscale.blocks.charts.stacks import StackPart
from dragonscale.plan.ledger import HeldLine, Ledger

Card = dict[str, Any]
TABLES: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("tables.toml").read_text(encoding="utf-8"))
"""Words and fields of panels, by view."""
_TOTALS = {"flops": "flops", "hbm": "hbm_bytes", "sent": "wire_bytes"} | {
    name: f"{name}_s" for name in ("bound", "expected", "exposed")
}
"""Columns of a table of lines, and the ledger's fields."""
HIDDEN = 0.005
"""The part of a move below which what is exposed of it is not told."""


def figure(label: str, number: Amount, note: str = "", **more: Any) -> Card:
    """A number under its label, with what stands beside it."""
    return {"label": label, "number": number, "about": note, **more}


def fields(record: Any, names: str) -> Card:
    """Fields of a record that the page takes as they are."""
    return {name: getattr(record, name) for name in names.split()}


def figures_of(report: Any, rows: Sequence[Sequence[str]], why: str, **texts: str) -> list[Card]:
    """Figures of a table: fields of a record in their units, or their formulas while sizes are open."""
    figures = []
    for label, field, note, *unit in rows:
        value = getattr(report, field)
        value = getattr(report, f"{field}_formula", None) if value is None else value
        number = amount(value, unit[0], f"{why}:{field}") if unit else quantity(field, value, f"{why}:{field}")
        figures.append(figure(label, number, note.format(report=report, **texts)))
    return figures


def known(figures: Iterable[Card]) -> list[Card]:
    """The figures that have a number or a formula."""
    return [figure for figure in figures if figure["number"]["text"] != "–"]


def notes_of(record: Any) -> list[str]:
    """What an answer says beside itself, and how its question was read."""
    return list(dict.fromkeys([*getattr(record, "notes", ()), *record.notes_beside]))


# lines


def axis(label: str, unit: str, **more: Any) -> Card:
    """What is drawn along one side of a picture."""
    return {"label": label, "unit": unit, **more}


def log_axis(label: str, unit: str, **more: Any) -> Card:
    return axis(label, unit, log=True, **more)


def line(name: str, role: str, points: Sequence[Sequence[float]], **more: Any) -> Card:
    """A line through points."""
    return {"name": name, "role": role, "points": [list(point) for point in points], **more}


def drawn(series: LineSeries) -> Card:
    """A line of a chart that files have too."""
    flags = {name: True for name in ("dashed", "dots") if getattr(series, name)}
    return line(series.name, series.role, series.points, **flags)


def pairs(xs: Iterable[float], ys: Iterable[float], above: float = 0.0) -> list[list[float]]:
    """The points of a line that lie above a value."""
    return [[x, y] for x, y in zip(xs, ys, strict=True) if y > above]


def rule(at: float, text: str, role: str = "limit", **more: Any) -> Card:
    """A value of one axis that matters."""
    return {"at": at, "text": text, "role": role, **more}


def mark(x: float, y: float, text: str, **more: Any) -> Card:
    """A named point."""
    return {"x": x, "y": y, "text": text, **more}


# bars


def bar_parts(parts: Iterable[StackPart], unit: str, why: str, lines: Mapping[str, Any] | None = None) -> list[Card]:
    """The parts of a stacked bar, each with the lines of the ledger that it opens."""
    return [
        {"name": part.name, "role": part.role, "shown": amount(part.value, unit, f"{why}:{part.name}")}
        | ({} if lines is None else {"lines": lines.get(part.name, [])})
        for part in parts
    ]


def bounded(parts: Sequence[StackPart], why: str, bounds: Mapping[str, Any], lines: Mapping[str, Any]) -> list[Card]:
    """Terms of a step as parts of a bar, each with what is hidden of it and its bound."""
    cards = bar_parts(parts, "s", why, lines)
    for part, card in zip(parts, cards, strict=True):
        term, bound = f"{why}:{part.name}", float(bounds.get(part.name, 0.0))
        card |= {"hidden": amount(part.hidden, "s", term), "bound": amount(bound, "s", term)}
    return cards


def held_row(tensor: HeldLine) -> Card:
    """A tensor on a chip."""
    return {"what": tensor.what, "section": tensor.section, "bytes": amount(float(tensor.bytes), "bytes")}


def line_rows(ledger: Ledger) -> dict[str, list[Card]]:
    """Kernels and moves by the term of the bill that they are counted under, the longest first."""
    rows: dict[str, list[Card]] = {}
    for line in sorted(ledger.lines, key=lambda line: -float(line.total("expected_s"))):
        row = {"what": line.what, "section": line.section, "phase": line.phase, "kind": line.kind.replace("_", "-")}
        row |= {"axes": list(line.axes), "times": float(line.times)}
        row |= {name: quantity(field, float(line.total(field))) for name, field in _TOTALS.items()}
        rows.setdefault(line.term, []).append(row)
    return rows


# meshes


def mesh_card(axes: Sequence[MeshAxis], where: str, lies: Mapping[str, str]) -> Card:
    """A mesh for the page's drawing, outermost axis first: its axes, and frames and chips at their places."""
    frames, dots = mesh_frames([(axis_.name, axis_.degree) for axis_ in axes])
    return {
        "slice": where,
        "axes": [
            {"name": axis_.name, "degree": axis_.degree, "role": axis_.role, "splits": axis_.splits}
            | {"lies": lies.get(axis_.name, ""), "moves": [move_card(move, axis_.name) for move in axis_.moves]}
            for axis_ in axes
        ],
        "frames": [[frame.left, frame.top, frame.right, frame.bottom, frame.axis] for frame in frames],
        "dots": [list(dot) for dot in dots],
    }


def move_card(move: AxisMove, axis: str) -> Card:
    """A collective over an axis."""
    why, seconds, exposed = f"sent:{axis}", move.seconds or 0.0, move.exposed or 0.0
    times = {"seconds": amount(seconds, "s", why), "exposed": amount(exposed, "s", why)}
    hidden = exposed <= HIDDEN * seconds
    return {"name": move.name, "bytes": amount(move.bytes, "bytes", why), **times, "hidden": hidden}
