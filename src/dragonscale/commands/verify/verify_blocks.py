"""`dscale verify` laid out and drawn: the verdict and what to do, planned and compiled side by side, what only one of
them has."""

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from importlib import resources
from typing import Any

from dragonscale.blocks.charts import Bar, Chart, bars
from dragonscale.blocks.html import html_of
from dragonscale.blocks.sheet import Block, Column, Facts, Grid, Prose, Sheet, Title, facts, table
from dragonscale.commands.charts.roles import nothing_to_draw
from dragonscale.commands.verify import verify_words as words
from dragonscale.evidence.verify.records import VerifyLine, VerifyReport
from dragonscale.files import write_file

# Lines of a list; `--explain` shows all.
MAX_LINES = 12
_TONES = {words.AGREES: "good", words.EXPLAINED: "good"}


def verify_blocks(report: VerifyReport, detail: bool, drawn: bool = False) -> Sheet:
    """The whole answer; `drawn`: with a bar beside each number."""
    request, lists = report.request, words.lists(report)
    # shown with `--explain` only
    peak = lists.pop("the planned peak, by part")
    stack = words.stack_items(report)
    if not detail:
        peak = []
        stack = [replace(item, about=item.about[:4]) for item in stack]
    # what the overlap says of collectives stands before the slowest kernels
    *collectives, slowest = [_items(name, items, detail) for name, items in lists.items()]
    heading = f"{report.stack} differs from the program compiled here"
    blocks: list[Block | None] = [
        Title(words.title(request), f"{words.work(request)}\n{words.effort(report)}"),
        _verdict(report),
        _comparison(report, drawn),
        _reasons(report),
        _items("the planned peak, by part", peak, detail),
        *collectives,
        _overlap(report, detail),
        slowest,
        _items(heading, stack, detail),
        Prose("\n".join(words.remarks(report))),
    ]
    return Sheet(tuple(item for item in blocks if item is not None and item != Prose("")))


def _verdict(report: VerifyReport) -> Facts:
    """What came of it, in a line or two."""
    outcome = words.outcome(report)
    trouble = words.sentence(report.trouble)
    closing = words.closing(report)
    return facts(("verdict", outcome, _TONES.get(outcome, "bad")), ("trouble", trouble), ("so", closing))


def _comparison(report: VerifyReport, drawn: bool) -> Grid | None:
    """One table: totals of a chip, then bytes by mesh axes with the kinds of collectives beneath."""
    rows: list[tuple[Any, ...]] = []
    for before, numbers_of in (("", words.totals(report)), ("sent over ", words.axis_rows(report))):
        for number in numbers_of:
            # with the kinds of collectives indented beneath
            rows.append(_cells(before + number.name, number, drawn))
            rows += [_cells(f"  {part.name}", part, drawn) for part in number.below]
    if not rows:
        return None
    columns: list[Column | str] = ["on each chip"]
    columns += [Column(name, right=True) for name in ("planned", "compiled", "ratio")]
    columns.append("verdict")
    if drawn:
        columns += [Column("planned", bar=True), Column("compiled", bar=True)]
    return table(columns, rows)


def _cells(label: str, row: words.Row, drawn: bool) -> tuple[Any, ...]:
    """A row of the comparison; `drawn`: with the lengths of its bars."""
    cells = (label, row.planned, row.compiled, row.ratio, row.verdict)
    if drawn:
        return (*cells, row.planned_share, row.compiled_share)
    return cells


def _reasons(report: VerifyReport) -> Facts | None:
    """Why numbers differ, where that is known."""
    rows = [*words.totals(report), *words.axis_rows(report)]
    reasons = [(row.name, words.sentence(row.why)) for row in rows if row.why]
    if not reasons:
        return None
    return facts(*reasons)


def _items(heading: str, items: Sequence[words.Item], detail: bool) -> Grid | None:
    """A list: how much and what, with what is known about each beneath it."""
    if not items:
        return None
    shown = items
    if not detail:
        shown = items[:MAX_LINES]
    rows: list[tuple[str, str]] = []
    for item in shown:
        rows.append((item.amount, item.name))
        rows += [("", remark) for remark in item.about]
    foot = ""
    if len(shown) < len(items):
        foot = f"and {len(items) - len(shown)} more (--explain shows all)"
    return table([Column("", right=True), Column("", wrap=True)], rows, heading, foot)


def _overlap(report: VerifyReport, detail: bool) -> Grid | None:
    """Each collective, what it carries, and whether compute hides it, as planned and as compiled."""
    shown = report.overlap
    if not shown:
        return None
    if not detail:
        shown = shown[:MAX_LINES]
    rows: list[tuple[str, ...]] = []
    for line in shown:
        sent, verdict = words.quantity(line.total_bytes, "bytes"), {True: "", False: "differs"}[line.agrees]
        rows.append(
            (f"{line.kind} over {words.over(line.axes)}", line.what, sent, line.planned, line.compiled, verdict)
        )
    columns = ["hidden or exposed", Column("what", keep=4), Column("sent", right=True), "planned", "compiled", ""]
    return table(columns, rows)


# How a report's page looks: one column that a phone can show, light or dark as the reader's device is.
STYLE = "\n" + (resources.files("dragonscale.commands.verify") / "page.css").read_text(encoding="utf-8")


def save_page(report: VerifyReport, path: str) -> str:
    """Write the comparison as a page of HTML that needs nothing else."""
    write_file(path, page(report), "The page")
    return ""


def page(report: VerifyReport) -> str:
    """The whole answer as one page of HTML: no scripts, nothing loaded from elsewhere, light and dark."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(words.title(report.request))}</title>\n<style>{STYLE}</style></head>\n"
        f'<body><main class="scroll">\n{html_of(verify_blocks(report, detail=True, drawn=True))}\n'
        "<footer>Made by <code>dscale verify --html</code>; <code>--json</code> has the same numbers.</footer>\n"
        "</main></body></html>\n"
    )


def verify_chart(report: VerifyReport, kind: str) -> Chart:
    """Memory, FLOPs and bytes sent as pairs of bars; quantities differ in their units, so each pair is drawn against
    its own plan."""
    del kind  # there is one
    lines = [("arguments", report.arguments), ("peak memory", report.peak), ("host memory", report.host)]
    lines += [("matmul FLOPs", report.flops)]
    lines += [(f"sent over {words.over(axis.axes)}", axis.line) for axis in report.axes]
    rows: list[Bar] = []
    for name, line in lines:
        if line is not None and line.planned:
            rows += _pair(name, line)
    if not rows:
        raise nothing_to_draw("nothing was compiled")
    ask = report.request
    return bars(rows, f"{ask.model} on {ask.slice}: planned and compiled", f"{ask.plan}; each of its plan", "share")


def _pair(name: str, line: VerifyLine) -> list[Bar]:
    remark = f"{words.quantity(line.compiled, line.unit)}, {words.ratio_text(line.planned, line.compiled)}"
    return [
        Bar(name, 1.0, remark=words.quantity(line.planned, line.unit), group="planned"),
        Bar(name, line.compiled / line.planned, remark=remark, group="compiled"),
    ]
