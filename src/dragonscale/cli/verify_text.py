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
    request = report.request
    parts = ["\n".join(_wrapped(line) for line in (words.title(request), words.work(request), words.effort(report)))]
    if report.trouble:
        parts.append(_wrapped(words.sentence(report.trouble)))
    parts += [_comparison(report), _reasons(report), _largest(report)]
    parts.append(_items("only the plan has", view.unmatched_items(report.only_planned)))
    parts.append(_items("only the compiler has", view.unmatched_items(report.only_compiled)))
    parts += [_overlap(report), _items("slowest kernels by the compiler's estimate", view.slowest_items(report))]
    parts.append(_stack(report))
    parts.append("\n".join(_wrapped(one) for one in view.remarks(report)))
    parts.append(_wrapped(words.closing(report)))
    return "\n\n".join(part for part in parts if part)


def _wrapped(text: str, indent: int = 0, first: str | None = None) -> str:
    blank = " " * indent
    start = blank if first is None else first
    return textwrap.fill(
        " ".join(text.split()), COLUMNS, initial_indent=start, subsequent_indent=blank, break_on_hyphens=False
    )


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
    rows = [_cells(row) for row in view.totals(report)]
    for row in view.axis_rows(report):
        rows.append(_cells(row, "sent over "))
        rows += [["  " + part.name, part.planned, part.compiled, part.ratio, ""] for part in row.below]
    if not rows:
        return ""
    return table(["on each chip", "planned", "compiled", "ratio", "verdict"], rows, right=[1, 2, 3])


def _cells(row: view.Row, before: str = "") -> list[str]:
    return [before + row.name, row.planned, row.compiled, row.ratio, row.verdict]


def _reasons(report: VerifyReport) -> str:
    """Why numbers differ, where that is known."""
    rows = [*view.totals(report), *view.axis_rows(report)]
    return "\n".join(_wrapped(f"{row.name}: {words.sentence(row.why)}") for row in rows if row.why)


def _largest(report: VerifyReport) -> str:
    return _items("largest buffers", view.largest_items(report))


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


def _stack(report: VerifyReport) -> str:
    """What the stack of the plan does otherwise, the largest lines of each switch."""
    items = [replace(one, about=one.about[:4]) for one in view.stack_items(report)]
    return _items(f"{report.stack} differs from the program compiled here (--json has every line)", items)


def _overlap(report: VerifyReport) -> str:
    found = view.overlap_rows(report.overlap)
    if not found:
        return ""
    rows = [
        [name, what, size, planned, compiled, "" if agrees else "differs"]
        for name, what, size, planned, compiled, agrees in found
    ]
    return table(["hidden or exposed", "what", "sent", "planned", "compiled", ""], rows[:MOST], right=[2])
