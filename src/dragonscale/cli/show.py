"""How answers reach the terminal: JSON from the records themselves, tables that fit 80 columns, bars."""

import contextlib
import json
import sys
from collections.abc import Sequence
from typing import Any

from dragonscale.errors import printable
from dragonscale.units import render

WIDTH = 88


def emit_json(record: Any) -> None:
    """Print a record as JSON."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(record), indent=2).decode()
    # JSON lets some control characters stand as they are: as its escapes they mean the same.
    plain = text if text.replace("\n", "").isprintable() else "".join(map(_json_character, text))
    print(plain)


def _json_character(one: str) -> str:
    if one.isprintable() or one == "\n":
        return one
    return json.dumps(one)[1:-1] if one != "\x7f" else "\\u007f"


def put(text: str) -> None:
    """Print an answer as it is. Every text of every command passes here, so what a name from a file
    would make a terminal do is shown and not done."""
    print(printable(text, keep="\n"))


def say(text: str) -> None:
    """Print an answer; sentences that are too long for the terminal are wrapped, tables and formulas are left alone."""
    import textwrap

    for line in text.split("\n"):
        prose = len(line) > WIDTH and not line.startswith(" ") and "  " not in line
        put(textwrap.fill(line, WIDTH, break_long_words=False, break_on_hyphens=False) if prose else line)


def note(text: str) -> None:
    """Something the user should know that is not the answer: to stderr. One that nobody listens to
    is no reason to withhold the answer."""
    with contextlib.suppress(OSError):
        print(printable(text, keep="\n"), file=sys.stderr, flush=True)


def cell(value: Any) -> str:
    return "–" if value is None else str(value)


def table(header: Sequence[str], rows: Sequence[Sequence[Any]], right: Sequence[int] = (), indent: int = 0) -> str:
    """Plain columns: the header, then a line for each row; the columns in `right` are set flush right.

    >>> print(table(["chip", "HBM"], [["v5e", "16GB"], ["h100", "80GB"]], right=[1]))
    chip   HBM
    v5e   16GB
    h100  80GB
    """
    text = [[cell(value) for value in row] for row in [header, *rows]]
    widths = [max(len(row[column]) for row in text) for column in range(len(header))]
    lines = []
    for row in text:
        padded = [
            value.rjust(width) if column in right else value.ljust(width)
            for column, (value, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(" " * indent + "  ".join(padded).rstrip())
    return "\n".join(lines)


def record_table(records: Sequence[Any], columns: dict[str, Any], indent: int = 0) -> str:
    """A table of records: each column's title, and a field or a function of the record, alone or with its unit. Numbers
    and what has a unit (be it "") stand flush right.

    >>> from types import SimpleNamespace as Row
    >>> print(record_table([Row(name="v5e", hbm=16e9)], {"chip": "name", "HBM": ("hbm", "bytes")}))
    chip   HBM
    v5e   16GB
    """

    def shown(record: Any, column: Any) -> Any:
        if isinstance(column, tuple):
            return amount(shown(record, column[0]), column[1])
        return column(record) if callable(column) else getattr(record, column)

    rows = [[shown(record, column) for column in columns.values()] for record in records]
    numbers = [place for place, column in enumerate(columns.values()) if isinstance(column, tuple)]
    numbers += [place for place, value in enumerate(rows[0] if rows else ()) if isinstance(value, int)]
    cells = [[f"{value:,}" if isinstance(value, int) else value for value in row] for row in rows]
    return table(list(columns), cells, right=numbers, indent=indent)


def bar(part: float, width: int = 24) -> str:
    """A bar for a fraction.

    >>> bar(0.5, 8)
    '████····'
    """
    full = round(max(0.0, min(1.0, part)) * width)
    return "█" * full + "·" * (width - full)


def amount(value: Any, dimension: str) -> str:
    """A quantity with its unit, or the formula if it is one."""
    if value is None:
        return "–"
    return value if isinstance(value, str) else render(float(value), dimension)
