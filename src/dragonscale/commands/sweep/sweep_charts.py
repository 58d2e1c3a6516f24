"""The chart of `dscale sweep`: one number of the answers against one parameter as lines, or against
two as a heat map."""

from collections.abc import Sequence
from typing import Any

from dragonscale.blocks.charts import Bar, Chart, LineSeries, bars, heat_map, line_chart
from dragonscale.blocks.charts.axes import Axis, log_axis, zero_axis
from dragonscale.commands.charts.roles import nothing_to_draw
from dragonscale.commands.sweep.sweep_blocks import ANSWERED, COLUMNS
from dragonscale.commands.sweep.sweep_records import Entry, SweepReport
from dragonscale.errors import unknown

Row = dict[str, Any]
# Values of a parameter up to which a heat map has room for its columns.
LONG = 12


def draw(report: SweepReport, kind: str) -> Chart:
    """What `--columns` names: the column to draw, or several words `value x y`; without them what varies."""
    columns_text = report.asked.columns if report.asked is not None else ""
    return sweep_chart(report.lines, columns_text, kind, f"Sweep of {report.grid}")


def sweep_chart(rows: list[Row], columns_text: str, kind: str, title: str) -> Chart:
    """Any numeric column against one or two parameters of flat rows."""
    answered = [row for row in rows if not row.get("failed")]
    columns = column_names(columns_text)
    value = _value(answered, columns[:1])
    axes = columns[1:3] or _varying(answered, value)[:2]
    for name in axes:
        if not any(name in row for row in answered):
            raise unknown("column of the sweep called", name, {name for row in answered for name in row})
    if not axes:
        raise nothing_to_draw("nothing varies in this sweep")
    numeric = all(_number(row.get(axes[0])) is not None for row in answered)
    if kind == "heat" or (kind == "auto" and len(axes) == 2 and len(_values(answered, axes[0])) <= LONG):
        return _heat(answered, value, axes, title)
    if kind == "bars" or not numeric:
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
        columns |= {"slice" if name == "on" else name for name in entry.asks} | set(ANSWERED[entry.command])
    for name in column_names(columns_text):
        if name not in columns:
            raise unknown("column of the sweep called", name, columns)


def _value(rows: list[Row], wanted: list[str]) -> str:
    columns = {name for row in rows for name, cell in row.items() if _number(cell) is not None}
    if wanted:
        if wanted[0] not in columns:
            raise unknown("numeric column of the sweep called", wanted[0], columns)
        return wanted[0]
    column = next((name for name in COLUMNS["values"] if name in columns), None)
    if column is None:
        raise nothing_to_draw("no answer of this sweep has a number")
    return column


def _number(cell: Any) -> float | None:
    if isinstance(cell, int | float) and not isinstance(cell, bool):
        return float(cell)
    return None


def _values(rows: list[Row], name: str) -> list[Any]:
    values = list(dict.fromkeys(str(row.get(name, "")) for row in rows))
    by_text = {str(row.get(name)): _number(row.get(name)) for row in rows}
    whole = all(by_text.get(value) is not None for value in values)
    if whole:
        return sorted(values, key=lambda value: by_text[value] or 0.0)
    return values


def _varying(rows: list[Row], value: str) -> list[str]:
    """Parameters that take more than one value, before what was answered: those with most values first."""
    asks = ("model", "slice", "chips", "batch", "seq", "plan", "prompt", "output", "dtype", "stack", "engine", "rate")
    names = [name for name in asks if name != value and len(_values(rows, name)) > 1]
    # What is found (a plan, a stack) varies with what is asked (a slice); the questions come first.
    return sorted(names, key=lambda name: (name == "plan", name in ("chips", "stack") and "slice" in names))


def _word(name: str) -> str:
    return COLUMNS["words"].get(name, name)


def _dimension(name: str) -> str:
    if name in ("mfu", "efficiency") or name.endswith(("_error", "_share")):
        return "share"
    if name.endswith(("per_s_per_chip", "requests_per_s", "tokens_per_s")):
        return "number"
    ends = {"_bytes": "bytes", "_bytes_per_s": "bytes/s", "_s": "s", "_flops": "FLOP"}
    dimension = next((dimension for end, dimension in ends.items() if name.endswith(end)), "")
    return dimension or ("USD" if "usd" in name else "number")


def _heat(rows: list[Row], value: str, axes: list[str], title: str) -> Chart:
    x, y = axes if len(axes) > 1 else (axes[0], "command")
    cells: dict[tuple[str, str], float | None] = {}
    for row in rows:
        cells.setdefault((str(row.get(x, "")), str(row.get(y, ""))), _number(row.get(value)))
    ordered = [(a, b, cells.get((a, b))) for b in _values(rows, y) for a in _values(rows, x)]
    return heat_map(ordered, x, y, _word(value), _dimension(value), title, _word(value))


def _bars(rows: list[Row], value: str, axes: list[str], title: str) -> Chart:
    shown = []
    for row in rows:
        size = _number(row.get(value))
        if size is not None:
            shown.append(
                Bar(str(row.get(axes[0], "")), size, group=f"{axes[1]} {row.get(axes[1], '')}" if len(axes) > 1 else "")
            )
    return bars(shown, title, _word(value), _dimension(value))


def _lines(rows: list[Row], value: str, axes: list[str], title: str) -> Chart:
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        at, size = _number(row.get(axes[0])), _number(row.get(value))
        if at is not None and size is not None:
            lines.setdefault(f"{axes[1]} {row.get(axes[1], '')}" if len(axes) > 1 else value, []).append((at, size))
    series = [LineSeries(name, tuple(sorted(points)), dots=True) for name, points in lines.items()]
    across, up = ([point[index] for value in series for point in value.points] for index in (0, 1))
    wide = min(across) > 0 and max(across) / min(across) >= 4
    doubling = wide and all(value == int(value) and int(value) & (int(value) - 1) == 0 for value in across)
    edge = (max(across) - min(across)) * 0.04
    if wide:
        x = log_axis(axes[0], "degree" if doubling else "number", across)
    else:
        x = Axis(axes[0], "number", min(across) - edge, max(across) + edge)
    tall = min(up) > 0 and max(up) / min(up) > 20
    name = _word(value)
    if tall:
        y = log_axis(name, _dimension(value), up)
    else:
        y = zero_axis(name, _dimension(value), up)
    return line_chart(series, x, y, title)
