"""`dscale calc`: a calculation read, worked out and laid out."""

from typing import Any, ClassVar

import msgspec

from dragonscale.blocks.sheet import Block, Column, Prose, Sheet, Verbatim, table
from dragonscale.commands.questions.facts import CalcQuestion
from dragonscale.commands.record import Face, Record, bind
from dragonscale.course.calculator.answer import AnswerLine, converted, work_out
from dragonscale.course.calculator.functions import parts_of
from dragonscale.course.calculator.measure import Measure
from dragonscale.course.calculator.shown import in_base, shown, six_digits
from dragonscale.errors import InputError
from dragonscale.listener import Listener
from dragonscale.physics.units import render


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


def ask(question: CalcQuestion, listener: Listener) -> CalcReport:
    """The value of the last expression, those before it, and what each name stood for."""
    worked = work_out(question.expression, question.source, question.solve, question.set)
    for text in worked.notes:
        listener.note(text)
    answers = [msgspec.structs.replace(_line(one, question.to), case=one.case) for one in worked.lines]
    last = answers[-1]
    names = [_name(name, *found) for name, found in worked.looked.items()]
    told = CalcReport(
        " ".join(question.expression.split()), last.value, last.unit, last.text, last.formula, answers, names
    )
    return told.came_from(question, listener.notes)


def _line(one: AnswerLine, unit: str) -> CalcLine:
    value = one.value
    if not isinstance(value, Measure):
        return CalcLine(one.name, one.sign, None, "", value)
    if value.letters:
        if unit:
            raise InputError(f"The answer is a formula ({value.number}); give its letters values for --to {unit}.")
        return CalcLine(one.name, one.sign, None, value.unit, str(value), str(value.number))
    number = float(value.number) * (3600 if value.unit == "USD/h" else 1)
    if unit:
        text = f"{six_digits(converted(value, unit))}{'' if unit == '%' else ' '}{unit}"
        return CalcLine(one.name, one.sign, number, value.unit, text + _again(value, text))
    text = str(value)
    return CalcLine(one.name, one.sign, number, value.unit, text + _again(value, text))


def _again(value: Measure, text: str) -> str:
    """The same in base units where that says more, and bytes in powers of two."""
    base, more = in_base(value.number, value.exponents), ""
    if value.unit == "bytes" and value.number >= 1024 and "i" not in text:
        more = f" = {render(value.number, 'bytes', binary=True)}"
    plain = text.replace("$", "").replace("/h", "").replace(" ", "")
    return (
        more if plain in (base.split(" ")[0], base.replace(" ", ""), f"{base.split(' ')[0]}B") else f"{more} = {base}"
    )


def _name(name: str, value: Any, source: str) -> CalcName:
    if isinstance(value, Measure) and not value.letters:
        number = float(value.number) * (3600 if value.unit == "USD/h" else 1)
        text = shown(value.number, value.exponents)
        return CalcName(name, number, value.unit, text, source, name.endswith(")"))
    if isinstance(value, tuple) and all(isinstance(one, Measure) for one in value):
        return CalcName(name, None, "", "x".join(str(one) for one in value), source)
    simple = isinstance(value, Measure | str | bool) or value is None
    text = str(value) if simple else ", ".join(f"{key} {part}" for key, part in _simple(value).items())
    return CalcName(name, None, "", text, source, name.endswith(")"))


def _simple(value: Any) -> dict[str, Any]:
    found = {key: part for key, part in parts_of(value).items() if isinstance(part, Measure | str)}
    return dict(list(found.items())[:6])


LONGEST = 50
"""Characters of a call that is printed with what it is given."""


def calc_blocks(report: CalcReport, _detail: bool) -> Sheet:
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


bind(CalcReport, Face(calc_blocks))
