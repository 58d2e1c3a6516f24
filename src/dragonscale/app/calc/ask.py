"""A calculation, read and answered."""

from typing import Any

import msgspec

from dragonscale.app.calc.records import CalcLine, CalcName, CalcReport
from dragonscale.app.questions.facts import CalcQuestion
from dragonscale.course.calculator.answer import AnswerLine, converted, work_out
from dragonscale.course.calculator.functions import parts_of
from dragonscale.course.calculator.measure import Measure
from dragonscale.course.calculator.shown import in_base, shown, six_digits
from dragonscale.errors import InputError
from dragonscale.listener import Listener
from dragonscale.physics.units import render


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
