"""`dscale calc` laid out: a line for each answer, then what each name stood for."""

from dragonscale.app.calc.records import CalcLine, CalcReport
from dragonscale.sheets.sheet import Block, Column, Prose, Sheet, Verbatim, table

LONGEST = 50
"""Characters of a call that is printed with what it is given."""


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
            known = one.value is None or any(text.startswith(one.text) for text in told)
            name = one.name if len(one.name) <= LONGEST else f"{one.name.partition('(')[0]}(…)"
            blocks.append(Prose(f"{name}{'' if known else f' is {one.text}'}: {one.source}", "dim"))
    return Sheet(tuple(blocks))


def _told(one: CalcLine) -> str:
    told = f"{one.name} {one.sign} {one.text}" if one.name and f"{one.name}=" not in one.case else one.text
    return f"{one.case}: {told}" if one.case else told
