"""A sheet as text for a terminal of any width from 60 to 200 columns."""

import os
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from dragonscale.blocks import sheet as blocks
from dragonscale.blocks.colour import block, painted
from dragonscale.errors import printable

NARROWEST, USUAL, WIDEST = 60, 80, 200
READABLE = 110
"""Sentences longer than this are hard to read, however wide the terminal is."""
GAP = "  "
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m|\x1b\]8;;.*?\x1b\\")


def width_of(stream: Any = None) -> int:
    """The columns there are: of the terminal, of COLUMNS, or 80 in a pipe."""
    out = stream or sys.stdout
    if not out.isatty() and not os.environ.get("COLUMNS", "").isdigit():
        return USUAL
    return max(NARROWEST, min(WIDEST, shutil.get_terminal_size((USUAL, 24)).columns))


def text_of(sheet: blocks.Sheet, width: int = USUAL, colour: bool = False) -> str:
    """The whole sheet, an empty line between blocks."""
    return "\n\n".join(part for one in _clean(sheet.blocks) if (part := _block(one, width, colour)))


def _clean(value: Any) -> Any:
    """Blocks without characters that would steer a terminal, wherever their text came from."""
    if isinstance(value, str):
        return printable(value, keep="\n")
    if isinstance(value, tuple):
        return tuple(map(_clean, value))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _clean(getattr(value, field.name)) for field in fields(value)})
    return value


def _block(one: blocks.Block, width: int, colour: bool) -> str:
    match one:
        case blocks.Title():
            aside = wrapped(one.aside, width) if one.aside else ""
            return "\n".join(filter(None, (painted(wrapped(one.text, width), "title", colour), aside)))
        case blocks.Facts():
            label = max((len(row.label) for row in one.rows), default=0) + 2
            return "\n".join(_fact(row.label, row.text, row.tone, label, width, colour) for row in one.rows)
        case blocks.StackedBar():
            return _stack(one, width, colour)
        case blocks.Grid():
            return _table(one, width, colour)
        case blocks.Prose():
            return painted(wrapped(one.text, width), one.tone, colour)
        case blocks.Verbatim():
            return one.text
        case blocks.NextStep():
            why = wrapped(one.why, width) + "\n" if one.why else ""
            return why + GAP + painted(f"`{one.text}`", "", colour).strip("`")


def wrapped(text: str, width: int, start: str = "", indent: str = "") -> str:
    """Prose of at most the width, and never so wide that it cannot be read; its own line breaks are kept, and
    what a line goes on with is set in further than the line."""
    lines, wrap = [], textwrap.TextWrapper(min(width, READABLE), break_long_words=False, break_on_hyphens=False)
    for place, line in enumerate(text.split("\n")):
        inward = len(line) - len(line.lstrip())
        wrap.initial_indent = indent if place else start
        wrap.subsequent_indent = indent + (" " * (inward + 2) if inward else "")
        lines.append(wrap.fill(line))
    return "\n".join(lines)


def _fact(label: str, text: str, tone: str, room: int, width: int, colour: bool) -> str:
    indent = " " * room
    body = wrapped(text, width, indent, indent)[room:]
    return painted(label.ljust(room), "label", colour) + painted(body, tone, colour)


def _stack(one: blocks.StackedBar, width: int, colour: bool) -> str:
    label, told = one.label.ljust(8), f" {one.text}"
    room = max(10, min(width, 120) - len(label) - len(told) - 2)
    scale = max(one.total, sum(part.value for part in one.parts)) or 1.0
    drawn, cells, filled = "", 0, 0.0
    for place, part in enumerate(one.parts):
        filled += part.value
        many = round(filled / scale * room) - cells
        drawn, cells = drawn + block(place, many, colour), cells + many
    bar = f"{painted(label, 'label', colour)}|{drawn}{'·' * (room - cells)}|{painted(told, one.tone, colour)}"
    legend = {"list": _listed, "line": _side_by_side, "none": lambda *_: []}[one.legend]
    return "\n".join([bar, *legend(one.parts, scale, width, colour)])


def _listed(parts: Sequence[blocks.BarPart], scale: float, width: int, colour: bool) -> list[str]:
    """A line for each part: its fill, name, amount, share and note."""
    amounts = max((len(part.text) for part in parts), default=0)
    names = min(max((len(part.name) for part in parts), default=0), width - amounts - 13)
    lines = []
    for place, part in enumerate(parts):
        name, share = part.name[:names].ljust(names), f"{part.value / scale:.1%}"
        line = f"{GAP}{block(place, 1, colour)} {name} {part.text:>{amounts}} {share:>6}"
        note = f"{GAP}({part.note})" if part.note and len(_ESCAPE.sub("", line)) + len(part.note) + 4 <= width else ""
        lines.append(line + painted(note, "dim", colour))
    return lines


def _side_by_side(parts: Sequence[blocks.BarPart], _: float, width: int, colour: bool) -> list[str]:
    lines, used = [""], 0
    for place, part in enumerate(parts):
        text = f"{part.name} {part.text}"
        if used and used + len(text) + 5 > width:
            lines, used = [*lines, ""], 0
        lines[-1] += f"{GAP}{block(place, 1, colour)} {text}{GAP}"[: None if colour else width]
        used += len(text) + 6
    return [line.rstrip() for line in lines if line.strip()]


def _columns_of(text: str) -> int:
    """How many columns a text takes: wide characters take two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _table(one: blocks.Grid, width: int, colour: bool) -> str:
    kept, bars = _fitting(one, width)
    lines = [painted(wrapped(one.title, width), "title", colour)] if one.title else []
    columns = [one.columns[place] for place in kept]
    cells = [[_drawn(row[place], one.columns[place], bars) for place in kept] for row in one.rows]
    texts = [[column.title, *(row[place] for row in cells)] for place, column in enumerate(columns)]
    widths = [max(map(_columns_of, own)) for own in texts]
    spare = width - sum(widths) - len(GAP) * (len(widths) - 1)
    if spare < 0:
        widths = _squeezed(columns, widths, -spare)
    if any(column.title for column in columns):
        lines.append(painted(_row([column.title for column in columns], columns, widths), "head", colour).rstrip())
    for row in cells:
        split = [_split(text, room) for text, room in zip(row, widths, strict=True)]
        for line in range(max(map(len, split), default=0)):
            texts = [parts[line] if line < len(parts) else "" for parts in split]
            lines.append(_row(texts, columns, widths, colour).rstrip())
    return "\n".join([*lines, *([painted(wrapped(one.foot, width), "dim", colour)] if one.foot else [])])


def _fitting(one: blocks.Grid, width: int) -> tuple[list[int], int]:
    """The columns that are kept, and the cells that bars have."""
    kept = list(range(len(one.columns)))
    fixed = sum(not one.columns[place].bar for place in kept)
    bars = 12 if fixed == len(kept) else max(8, min(40, width // 5))

    def needed(places: list[int]) -> int:
        sizes = []
        for place in places:
            column = one.columns[place]
            texts = [_drawn(row[place], column, bars) for row in one.rows]
            longest = max([_columns_of(column.title), *map(_columns_of, texts)])
            sizes.append(min(longest, 24) if column.wrap else longest)
        return sum(sizes) + len(GAP) * (len(sizes) - 1)

    while needed(kept) > width:
        lowest = min((one.columns[place].keep for place in kept), default=9)
        if lowest >= 9:
            break
        kept.remove(next(place for place in reversed(kept) if one.columns[place].keep == lowest))
    return kept, bars


def _squeezed(columns: Sequence[blocks.Column], widths: list[int], over: int) -> list[int]:
    """The widest columns that may be wrapped give way, or the widest of all where none may."""
    most = [place for place, column in enumerate(columns) if column.wrap] or [
        place for place, column in enumerate(columns) if not column.right
    ]
    if not most:
        return widths
    made = list(widths)
    for _ in range(over):  # a column at a time, the widest first, so that several end up about as wide
        place = max(most, key=lambda one: made[one])
        made[place] = min(made[place], max(12, made[place] - 1))
    return made


def _split(text: str, room: int) -> list[str]:
    if _columns_of(text) <= room:
        return [text]
    lines = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]
    return [piece for line in lines for piece in _broken(line, room)]


def _broken(word: str, room: int) -> list[str]:
    """The name of an operation or a file, or a plan, broken behind slashes and commas where it is too long.

    >>> _broken("jit(step)/layers/while/body", 18)
    ['jit(step)/layers/', 'while/body']
    >>> _broken("PjRtStreamExecutorRawLoadedExecut…,", 20)
    ['PjRtStreamExecutorRawLoadedExecut…,']
    """
    lines = [""]
    for piece in filter(None, re.split(r"(?<=[/,])", word)) if len(word) > room else [word]:
        if lines[-1] and len(lines[-1]) + len(piece) > room:
            lines.append("")
        lines[-1] += piece
    return lines


def _drawn(value: Any, column: blocks.Column, cells: int) -> str:
    if not column.bar:
        return blocks.cell_text(value)
    full = round(max(0.0, min(1.0, value or 0.0)) * cells)
    return "█" * full + "·" * (cells - full)


def _row(texts: Sequence[str], columns: Sequence[blocks.Column], widths: Sequence[int], colour: bool = False) -> str:
    shown = []
    for text, column, room in zip(texts, columns, widths, strict=True):
        pad = " " * max(0, room - _columns_of(text))
        toned = painted(text, column.tone, colour)
        shown.append(pad + toned if column.right else toned + pad)
    return GAP.join(shown)
