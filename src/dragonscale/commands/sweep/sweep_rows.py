"""The answers of a sweep as flat rows, and what is shown of them."""

import tomllib
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any

import msgspec

from dragonscale.commands.sweep.sweep_records import Entry, SweepAnswer
from dragonscale.evidence.verify.records import SweepScore, VerifyReport, VerifyRow, flat, score
from dragonscale.physics.units import render
from dragonscale.training.plan.plan import Plan

COLUMNS = tomllib.loads((resources.files("dragonscale.commands.sweep") / "columns.toml").read_text(encoding="utf-8"))
# The columns that each command's answers have, beside what was asked.
ANSWERED: dict[str, Sequence[str]] = {**COLUMNS["answered"], "verify": VerifyRow.__struct_fields__}


def flat_rows(entries: Sequence[Entry], answers: dict[str, SweepAnswer]) -> list[dict[str, Any]]:
    """One flat row for each entry that has an answer, in the grid's order."""
    return [_flat(answers[entry.key]) for entry in entries if entry.key in answers]


def _flat(answer: SweepAnswer) -> dict[str, Any]:
    """The flags of an entry, then what was answered, how long that took, and why it failed."""
    row: dict[str, Any] = {"command": answer.command}
    for name, value in answer.asks.items():
        if value not in ("", []):
            row["slice" if name == "on" else name] = value
    if answer.answer is not None:
        row |= _answered(answer.command, answer.answer)
    return {**row, "answer_s": answer.seconds, "failed": answer.failed}


def _answered(command: str, record: dict[str, Any]) -> dict[str, Any]:
    """The columns of an answer, of its best plan or configuration where there are several."""
    if command == "verify":
        return msgspec.to_builtins(flat(msgspec.convert(record, VerifyReport)))
    if command == "train":
        if not record["plans"]:
            return {"feasible": False}
        best = record["plans"][0]
        values = {**best, "slice": record["slice"], "plan": str(Plan(**best["plan"]))}
    elif command == "serve":
        if not record["configs"]:
            return {"meets_slo": False}
        values = record["configs"][0]
    else:
        values = {**record, **record["rates"], "grows": bool((record["load"] or {}).get("grows"))}
        for name, times in record["latency"].items():  # `ttft_s` and the like
            values[name] = times["mean"]
            values[f"{name.removesuffix('_s')}_p99_s"] = times["p99"]
    return {name: values[name] for name in ANSWERED[command]}


def verify_score(answers: Iterable[SweepAnswer]) -> SweepScore | None:
    """The errors over all verifications, or None where there are none."""
    rows: list[VerifyRow] = []
    for answer in answers:
        if answer.command == "verify" and answer.answer is not None:
            rows.append(flat(msgspec.convert(answer.answer, VerifyReport)))
    return score(rows) if rows else None


def columns_of(command: str, rows: Sequence[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """The columns that are shown of a command's rows, and those of them that were asked differently from row to row."""
    asked_columns: list[str] = []
    for name in dict.fromkeys(name for row in rows for name in row):
        is_answer = name in (*ANSWERED[command], "answer_s") and name not in ("batch", "seq")
        if not is_answer and len({str(row.get(name)) for row in rows}) > 1:
            asked_columns.append(name)
    first, second, *others = COLUMNS["shown"][command]
    varied = [name for name in asked_columns if name not in COLUMNS["shown"][command]]
    return [first, second, *varied, *others], asked_columns


def title_of(column: str) -> str:
    """What stands above a column."""
    return COLUMNS["heads"].get(column, column)


def failures(rows: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """Each reason for which entries have no answer, with the entries, the most frequent first."""
    entries: dict[str, list[str]] = {}
    for row in rows:
        if row["failed"]:
            entry = f"{row.get('program') or row['command']} {row.get('model', '')} on {row.get('slice', '')}"
            entries.setdefault(row["failed"], []).append(entry)
    return dict(sorted(entries.items(), key=lambda reason: -len(reason[1])))


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
        return "yes" if value else "no"
    return f"{value:,.0f}" if isinstance(value, float) else str(value)


def spread_rows(total: SweepScore) -> list[list[str]]:
    """A line for each number: its median error and the worst, with the program that has it."""
    return [
        [spread.name, str(spread.rows), percent(spread.median), percent(spread.worst), spread.worst_row]
        for spread in total.spreads
    ]


def percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.2%}"
