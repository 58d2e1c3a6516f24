"""`dscale calc` laid out: a line for each answer, then what each name stood for."""

from dragonscale.reports.calc.records import CalcLine, CalcReport
from dragonscale.sheets.sheet import Block, Column, Prose, Sheet, Verbatim, table


def calc_sheet(report: CalcReport) -> Sheet:
    """The answers, and under them facts with their sources and functions with their meaning."""
    blocks: list[Block] = [Verbatim("\n".join(_told(one) for one in report.answers))]
    facts = [one for one in report.names if not one.function]
    if facts:
        columns = [Column(""), Column("", right=True), Column("", wrap=True)]
        blocks.append(table(columns, [[one.name, one.text, one.source] for one in facts]))
    told = {one.text for one in report.answers}
    for one in report.names:
        if one.function:
            value = (
                "" if len(report.names) == 1 or any(text.startswith(one.text) for text in told) else f" is {one.text}"
            )
            blocks.append(Prose(f"{one.name}{value}: {one.source}", "dim"))
    return Sheet(tuple(blocks))


def _told(one: CalcLine) -> str:
    return f"{one.name} {one.sign} {one.text}" if one.name else one.text
