"""`dscale calc`: a calculation read, worked out and laid out."""

import re
from typing import Any, ClassVar

import msgspec

from dragonscale.blocks.sheet import Block, Column, NextStep, Prose, Sheet, Verbatim, sheet, table
from dragonscale.commands.questions.facts import CalcQuestion
from dragonscale.commands.record import Face, Record, bind
from dragonscale.course.calculator.answer import AnswerLine, converted, work_out
from dragonscale.course.calculator.functions import parts_of
from dragonscale.course.calculator.measure import Measure
from dragonscale.course.calculator.shown import in_base, shown, six_digits
from dragonscale.course.finding import find_by_words
from dragonscale.errors import InputError, shorten
from dragonscale.listener import Listener
from dragonscale.physics.units import render

# A plain number of thousands, which as the length of a sequence would be one of powers of two: 8k, 32k, 128k.
_THOUSANDS = re.compile(r"(?<![\w.$])(\d+)k(?![\w.])")


class CalcLine(msgspec.Struct):
    """One answer: in base units, in the unit that was asked for, and as text; a formula where letters are left open."""

    name: str
    """The letter that was assigned or solved for, or the part of a result; empty for the expression itself."""
    sign: str
    value: float | None
    unit: str
    """The base unit: s, bytes, FLOP, USD, W and what is made of them; hourly prices are in USD/h. Empty for a count."""
    text: str
    formula: str = ""
    case: str = ""
    """The values of letters that were given several: `B=8`."""


class CalcName(msgspec.Struct):
    """What a name or a function stood for."""

    name: str
    value: float | None
    unit: str
    text: str
    source: str
    """Where a fact comes from; what a function works out."""
    function: bool = False


class CalcReport(Record):
    """The answers in order (`value`, `unit` and `text` are those of the last), and every name that was looked up."""

    ROWS: ClassVar[str] = "answers"

    expression: str
    value: float | None
    unit: str
    text: str
    formula: str
    answers: list[CalcLine]
    names: list[CalcName]

    def headline(self) -> str:
        return f"{self.expression}: {self.text}"


class MatchRow(msgspec.Struct):
    """A function or a problem: its name, what it is about, and how to ask for it."""

    name: str
    about: str
    command: str


class MatchesReport(Record):
    """What the calculator and the course have about some words, the best first."""

    ROWS: ClassVar[str] = "matches"

    words: str
    matches: list[MatchRow]

    def headline(self) -> str:
        return f"{self.words}: {len(self.matches)} functions and problems"


def matches_report(words: str) -> MatchesReport:
    """Functions and problems about some words."""
    matches = [MatchRow(match.name, match.about, match.command) for match in find_by_words(words)]
    if not matches:
        raise InputError(f"No function and no problem is about {shorten(words)}; `dscale learn` lists the chapters.")
    return MatchesReport(words, matches)


def ask(question: CalcQuestion, listener: Listener) -> CalcReport | MatchesReport:
    """The value of the last expression, those before it, and what each name stood for; with `find`, what there is."""
    if question.find:
        return matches_report(question.find).came_from(question, listener.notes)
    if not question.expression:
        raise InputError("Give an expression, such as '1e12 FLOP / v6e.bf16', or --find WORDS.")
    worked = work_out(question.expression, question.source, question.solve, question.set)
    for text in worked.notes:
        listener.note(text)
    for thousands in _THOUSANDS.findall(question.expression):
        listener.note(
            f"{thousands}k is {float(thousands) * 1e3:,.0f}, as counts are; a length such as --seq {thousands}k is "
            f"{float(thousands) * 2**10:,.0f} tokens, {thousands}Ki here."
        )
    answers = [msgspec.structs.replace(_line(line, question.to), case=line.case) for line in worked.lines]
    last = answers[-1]
    names = [_name(name, *meaning) for name, meaning in worked.looked.items()]
    report = CalcReport(
        " ".join(question.expression.split()), last.value, last.unit, last.text, last.formula, answers, names
    )
    return report.came_from(question, listener.notes)


def _line(line: AnswerLine, unit: str) -> CalcLine:
    value = line.value
    if not isinstance(value, Measure):
        return CalcLine(line.name, line.sign, None, "", value)
    # letters without a value: the answer is a formula
    if value.letters:
        if unit:
            raise InputError(f"The answer is a formula ({value.number}); give its letters values for --to {unit}.")
        return CalcLine(line.name, line.sign, None, value.unit, str(value), str(value.number))
    # prices are kept per second and told per hour
    number = float(value.number) * (3600 if value.unit == "USD/h" else 1)
    if unit:
        text = f"{six_digits(converted(value, unit))}{'' if unit == '%' else ' '}{unit}"
        return CalcLine(line.name, line.sign, number, value.unit, text + _again(value, text))
    text = str(value)
    return CalcLine(line.name, line.sign, number, value.unit, text + _again(value, text))


def _again(value: Measure, text: str) -> str:
    """The same in base units where that says more, and bytes in powers of two."""
    base, more = in_base(value.number, value.exponents), ""
    if value.unit == "bytes" and value.number >= 1024 and "i" not in text:
        more = f" = {render(value.number, 'bytes', binary=True)}"
    # the text without what units and spaces add
    plain = text.replace("$", "").replace("/h", "").replace(" ", "")
    if plain in (base.split(" ")[0], base.replace(" ", ""), f"{base.split(' ')[0]}B"):
        return more
    return f"{more} = {base}"


def _name(name: str, value: Any, source: str) -> CalcName:
    if isinstance(value, Measure) and not value.letters:
        number = float(value.number) * (3600 if value.unit == "USD/h" else 1)
        text = shown(value.number, value.exponents)
        return CalcName(name, number, value.unit, text, source, name.endswith(")"))
    # a shape, such as that of a slice
    if isinstance(value, tuple) and all(isinstance(size, Measure) for size in value):
        return CalcName(name, None, "", "x".join(map(str, value)), source)
    simple = isinstance(value, Measure | str | bool) or value is None
    if simple:
        text = str(value)
    else:
        text = ", ".join(f"{key} {part}" for key, part in _simple(value).items())
    return CalcName(name, None, "", text, source, name.endswith(")"))


def _simple(value: Any) -> dict[str, Any]:
    parts = {key: part for key, part in parts_of(value).items() if isinstance(part, Measure | str)}
    return dict(list(parts.items())[:6])


# Characters of a call that is printed with what it is given.
LONGEST = 50


def calc_blocks(report: CalcReport, _detail: bool) -> Sheet:
    """The answers, and under them facts with their sources and functions with their meaning."""
    blocks: list[Block] = [Verbatim("\n".join(map(_told, report.answers)))]
    facts = [name_row for name_row in report.names if not name_row.function]
    if facts:
        columns = [Column(""), Column("", right=True), Column("", wrap=True)]
        blocks.append(table(columns, [[name_row.name, name_row.text, name_row.source] for name_row in facts]))
    texts = {name_row.text for name_row in report.answers}
    for name_row in report.names:
        if name_row.function:
            is_shown = name_row.value is None or any(text.startswith(name_row.text) for text in texts)
            if len(name_row.name) <= LONGEST:
                name = name_row.name
            else:
                name = f"{name_row.name.partition('(')[0]}(…)"
            blocks.append(Prose(f"{name}{'' if is_shown else f' is {name_row.text}'}: {name_row.source}", "dim"))
    return Sheet(tuple(blocks))


def _told(line: CalcLine) -> str:
    if line.name and f"{line.name}=" not in line.case:
        text = f"{line.name} {line.sign} {line.text}"
    else:
        text = line.text
    if line.case:
        return f"{line.case}: {text}"
    return text


def matches_blocks(report: MatchesReport, _detail: bool) -> Sheet:
    """One row for each match."""
    rows = [[row.name, row.about] for row in report.matches]
    columns = [Column("name"), Column("about", wrap=True)]
    return sheet(table(columns, rows), NextStep(report.matches[0].command, "Such as:"))


bind(CalcReport, Face(calc_blocks))
bind(MatchesReport, Face(matches_blocks))
