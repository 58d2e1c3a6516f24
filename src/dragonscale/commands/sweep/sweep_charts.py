"""The chart of `dscale sweep`: one number of the answers against one parameter as lines, or against
two as a heat map."""

from collections.abc import Sequence
from typing import Any

from dragonscale.blocks.charts import Bar, Chart, LineSeries, bars, heat_map, line_chart
from dragonscale.blocks.charts.axes import Axis, log_axis, zero_axis
from dragonscale.commands.charts.roles import nothing_to_draw
from dragonscale.commands.sweep.sweep_records import Entry, SweepReport
from dragonscale.commands.sweep.sweep_rows import ANSWERED, COLUMNS
from dragonscale.errors import unknown

Row = dict[str, Any]
# Values of a parameter up to which a heat map has room for its columns.
MAX_HEAT_COLUMNS = 12
# Parameters that a sweep may vary, the first of them drawn first.
_ASKED = ("model", "slice", "chips", "batch", "seq", "plan", "prompt", "output", "dtype", "stack", "engine", "rate")
# Ratios of largest to smallest from which on an axis is logarithmic.
_LOG_X = 4
_LOG_Y = 20


def draw(report: SweepReport, kind: str) -> Chart:
    """What `--columns` names: the column to draw, or several words `value x y`; without them what varies."""
    columns_text = ""
    if report.asked is not None:
        columns_text = report.asked.columns
    return sweep_chart(report.lines, columns_text, kind, f"Sweep of {report.grid}")


def sweep_chart(rows: list[Row], columns_text: str, kind: str, title: str) -> Chart:
    """Any numeric column against one or two parameters of flat rows."""
    answered = [row for row in rows if not row.get("failed")]
    columns = column_names(columns_text)
    value = _value(answered, columns[:1])
    axes = columns[1:3] or _varying(answered, value)[:2]
    known = {name for row in answered for name in row}
    for name in axes:
        if name not in known:
            raise unknown("column of the sweep called", name, known)
    if not axes:
        raise nothing_to_draw("nothing varies in this sweep")
    if kind == "heat" or (kind == "auto" and len(axes) == 2 and len(_values(answered, axes[0])) <= MAX_HEAT_COLUMNS):
        return _heat(answered, value, axes, title)
    if kind == "bars" or any(_number(row.get(axes[0])) is None for row in answered):
        return _bars(answered, value, axes, title)
    return _lines(answered, value, axes, title)


def column_names(columns_text: str) -> list[str]:
    """The columns of `--columns`, by the names that rows have: what a grid calls `on` is their slice.

    >>> column_names("mfu,batch,on")
    ['mfu', 'batch', 'slice']
    """
    return ["slice" if word == "on" else word for word in columns_text.replace(",", " ").split()]


def check_columns(columns_text: str, entries: Sequence[Entry]) -> None:
    """Refuse columns that no answer to these entries has, before any of them is asked."""
    columns = {"command", "answer_s"}
    for entry in entries:
        columns |= {*column_names(" ".join(entry.asks)), *ANSWERED[entry.command]}
    for name in column_names(columns_text):
        if name not in columns:
            raise unknown("column of the sweep called", name, columns)


def _value(rows: list[Row], wanted: list[str]) -> str:
    """The column to draw: the one that is wanted, or the first that sweeps are usually about."""
    columns = {name for row in rows for name, cell in row.items() if _number(cell) is not None}
    for name in wanted or COLUMNS["values"]:
        if name in columns:
            return name
    if wanted:
        raise unknown("numeric column of the sweep called", wanted[0], columns)
    raise nothing_to_draw("no answer of this sweep has a number")


def _number(cell: Any) -> float | None:
    """A cell as a number; None where it is none."""
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        return None
    return float(cell)


def _values(rows: list[Row], name: str) -> list[str]:
    """The values of a column as text: numbers by size, others in their order."""
    numbers: dict[str, float | None] = {}
    for row in rows:
        numbers[str(row.get(name, ""))] = _number(row.get(name))
    if None in numbers.values():
        return list(numbers)
    return sorted(numbers, key=lambda text: numbers[text] or 0.0)


def _varying(rows: list[Row], value: str) -> list[str]:
    """Parameters that take more than one value, those that were asked before those that were answered."""
    names = [name for name in _ASKED if name != value and len(_values(rows, name)) > 1]
    # What is found (a plan, a stack) varies with what is asked (a slice); the questions come first.
    return sorted(names, key=lambda name: (name == "plan", name in ("chips", "stack") and "slice" in names))


def _word(name: str) -> str:
    """A column as people call it."""
    return COLUMNS["words"].get(name, name)


def _dimension(name: str) -> str:
    """The dimension of a column, by the unit that its name ends in."""
    if name in ("mfu", "efficiency") or name.endswith(("_error", "_share")):
        return "share"
    if name.endswith(("per_s_per_chip", "requests_per_s", "tokens_per_s")):
        return "number"
    for end, dimension in {"_bytes": "bytes", "_bytes_per_s": "bytes/s", "_s": "s", "_flops": "FLOP"}.items():
        if name.endswith(end):
            return dimension
    if "usd" in name:
        return "USD"
    return "number"


def _heat(rows: list[Row], value: str, axes: list[str], title: str) -> Chart:
    """One cell for each pair of parameters."""
    x, y = [*axes, "command"][:2]  # over one parameter the map has a single row
    cells: dict[tuple[str, str], float | None] = {}
    for row in rows:  # of several rows of a pair the first counts
        cells.setdefault((str(row.get(x, "")), str(row.get(y, ""))), _number(row.get(value)))
    ordered: list[tuple[str, str, float | None]] = []
    columns = _values(rows, x)
    for y_value in _values(rows, y):
        ordered += [(x_value, y_value, cells.get((x_value, y_value))) for x_value in columns]
    return heat_map(ordered, x, y, _word(value), _dimension(value), title, _word(value))


def _group(row: Row, axes: list[str], alone: str) -> str:
    """The second parameter of a row, as the name of its bars or line; `alone` where there is one parameter."""
    if len(axes) < 2:
        return alone
    return f"{axes[1]} {row.get(axes[1], '')}"


def _bars(rows: list[Row], value: str, axes: list[str], title: str) -> Chart:
    """A bar for each row."""
    drawn: list[Bar] = []
    for row in rows:
        size = _number(row.get(value))
        if size is not None:
            drawn.append(Bar(str(row.get(axes[0], "")), size, group=_group(row, axes, "")))
    return bars(drawn, title, _word(value), _dimension(value))


def _lines(rows: list[Row], value: str, axes: list[str], title: str) -> Chart:
    """A line for each value of the second parameter."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        x, y = _number(row.get(axes[0])), _number(row.get(value))
        if x is not None and y is not None:
            lines.setdefault(_group(row, axes, value), []).append((x, y))
    series, across, up = list[LineSeries](), list[float](), list[float]()
    for name, points in lines.items():
        series.append(LineSeries(name, tuple(sorted(points)), dots=True))
        # all points of both axes
        for x, y in points:
            across.append(x)
            up.append(y)
    name, dimension = _word(value), _dimension(value)
    if min(up) > 0 and max(up) / min(up) > _LOG_Y:
        y_axis = log_axis(name, dimension, up)
    else:
        y_axis = zero_axis(name, dimension, up)
    return line_chart(series, _x_axis(axes[0], across), y_axis, title)


def _x_axis(name: str, across: list[float]) -> Axis:
    """A logarithmic axis for values that spread far, marked in powers of two where they all are; else a linear one."""
    least, largest = min(across), max(across)
    if least > 0 and largest / least >= _LOG_X:
        # a power of two has one bit
        doubling = all(x == int(x) and int(x) & (int(x) - 1) == 0 for x in across)
        return log_axis(name, "degree" if doubling else "number", across)
    edge = (largest - least) * 0.04
    return Axis(name, "number", least - edge, largest + edge)
