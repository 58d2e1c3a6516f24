"""The answers of a sweep as flat rows; these laid out, and as files: CSV for programs, Markdown for people."""

import csv
import io
import textwrap
import tomllib
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from dragonscale.blocks.sheet import Block, Column, Grid, Prose, Sheet, Title, table
from dragonscale.commands.sweep.sweep_records import COMMANDS, Entry, SweepAnswer, SweepReport
from dragonscale.errors import InputError, shorten
from dragonscale.evidence.verify.records import SweepScore, VerifyReport, VerifyRow, flat, score
from dragonscale.files import write_file
from dragonscale.physics.units import render
from dragonscale.training.plan.plan import Plan

BEGIN, END = "<!-- sweep: begin -->", "<!-- sweep: end -->"
COLUMNS = tomllib.loads((resources.files("dragonscale.commands.sweep") / "columns.toml").read_text(encoding="utf-8"))
SHORT, HEADS = COLUMNS["shown"], COLUMNS["heads"]
# The columns that each command's answers have, beside what was asked.
ANSWERED: dict[str, Sequence[str]] = {**COLUMNS["answered"], "verify": VerifyRow.__struct_fields__}


def flat_rows(entries: Sequence[Entry], answers: dict[str, SweepAnswer]) -> list[dict[str, Any]]:
    """One flat row for each entry that has an answer, in the grid's order."""
    return [_flat(answers[entry.key]) for entry in entries if entry.key in answers]


def _flat(answer: SweepAnswer) -> dict[str, Any]:
    asks = {("slice" if name == "on" else name): value for name, value in answer.asks.items() if value not in ("", [])}
    row: dict[str, Any] = {"command": answer.command, **asks}
    record = answer.answer
    if record is not None and answer.command == "verify":
        row |= msgspec.to_builtins(flat(msgspec.convert(record, VerifyReport)))
    elif record is not None and answer.command == "train":
        best = next(
            ({**first, "slice": record["slice"], "plan": str(Plan(**first["plan"]))} for first in record["plans"]), None
        )
        row |= {name: best[name] for name in ANSWERED["train"]} if best else {"feasible": False}
    elif record is not None and answer.command == "simulate":
        latency = {name: times["mean"] for name, times in record["latency"].items()}
        latency |= {f"{name[:-2]}_p99_s": times["p99"] for name, times in record["latency"].items()}
        whole = {**record, **record["rates"], **latency, "grows": bool((record["load"] or {}).get("grows"))}
        row |= {name: whole[name] for name in ANSWERED["simulate"]}
    elif record is not None:
        best = next(iter(record["configs"]), None)
        row |= {name: best[name] for name in ANSWERED["serve"]} if best else {"meets_slo": False}
    return {**row, "answer_s": answer.seconds, "failed": answer.failed}


def verify_score(answers: Iterable[SweepAnswer]) -> SweepScore | None:
    """The errors over all verifications, or None where there are none."""
    records = [answer.answer for answer in answers if answer.command == "verify" and answer.answer is not None]
    rows: list[VerifyRow] = [flat(msgspec.convert(record, VerifyReport)) for record in records]
    if rows:
        return score(rows)
    return None


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
        if path.lower().endswith(".md") and Path(path).is_file():
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
    if begin and end:
        return f"{before}{BEGIN}\n\n{text}\n{END}{after}"
    return text


def csv_text(rows: Sequence[dict[str, Any]]) -> str:
    """All columns of all rows; a column that a row does not have is empty."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _plain(value) for name, value in row.items()})
    return out.getvalue()


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return " ".join(map(str, value))
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return value


def shown(name: str, value: Any) -> str:
    """A cell for people.

    >>> shown("peak_error", 0.0412), shown("step_s", 1.25), shown("mfu", 0.41), shown("model", "llama3-8b")
    ('+4.12%', '1.25s', '41.0%', 'llama3-8b')
    """
    if value is None or value == "":
        return "–"
    if name.endswith("_error"):
        return f"{value:+.2%}".replace("-0.00%", "+0.00%")
    if name == "mfu":
        return f"{value:.1%}"
    if name.endswith("_s") and not name.endswith("per_s"):
        return render(value, "s")
    if name.startswith("cost_usd"):
        return render(value, "USD")
    if isinstance(value, bool):
        if value:
            return "yes"
        return "no"
    if isinstance(value, float):
        return f"{value:,.0f}"
    return str(value)


def markdown(report: SweepReport) -> str:
    """The errors on top, then a table for each command, then what failed and why."""
    parts = [f"{len(report.lines) - report.failed} of {report.entries} entries are answered."]
    if report.verify is not None:
        parts.append(score_markdown(report.verify))
    for command in COMMANDS:
        rows = [row for row in report.lines if row["command"] == command and not row["failed"]]
        if rows:
            names = columns_of(command, rows)[0]
            cells = [[shown(name, row.get(name)) for name in names] for row in rows]
            parts.append(_pipes([HEADS.get(name, name) for name in names], cells))
    if report.failed:
        rows = [[reason, str(len(entries)), ", ".join(entries)] for reason, entries in failures(report.lines).items()]
        parts.append("Not answered:\n\n" + _pipes(["why", "entries", "which"], rows))
    return "\n\n".join(parts) + "\n"


def columns_of(command: str, rows: Sequence[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """What is shown of a command's rows, and what of it was asked differently from row to row."""
    names = dict.fromkeys(name for row in rows for name in row)
    varied = [name for name in names if name in ("batch", "seq") or name not in (*ANSWERED[command], "answer_s")]
    varied = [name for name in varied if len({str(row.get(name)) for row in rows}) > 1]
    short = SHORT[command]
    return [*short[:2], *(name for name in varied if name not in short), *short[2:]], varied


def failures(rows: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """Each reason for which entries have no answer, with the entries, the most frequent first."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row["failed"]:
            which = f"{row.get('program') or row['command']} {row.get('model', '')} on {row.get('slice', '')}"
            reasons.setdefault(row["failed"], []).append(which)
    return dict(sorted(reasons.items(), key=lambda pair: -len(pair[1])))


def score_markdown(score_: SweepScore) -> str:
    """The medians and the worst, as a table."""
    rows = spread_rows(score_)
    verdicts = ", ".join(f"{number} {verdict}" for verdict, number in score_.verdicts.items())
    summary = (
        f"Of {score_.rows} programs {score_.compiled} compiled: {verdicts}. The bytes of every set of mesh axes agree, "
        f"or the difference is explained, in {_share(score_.wire_ok)} of them; {score_.wrongly_accepted} plans that "
        "the planner accepts do not fit by the compiler."
    )
    return f"{summary}\n\n{_pipes(['', 'programs', 'median error', 'worst', 'where'], rows)}"


def spread_rows(score_: SweepScore) -> list[list[str]]:
    """A line for each number: its median error and the worst, with the program that has it."""
    return [
        [spread.name, str(spread.rows), _share(spread.median), _share(spread.worst), spread.worst_row]
        for spread in score_.spreads
    ]


def _share(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2%}"


def _pipes(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in line] for line in [header, *rows]]
    lines.insert(1, ["---"] * len(header))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# `dscale sweep` laid out: what to do, a table for each command, the errors over all verifications, what failed.


# Rows of a command, and reasons; `--explain` shows all, and so does `--table`.
MOST = 40
_NUMBERS = ("_error", "_s", "mfu", "_chip", "_mtok")


def sweep_blocks(report: SweepReport, detail: bool) -> Sheet:
    """The whole answer."""
    max_rows = len(report.lines) if detail else MOST
    blocks: list[Block] = [Title(report.counts()), Prose(_closing(report), "bad" if report.failed else "")]
    for command in COMMANDS:
        rows = [row for row in report.lines if row["command"] == command and not row["failed"]]
        if rows:
            blocks.append(_rows(command, rows, max_rows))
    if report.verify is not None:
        columns = (Column(name, right=True) for name in ("programs", "median", "worst"))
        columns = ["error", *columns, Column("where", wrap=True)]
        blocks.append(table(columns, spread_rows(report.verify), "errors over all verifications"))
    reasons = failures(report.lines).items()
    failed = [(len(which), textwrap.shorten(reason, 300, placeholder=" …")) for reason, which in reasons]
    if failed:
        blocks.append(table([Column("failed", right=True), Column("because", wrap=True)], failed[:max_rows]))
    return Sheet(tuple(blocks))


def _rows(command: str, rows: list[dict[str, Any]], max_rows: int) -> Grid:
    """The rows of one command."""
    (names, varied), less = columns_of(command, rows), COLUMNS["less"]
    cells = [[shown(name, row.get(name)) for name in names] for row in rows[:max_rows]]
    columns = [
        Column(
            HEADS.get(name, name),
            right=name.endswith(_NUMBERS),
            keep=less.index(name) - 2 if name in less and name not in varied else 9,
            wrap=name in ("plan", "wire"),
        )
        for name in names
    ]
    foot = ""
    if len(rows) > max_rows:
        foot = f"and {len(rows) - max_rows} more (--table has all)"
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
    if differ:
        ends = ": run `dscale verify` on one to see where."
    else:
        ends = "."
    return f"Every entry is answered; {differ or 'no'} {which}{ends}"
