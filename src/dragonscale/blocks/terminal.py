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
_COMMAND = re.compile(r"`[^`\n]+`")
_UNBROKEN = "\0"
"""A space that no line is broken at while a text is wrapped."""
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m|\x1b\]8;;.*?\x1b\\")


def width_of(stream: Any = None) -> int:
    """The columns there are: of the terminal, of COLUMNS, or 80 in a pipe."""
    out = stream or sys.stdout
    if not out.isatty() and not os.environ.get("COLUMNS", "").isdigit():
        return USUAL
    return max(NARROWEST, min(WIDEST, shutil.get_terminal_size((USUAL, 24)).columns))


def text_of(sheet: blocks.Sheet, width: int = USUAL, colour: bool = False) -> str:
    """The whole sheet, an empty line between blocks."""
    return "\n\n".join(part for sheet_block in _clean(sheet.blocks) if (part := _block(sheet_block, width, colour)))


def _clean(value: Any) -> Any:
    """Blocks without characters that would steer a terminal, wherever their text came from."""
    if isinstance(value, str):
        return printable(value, keep="\n")
    if isinstance(value, tuple):
        return tuple(map(_clean, value))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _clean(getattr(value, field.name)) for field in fields(value)})
    return value


def _block(sheet_block: blocks.Block, width: int, colour: bool) -> str:
    match sheet_block:
        case blocks.Title():
            lines = []
            if sheet_block.verdict:
                lines.append(painted(wrapped(sheet_block.verdict, width), sheet_block.tone, colour))
            lines.append(painted(wrapped(sheet_block.text, width), "title", colour))
            if sheet_block.aside:
                lines.append(wrapped(sheet_block.aside, width))
            return "\n".join(lines)
        case blocks.Facts():
            label = max((len(row.label) for row in sheet_block.rows), default=0) + 2
            return "\n".join(_fact(row.label, row.text, row.tone, label, width, colour) for row in sheet_block.rows)
        case blocks.StackedBar():
            return _stack(sheet_block, width, colour)
        case blocks.Grid():
            return _table(sheet_block, width, colour)
        case blocks.Prose():
            return painted(wrapped(sheet_block.text, width), sheet_block.tone, colour)
        case blocks.Verbatim():
            return sheet_block.text
        case blocks.NextStep():
            why = wrapped(sheet_block.why, width) + "\n" if sheet_block.why else ""
            return why + GAP + painted(f"`{sheet_block.text}`", "", colour).strip("`")


def wrapped(text: str, width: int, start: str = "", indent: str = "") -> str:
    """Prose of at most the width, and never so wide that it cannot be read; its own line breaks are kept, and
    what a line goes on with is set in further than the line. Commands in backticks are not broken where they fit."""

    def unbroken(command: re.Match[str]) -> str:
        return command[0].replace(" ", _UNBROKEN) if len(command[0]) + len(indent) <= width else command[0]

    text = _COMMAND.sub(unbroken, text)
    lines, wrap = [], textwrap.TextWrapper(min(width, READABLE), break_long_words=False, break_on_hyphens=False)
    for index, line in enumerate(text.split("\n")):
        inward = len(line) - len(line.lstrip())
        wrap.initial_indent = indent if index else start
        wrap.subsequent_indent = indent + (" " * (inward + 2) if inward else "")
        lines.append(wrap.fill(line))
    return "\n".join(lines).replace(_UNBROKEN, " ")


def _fact(label: str, text: str, tone: str, label_columns: int, width: int, colour: bool) -> str:
    indent = " " * label_columns
    body = wrapped(text, width, indent, indent)[label_columns:]
    return painted(label.ljust(label_columns), "label", colour) + painted(body, tone, colour)


def _stack(stack: blocks.StackedBar, width: int, colour: bool) -> str:
    label, total = stack.label.ljust(8), f" {stack.text}"
    bar_columns = max(10, min(width, 120) - len(label) - len(total) - 2)
    scale = max(stack.total, sum(part.value for part in stack.parts)) or 1.0
    drawn, cells, filled = "", 0, 0.0
    for index, part in enumerate(stack.parts):
        # rounded where a part ends, not its length, so that the parts fill the whole
        filled += part.value
        many = round(filled / scale * bar_columns) - cells
        drawn, cells = drawn + block(index, many, colour), cells + many
    line = (
        f"{painted(label, 'label', colour)}|{drawn}{'·' * (bar_columns - cells)}|{painted(total, stack.tone, colour)}"
    )
    legend = {"list": _listed, "line": _side_by_side, "none": lambda *_: []}[stack.legend]
    return "\n".join([line, *legend(stack.parts, scale, width, colour)])


def _listed(parts: Sequence[blocks.BarPart], scale: float, width: int, colour: bool) -> list[str]:
    """A line for each part: its fill, name, amount, share and note."""
    amounts = max((len(part.text) for part in parts), default=0)
    names = min(max((len(part.name) for part in parts), default=0), width - amounts - 13)
    lines = []
    for index, part in enumerate(parts):
        name, share = part.name[:names].ljust(names), f"{part.value / scale:.1%}"
        line = f"{GAP}{block(index, 1, colour)} {name} {part.text:>{amounts}} {share:>6}"
        note = f"{GAP}({part.note})" if part.note and len(_ESCAPE.sub("", line)) + len(part.note) + 4 <= width else ""
        lines.append(line + painted(note, "dim", colour))
    return lines


def _side_by_side(parts: Sequence[blocks.BarPart], _: float, width: int, colour: bool) -> list[str]:
    lines, used = [""], 0
    for index, part in enumerate(parts):
        text = f"{part.name} {part.text}"
        if used and used + len(text) + 5 > width:
            lines, used = [*lines, ""], 0
        lines[-1] += f"{GAP}{block(index, 1, colour)} {text}{GAP}"[: None if colour else width]
        used += len(text) + 6
    return [line.rstrip() for line in lines if line.strip()]


def _columns_of(text: str) -> int:
    """How many columns a text takes: wide characters take two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _table(grid: blocks.Grid, width: int, colour: bool) -> str:
    shown, bars = _fitting(grid, width)
    lines = [painted(wrapped(grid.title, width), "title", colour)] if grid.title else []
    columns = [grid.columns[index] for index in shown]
    cells = [[_drawn(row[index], grid.columns[index], bars) for index in shown] for row in grid.rows]
    texts = [[column.title, *(row[index] for row in cells)] for index, column in enumerate(columns)]
    widths = [max(map(_columns_of, column_texts)) for column_texts in texts]
    spare = width - sum(widths) - len(GAP) * (len(widths) - 1)
    if spare < 0:
        widths = _squeezed(columns, widths, -spare)
    if any(column.title for column in columns):
        lines.append(painted(_row([column.title for column in columns], columns, widths), "head", colour).rstrip())
    for row in cells:
        split = [_split(text, columns_wide) for text, columns_wide in zip(row, widths, strict=True)]
        for line in range(max(map(len, split), default=0)):
            texts = [parts[line] if line < len(parts) else "" for parts in split]
            lines.append(_row(texts, columns, widths, colour).rstrip())
    return "\n".join([*lines, *([painted(wrapped(grid.foot, width), "dim", colour)] if grid.foot else [])])


def _fitting(grid: blocks.Grid, width: int) -> tuple[list[int], int]:
    """The columns that are kept, and the cells that bars have."""
    shown = list(range(len(grid.columns)))
    fixed = sum(not grid.columns[index].bar for index in shown)
    bars = 12 if fixed == len(shown) else max(8, min(40, width // 5))

    def needed(places: list[int]) -> int:
        sizes = []
        for index in places:
            column = grid.columns[index]
            texts = [_drawn(row[index], column, bars) for row in grid.rows]
            longest = max([_columns_of(column.title), *map(_columns_of, texts)])
            sizes.append(min(longest, 24) if column.wrap else longest)
        return sum(sizes) + len(GAP) * (len(sizes) - 1)

    while needed(shown) > width:
        lowest = min((grid.columns[index].keep for index in shown), default=9)
        if lowest >= 9:
            break
        shown.remove(next(index for index in reversed(shown) if grid.columns[index].keep == lowest))
    return shown, bars


def _squeezed(columns: Sequence[blocks.Column], widths: list[int], over: int) -> list[int]:
    """The widest columns that may be wrapped give way, or the widest of all where none may."""
    candidates = [index for index, column in enumerate(columns) if column.wrap] or [
        index for index, column in enumerate(columns) if not column.right
    ]
    if not candidates:
        return widths
    squeezed = list(widths)
    for _ in range(over):  # a column at a time, the widest first, so that several end up about as wide
        widest = max(candidates, key=lambda index: squeezed[index])
        squeezed[widest] = min(squeezed[widest], max(12, squeezed[widest] - 1))
    return squeezed


def _split(text: str, width: int) -> list[str]:
    if _columns_of(text) <= width:
        return [text]
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
    return [part for line in lines for part in _broken(line, width)]


def _broken(word: str, width: int) -> list[str]:
    """The name of an operation or a file, or a plan, broken behind slashes and commas where it is too long.

    >>> _broken("jit(step)/layers/while/body", 18)
    ['jit(step)/layers/', 'while/body']
    >>> _broken("PjRtStreamExecutorRawLoadedExecut…,", 20)
    ['PjRtStreamExecutorRawLoadedExecut…,']
    """
    lines = [""]
    for part in filter(None, re.split(r"(?<=[/,])", word)) if len(word) > width else [word]:
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return lines


def _drawn(value: Any, column: blocks.Column, cells: int) -> str:
    if not column.bar:
        return blocks.cell_text(value)
    full = round(max(0.0, min(1.0, value or 0.0)) * cells)
    return "█" * full + "·" * (cells - full)


def _row(texts: Sequence[str], columns: Sequence[blocks.Column], widths: Sequence[int], colour: bool = False) -> str:
    shown = []
    for text, column, width in zip(texts, columns, widths, strict=True):
        pad = " " * max(0, width - _columns_of(text))
        toned = painted(text, column.tone, colour)
        shown.append(pad + toned if column.right else toned + pad)
    return GAP.join(shown)
