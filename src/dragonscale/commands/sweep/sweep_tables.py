"""The rows of a sweep as files: CSV for programs, Markdown for people."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dragonscale.commands.sweep.sweep_records import COMMANDS, SweepReport
from dragonscale.commands.sweep.sweep_rows import columns_of, failures, percent, shown, spread_rows, title_of
from dragonscale.errors import InputError, shorten
from dragonscale.evidence.verify.records import SweepScore
from dragonscale.files import write_file

# Marks of a Markdown page between which the table is replaced.
BEGIN = "<!-- sweep: begin -->"
END = "<!-- sweep: end -->"


def check_table(path: str) -> None:
    """Refuse a file that is no kind of table, before anything is asked."""
    if not path.lower().endswith((".csv", ".md")):
        raise InputError(f"--table is {shorten(path)}; the name of a table should end in .csv or .md.")


def save_table(report: SweepReport, path: str) -> str:
    """Write the rows as .csv or .md; of a page with the marks `BEGIN` and `END` only what lies between them is
    replaced."""
    check_table(path)
    if path.lower().endswith(".csv"):
        text = csv_text(report.lines)
    else:
        text = markdown(report)
        try:
            if Path(path).is_file():
                text = between_marks(Path(path).read_text(encoding="utf-8"), text)
        except (OSError, UnicodeError) as error:
            raise InputError(f"The table cannot be written to {shorten(path)}: {error}.") from None
    write_file(path, text, "The table")
    return ""


def between_marks(page: str, text: str) -> str:
    """A page with the part between its marks replaced; without marks, the text alone.

    >>> between_marks(f"# Title\\n{BEGIN}\\nold\\n{END}\\nend\\n", "new\\n").split("\\n")[2:4]
    ['', 'new']
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{text}\n{END}{after}" if begin and end else text


def csv_text(rows: Sequence[dict[str, Any]]) -> str:
    """All columns of all rows; a column that a row does not have is empty."""
    columns = dict.fromkeys(name for row in rows for name in row)
    out = io.StringIO()
    writer = csv.DictWriter(out, list(columns), restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _plain(value) for name, value in row.items()})
    return out.getvalue()


def _plain(value: Any) -> Any:
    """A cell of a CSV file."""
    if isinstance(value, list):
        return " ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:.6g}"
    return "" if value is None else value


def markdown(report: SweepReport) -> str:
    """The errors on top, then a table for each command, then what failed and why."""
    parts = [f"{len(report.lines) - report.failed} of {report.entries} entries are answered."]
    if report.verify is not None:
        parts.append(score_markdown(report.verify))
    for command in COMMANDS:
        rows = report.answered_rows(command)
        if rows:
            names = columns_of(command, rows)[0]
            cells = [[shown(name, row.get(name)) for name in names] for row in rows]
            parts.append(_pipes(list(map(title_of, names)), cells))
    if report.failed:
        reasons = [[why, str(len(entries)), ", ".join(entries)] for why, entries in failures(report.lines).items()]
        parts.append("Not answered:\n\n" + _pipes(["why", "entries", "which"], reasons))
    return "\n\n".join(parts) + "\n"


def score_markdown(total: SweepScore) -> str:
    """The medians and the worst, as a table."""
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in total.verdicts.items())
    summary = (
        f"Of {total.rows} programs {total.compiled} compiled: {verdicts}. The bytes of every set of mesh axes agree, "
        f"or the difference is explained, in {percent(total.wire_ok)} of them; {total.wrongly_accepted} plans that the "
        "planner accepts do not fit by the compiler."
    )
    return f"{summary}\n\n{_pipes(['', 'programs', 'median error', 'worst', 'where'], spread_rows(total))}"


def _pipes(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines: list[str] = []
    for cells in (header, ["---"] * len(header), *rows):
        escaped = [str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells]
        lines.append(f"| {' | '.join(escaped)} |")
    return "\n".join(lines)
