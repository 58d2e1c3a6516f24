"""`dscale sweep` laid out: what to do, a table for each command, the errors over all verifications, what failed."""

import textwrap
from typing import Any

from dragonscale.app.sweep.records import COMMANDS, SweepReport
from dragonscale.app.sweep.table import HEADS, SHORT, failures, shown, spread_rows
from dragonscale.sheets.sheet import Block, Column, Grid, Prose, Sheet, Title, table

MOST = 40
"""Rows of a command, and reasons; `--explain` shows all, and so does `--table`."""
_LESS = (
    "wire",
    "compile_s",
    "mode",
    "arguments_error",
    "feasible",
    "bound_by",
    "program",
    "seq",
    "ttft_s",
    "batch",
    "cost_usd_per_mtok",
)
"""Columns that give way where the width is short, the first of them first."""
_NUMBERS = ("_error", "_s", "mfu", "_chip", "_mtok")


def sweep_sheet(report: SweepReport, detail: bool) -> Sheet:
    """The whole answer."""
    most = len(report.lines) if detail else MOST
    blocks: list[Block] = [Title(report.counts()), Prose(_closing(report), "bad" if report.failed else "")]
    for command in COMMANDS:
        rows = [row for row in report.lines if row["command"] == command and not row["failed"]]
        if rows:
            blocks.append(_rows(command, rows, most))
    if report.verify is not None:
        columns = [
            "error",
            Column("programs", right=True),
            Column("median", right=True),
            Column("worst", right=True),
            Column("where", wrap=True),
        ]
        blocks.append(table(columns, spread_rows(report.verify), "errors over all verifications"))
    failed = [
        (len(which), textwrap.shorten(reason, 300, placeholder=" …"))
        for reason, which in failures(report.lines).items()
    ]
    if failed:
        blocks.append(table([Column("failed", right=True), Column("because", wrap=True)], failed[:most]))
    return Sheet(tuple(blocks))


def _rows(command: str, rows: list[dict[str, Any]], most: int) -> Grid:
    """The rows of one command."""
    names = SHORT[command]
    cells = [[shown(name, row.get(name)) for name in names] for row in rows[:most]]
    columns = [
        Column(
            HEADS.get(name, name),
            right=name.endswith(_NUMBERS),
            keep=_LESS.index(name) - 2 if name in _LESS else 9,
            wrap=name in ("plan", "wire"),
        )
        for name in names
    ]
    foot = f"and {len(rows) - most} more (--table has all)" if len(rows) > most else ""
    return table(columns, cells, command, foot)


def _closing(report: SweepReport) -> str:
    left = report.entries - len(report.lines)
    if report.stopped:
        return f"Stopped with {left} entries to go; the same command with the same --out goes on from here."
    if report.failed:
        return "Mend what failed and run it again with --retry."
    if report.verify is None:
        return "Every entry is answered."
    differ = report.verify.verdicts.get("differs", 0)
    which = f"verification{'s' * (differ != 1)} differ{'s' * (differ == 1)}"
    ends = ": run `dscale verify` on one to see where." if differ else "."
    return f"Every entry is answered; {differ or 'no'} {which}{ends}"
