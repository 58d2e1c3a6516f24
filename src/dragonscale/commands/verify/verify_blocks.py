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
MOST = 12
_TONES = {words.AGREES: "good", words.EXPLAINED: "good"}


def verify_blocks(report: VerifyReport, detail: bool, drawn: bool = False) -> Sheet:
    """The whole answer; `drawn`: with a bar beside each number."""
    request, lists = report.request, words.lists(report)
    # shown with `--explain` only
    peak = lists.pop("the planned peak, by part")
    stack = words.stack_items(report)
    if not detail:
        stack = [replace(item, about=item.about[:4]) for item in stack]
    heading = f"{report.stack} differs from the program compiled here"
    blocks: list[Block | None] = [
        Title(words.title(request), f"{words.work(request)}\n{words.effort(report)}"),
        _verdict(report),
        _comparison(report, drawn),
        _reasons(report),
        _items("the planned peak, by part", peak, True) if detail else None,
        *(_items(name, items, detail) for name, items in list(lists.items())[:-1]),
        _overlap(report, detail),
        *(_items(name, items, detail) for name, items in list(lists.items())[-1:]),
        _items(heading, stack, detail),
        Prose("\n".join(words.remarks(report))),
    ]
    return Sheet(tuple(item for item in blocks if item is not None and item != Prose("")))


def _verdict(report: VerifyReport) -> Facts:
    """What came of it, in a line or two."""
    outcome = words.outcome(report)
    trouble = words.sentence(report.trouble) if report.trouble else ""
    closing = words.closing(report)
    return facts(("verdict", outcome, _TONES.get(outcome, "bad")), ("trouble", trouble), ("so", closing))


def _comparison(report: VerifyReport, drawn: bool) -> Grid | None:
    """One table: totals of a chip, then bytes by mesh axes with the kinds of collectives beneath."""
    rows: list[tuple[Any, ...]] = []
    for before, columns_of in (("", words.totals(report)), ("sent over ", words.axis_rows(report))):
        for number in columns_of:
            # with the kinds of collectives indented beneath
            for label, row in ((before + number.name, number), *(("  " + part.name, part) for part in number.below)):
                bars = ()
                if drawn:
                    bars = (row.planned_share, row.compiled_share)
                rows.append((label, row.planned, row.compiled, row.ratio, row.verdict, *bars))
    columns_of = [Column(name, right=True) for name in ("planned", "compiled", "ratio")]
    bars = []
    if drawn:
        bars = [Column(name, bar=True) for name in ("planned", "compiled")]
    if rows:
        return table(["on each chip", *columns_of, "verdict", *bars], rows)
    return None


def _reasons(report: VerifyReport) -> Facts | None:
    """Why numbers differ, where that is known."""
    rows = [*words.totals(report), *words.axis_rows(report)]
    reasons = [(row.name, words.sentence(row.why)) for row in rows if row.why]
    return facts(*reasons) if reasons else None


def _items(heading: str, items: Sequence[words.Item], detail: bool) -> Grid | None:
    """A list: how much and what, with what is known about each beneath it."""
    if not items:
        return None
    shown = items if detail else items[:MOST]
    rows: list[tuple[str, str]] = []
    for item in shown:
        rows += [(item.amount, item.name), *(("", detail_line) for detail_line in item.about)]
    rest = len(items) - len(shown)
    foot = f"and {rest} more (--explain shows all)" if rest else ""
    return table([Column("", right=True), Column("", wrap=True)], rows, heading, foot)


def _overlap(report: VerifyReport, detail: bool) -> Grid | None:
    rows = [(*texts, "" if agrees else "differs") for *texts, agrees in words.overlap_rows(report.overlap)]
    columns = ["hidden or exposed", Column("what", keep=4), Column("sent", right=True), "planned", "compiled", ""]
    if rows:
        return table(columns, rows if detail else rows[:MOST])
    return None


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
    rows = [bar for name, line in lines if line is not None and line.planned for bar in _pair(name, line)]
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
