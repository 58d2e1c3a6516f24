"""Tables and facts of answers by their names: `grids.toml` says what stands in each column and line, records fill it.

>>> from types import SimpleNamespace as Row
>>> grid(
...     "models",
...     [Row(name="m", parameters=8e9, active_parameters=8e9, n_layers=32, d_model=4096, kv_bytes_per_token=131072.0)],
... ).rows
(('m', '8B', '8B', 32, 4096, '131kB'),)
"""

import functools
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from string import Formatter
from typing import Any

from dragonscale.blocks.sheet import FactLine, Facts, Grid, amount, facts, records


@functools.cache
def _described() -> dict[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_name("grids.toml").read_text(encoding="utf-8"))


def grid(
    name: str,
    rows: Sequence[Any],
    title: str = "",
    foot: str = "",
    own: Mapping[str, Any] | None = None,
    without: Collection[str] = (),
) -> Grid:
    """A table of records. `own` are the columns that the file leaves to the caller, by their titles, as
    `sheets.records` takes them; columns `without` which a table is where its rows have nothing for them."""
    described = _described()[name]
    columns = {head: _column(what) for head, what in described["columns"].items()} | dict(own or {})
    shown = {head: column for head, column in columns.items() if head not in without}
    # columns with a low number are dropped first where a terminal is narrow
    how = {head: {"keep": rank} for head, rank in described.get("keep", {}).items()}
    for word in ("wrap", "bar", "right"):
        for head in described.get(word, ()):
            how[head] = how.get(head, {}) | {word: True}
    usual_foot = ""
    if described.get("foot_of") not in without:
        usual_foot = described.get("foot", "")
    return records(rows, shown, title or described.get("title", ""), foot or usual_foot, how)


DIMENSIONS = {"s", "bytes", "bytes/s", "FLOP", "FLOP/s", "count", "USD/h", "W"}


class _Written(Formatter):
    """Templates in which a quantity may be printed in its dimension: `{row.hbm_bytes:bytes}`."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec in DIMENSIONS:
            return amount(value, format_spec)
        return super().format_field(value, format_spec)


def summary(name: str, row: Any, **values: Any) -> Facts:
    """The facts of a record by the templates of the file; one that tells something of None is left out."""
    values_known, written, lines = {"row": row, **values}, _Written(), []
    for label, what in _described()[name].items():
        line = FactLine(label, **(what if isinstance(what, dict) else {"text": what}))
        # the values that the template names
        fields = [field for _, field, _, _ in written.parse(line.text) if field]
        is_known = all(values_known[field.partition(".")[0]] is not None for field in fields)
        if is_known and all(written.get_field(field, (), values_known)[0] is not None for field in fields):
            text, tone, brief = (
                written.format(template, **values_known) for template in (line.text, line.tone, line.brief)
            )
            lines.append(replace(line, text=text, tone=tone, brief=brief))
    return facts(*lines)


def _column(what: str) -> Any:
    """What stands in a column, as `sheets.records` takes it."""
    if what.startswith("{"):
        return lambda row: what.format(row=row)
    # `seconds s`: a field and its dimension or template
    field, _, how = what.partition(" ")
    # `?`: empty where None; `~`: empty where 0 or empty
    name = field.rstrip("?~")

    def cell(row: Any) -> Any:
        value = getattr(row, name)
        if (value is None and field.endswith("?")) or (not value and field.endswith("~")):
            return ""
        if "{" in how and value is not None:
            return how.format(value)
        return value

    if how:
        return (cell, "" if "{" in how else how)
    return name
