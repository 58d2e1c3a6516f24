"""The text of `dscale verify`: planned and compiled side by side, what only one of them has, and what to change."""

import re
import textwrap
from dataclasses import replace

from dragonscale.cli.show import table
from dragonscale.evidence.verify.records import VerifyReport
from dragonscale.reports.verify import view, words

COLUMNS = 80
MOST = 12


def text_of(report: VerifyReport) -> str:
    """The whole answer."""
    request, lists = report.request, view.lists(report)
    buffers, planned, compiled, slowest = [_items(heading, items) for heading, items in list(lists.items())[1:]]
    parts = ["\n".join(_wrapped(line) for line in (words.title(request), words.work(request), words.effort(report)))]
    parts += [_wrapped(words.sentence(report.trouble))] if report.trouble else []
    parts += [_comparison(report), _reasons(report), buffers, planned, compiled, _overlap(report), slowest]
    stack = [replace(one, about=one.about[:4]) for one in view.stack_items(report)]
    parts.append(_items(f"{report.stack} differs from the program compiled here (--json has every line)", stack))
    parts += ["\n".join(_wrapped(one) for one in view.remarks(report)), _wrapped(words.closing(report))]
    return "\n\n".join(part for part in parts if part)


def _wrapped(text: str, indent: int = 0, first: str | None = None) -> str:
    blank, said = " " * indent, " ".join(text.split())
    start = blank if first is None else first
    return textwrap.fill(said, COLUMNS, initial_indent=start, subsequent_indent=blank, break_on_hyphens=False)


def _path(text: str, indent: int) -> str:
    """The name of an operation or a file, broken after slashes only where it must be."""
    lines = [""]
    for piece in re.split(r"(?<=/)", text):
        if lines[-1] and len(lines[-1]) + len(piece) > COLUMNS - indent:
            lines.append("")
        lines[-1] += piece
    return "\n".join(" " * indent + line for line in lines)


def _comparison(report: VerifyReport) -> str:
    """One table: totals of a chip, then bytes by mesh axes with the kinds of collectives beneath."""
    rows: list[list[str]] = []
    for before, found in (("", view.totals(report)), ("sent over ", view.axis_rows(report))):
        for row in found:
            rows.append([before + row.name, row.planned, row.compiled, row.ratio, row.verdict])
            rows += [["  " + part.name, part.planned, part.compiled, part.ratio, ""] for part in row.below]
    heads = ["on each chip", "planned", "compiled", "ratio", "verdict"]
    return table(heads, rows, right=[1, 2, 3]) if rows else ""


def _reasons(report: VerifyReport) -> str:
    """Why numbers differ, where that is known."""
    rows = [*view.totals(report), *view.axis_rows(report)]
    return "\n".join(_wrapped(f"{row.name}: {words.sentence(row.why)}") for row in rows if row.why)


def _items(heading: str, items: list[view.Item]) -> str:
    if not items:
        return ""
    shown = items[:MOST]
    wide = max(len(one.amount) for one in shown)
    lines = [heading]
    for one in shown:
        lines.append(_wrapped(one.name, wide + 4, f"  {one.amount:>{wide}}  "))
        lines += [_wrapped(about, wide + 4) if " " in about else _path(about, wide + 4) for about in one.about]
    if len(items) > MOST:
        lines.append(f"  and {len(items) - MOST} more (--json has all)")
    return "\n".join(lines)


def _overlap(report: VerifyReport) -> str:
    rows = [[*texts, "" if agrees else "differs"] for *texts, agrees in view.overlap_rows(report.overlap)]
    return (
        table(["hidden or exposed", "what", "sent", "planned", "compiled", ""], rows[:MOST], right=[2]) if rows else ""
    )
