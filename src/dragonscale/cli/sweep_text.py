"""The text of `dscale sweep`: a table for each command, the errors over all verifications, what failed and what to do."""

import textwrap
from typing import Any

from dragonscale.cli.show import table
from dragonscale.reports.sweep.records import COMMANDS, SweepReport
from dragonscale.reports.sweep.table import HEADS, SHORT, failures, shown, spread_rows

COLUMNS = 80
MOST = 40
NARROWEST = 8
_LEFT_OUT = {
    "verify": ("wire", "arguments_error", "batch", "seq", "mode", "compile_s"),
    "train": ("seq", "batch"),
    "serve": (),
}


def text_of(report: SweepReport) -> str:
    """The whole answer."""
    counts = f"{report.known} known before, {report.answered} answered now, {report.failed} failed"
    parts = [f"{report.entries} entries: {counts}"]
    for command in COMMANDS:
        rows = [row for row in report.rows if row["command"] == command and not row["failed"]]
        if rows:
            parts.append(_rows(command, rows))
    if report.verify is not None:
        heads = ["error", "programs", "median", "worst", "where"]
        parts.append(table(heads, spread_rows(report.verify), right=[1, 2, 3]))
    parts += [_failures(report), _closing(report)]
    return "\n\n".join(part for part in parts if part)


def _rows(command: str, rows: list[dict[str, Any]]) -> str:
    """The rows of one command; plans are cut to the room that the other columns leave."""
    names = [name for name in SHORT[command] if name not in _LEFT_OUT[command]]
    body = [[shown(name, row.get(name)) for name in names] for row in rows[:MOST]]
    heads = [HEADS.get(name, name) for name in names]
    others = [place for place, name in enumerate(names) if name != "plan"]
    taken = sum(2 + max(len(line[place]) for line in [heads, *body]) for place in others)
    room = max(NARROWEST, COLUMNS - taken)
    for line in body if "plan" in names else []:
        place = names.index("plan")
        line[place] = line[place] if len(line[place]) <= room else line[place][: room - 1] + "…"
    numbers = [place for place, name in enumerate(names) if name.endswith(("_error", "_s", "mfu", "_chip", "_mtok"))]
    text = f"{command}\n" + table(heads, body, right=numbers)
    return text + (f"\nand {len(rows) - MOST} more (--table has all)" if len(rows) > MOST else "")


def _failures(report: SweepReport) -> str:
    """Each reason once, with how many entries it stopped."""
    said = [f"{len(which)} failed: {reason}" for reason, which in failures(report.rows).items()][:MOST]
    short = [textwrap.shorten(one, 300, placeholder=" …") for one in said]
    return "\n".join(textwrap.fill(one, COLUMNS, subsequent_indent="  ", break_on_hyphens=False) for one in short)


def _closing(report: SweepReport) -> str:
    left = report.entries - len(report.rows)
    if report.stopped:
        said = f"Stopped with {left} entries to go; the same command with the same --out goes on from here."
    elif report.failed:
        said = "Mend what failed and run it again with --retry."
    elif report.verify is None:
        said = "Every entry is answered."
    else:
        differ = report.verify.verdicts.get("differs", 0)
        which = f"verification{'s' * (differ != 1)} differ{'s' * (differ == 1)}"
        said = f"Every entry is answered; {differ or 'no'} {which}"
        said += ": run `dscale verify` on one to see where." if differ else "."
    return textwrap.fill(said, COLUMNS)
