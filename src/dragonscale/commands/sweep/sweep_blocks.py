"""`dscale sweep` laid out: what to do, a table for each command, the errors over all verifications, what failed."""

import textwrap
from typing import Any

from dragonscale.blocks.sheet import Block, Column, Grid, Prose, Sheet, Title, table
from dragonscale.commands.sweep.sweep_records import COMMANDS, SweepReport
from dragonscale.commands.sweep.sweep_rows import COLUMNS, columns_of, failures, shown, spread_rows, title_of

# Rows of a command, and reasons; `--explain` shows all, and so does `--table`.
MAX_ROWS = 40
# Ends of columns that hold numbers.
_NUMBERS = ("_error", "_s", "mfu", "_chip", "_mtok")


def sweep_blocks(report: SweepReport, detail: bool) -> Sheet:
    """The whole answer."""
    max_rows = len(report.lines) if detail else MAX_ROWS
    blocks: list[Block] = [Title(report.counts()), Prose(_closing(report), "bad" if report.failed else "")]
    for command in COMMANDS:
        rows = report.answered_rows(command)
        if rows:
            blocks.append(_rows(command, rows, max_rows))
    if report.verify is not None:
        numbers = [Column(name, right=True) for name in ("programs", "median", "worst")]
        columns = ["error", *numbers, Column("where", wrap=True)]
        blocks.append(table(columns, spread_rows(report.verify), "errors over all verifications"))
    failed: list[tuple[int, str]] = []
    for reason, entries in failures(report.lines).items():
        failed.append((len(entries), textwrap.shorten(reason, 300, placeholder=" …")))
    if failed:
        blocks.append(table([Column("failed", right=True), Column("because", wrap=True)], failed[:max_rows]))
    return Sheet(tuple(blocks))


def _rows(command: str, rows: list[dict[str, Any]], max_rows: int) -> Grid:
    """The rows of one command."""
    names, varied = columns_of(command, rows)
    dropped_first = COLUMNS["less"]  # where a terminal is narrow
    columns: list[Column] = []
    for name in names:
        keep = dropped_first.index(name) - 2 if name in dropped_first and name not in varied else 9
        wrap = name in ("plan", "wire")
        columns.append(Column(title_of(name), right=name.endswith(_NUMBERS), keep=keep, wrap=wrap))
    cells = [[shown(name, row.get(name)) for name in names] for row in rows[:max_rows]]
    foot = ""
    if len(rows) > max_rows:
        foot = f"and {len(rows) - max_rows} more (--table has all)"
    return table(columns, cells, command, foot)


def _closing(report: SweepReport) -> str:
    """What came of the sweep, and what to do next."""
    left = report.entries - len(report.lines)
    if report.stopped:
        return f"Stopped with {left} entries to go; the same command with the same --out goes on from here."
    if report.failed:
        return "Fix what failed and run it again with --retry."
    if report.verify is None:
        return "Every entry is answered."
    differ = report.verify.verdicts.get("differs", 0)
    if not differ:
        return "Every entry is answered; no verification differs."
    count = "1 verification differs" if differ == 1 else f"{differ} verifications differ"
    return f"Every entry is answered; {count}: run `dscale verify` on one to see where."
