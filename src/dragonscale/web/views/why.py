"""Where a number of the page comes from: `facts` at once, `formula` a moment later, `crossovers` last.

A request says which view showed the number (`of`), with the fields of that view's question, and the number by its id
(`number`). The records are those of `dragonscale.commands.explain.numbers`; here they are found and drawn.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any
from urllib.parse import parse_qsl

from dragonscale.blocks.amounts import ELSEWHERE
from dragonscale.commands.explain.formulas import Explanation, FormulaLine
from dragonscale.commands.explain.numbers.records import Derivation
from dragonscale.errors import InputError, unknown
from dragonscale.plan.letter_meanings import Letter
from dragonscale.web.kept import Remembered
from dragonscale.web.maths import math_tree
from dragonscale.web.page_request import PageRequest
from dragonscale.web.view_names import OF_FIELDS
from dragonscale.web.views.cards import Card
from dragonscale.web.views.compare import columns_of
from dragonscale.web.words import dropped_model

_DERIVATIONS = Remembered[int, Derivation](8)
"""Derivations of the last answers, by the identity of the record: the next number of an answer finds its letters there.
Each holds its record, so the identity stays that record's."""


def facts_panel(request: PageRequest) -> Card:
    """What it is, how it is put together, how sure it is."""
    derivation, number = _derivation(request)
    facts = derivation.facts(number)
    compared = facts.compared
    return {
        "id": _number(request),
        **asdict(facts),
        "compared": compared and {"rows": list(map(asdict, compared.rows)), "text": compared.text},
        "docs": facts.docs and {"page": facts.docs[0], "anchor": facts.docs[1]},
    }


def formula_panel(request: PageRequest) -> Card:
    """The formulas, the numbers put in, and each letter."""
    derivation, number = _derivation(request)
    formulas = derivation.formula(number)
    return {
        "id": _number(request),
        "formulas": list(map(_drawn_formula, formulas.lines)),
        "letters": list(map(_drawn_letter, formulas.letters)),
        "crossovers": formulas.crossovers,
        "notes": formulas.notes,
    }


def crossovers_panel(request: PageRequest) -> Card:
    """Where the answer changes, solved from the same formulas; it takes longest, so it comes last."""
    derivation, number = _derivation(request)
    return {"id": _number(request), "crossovers": derivation.crossovers(number)}


def _drawn_formula(line: FormulaLine) -> Card:
    """A formula, and the same with numbers in, as text and as trees that the page draws in MathML."""
    put_in = "" if line.numbers == line.formula else line.numbers
    return {
        "name": line.name,
        "text": line.formula,
        "math": math_tree(line.formula),
        "value": line.value,
        "value_si": line.value_si,
        "numbers": put_in,
        "put_in": math_tree(put_in) if put_in else None,
    }


def _drawn_letter(letter: Letter) -> Card:
    origin = {"from": letter.origin}
    return {
        "letter": letter.letter,
        "math": math_tree(letter.letter),
        "value": letter.value,
        "what": letter.what,
    } | origin


def _number(request: PageRequest) -> str:
    number = request.text("number")
    if not number:
        raise InputError("The request names no number; give its id as `number`.")
    return number


def _derivation(request: PageRequest) -> tuple[Derivation, str]:
    """What derives the number that is asked for, and the number's id there."""
    of, number, fields = request.text("of", "train"), _number(request), request.fields
    if of == "compare":
        # `1:step_s` is the step of the second column
        of, columns = columns_of(request)
        column, _, number = number.partition(":")
        if not column.isdecimal() or int(column) >= len(columns):
            raise unknown("column called", column, map(str, range(len(columns))))
        fields = columns[int(column)]
    if number.startswith(ELSEWHERE):
        # `at?plan=fsdp8|step_s` is the step of the same question with another plan
        changes, _, number = number.removeprefix(ELSEWHERE).partition("|")
        fields = {**fields, **dict(parse_qsl(changes))}
        if of == "train" and "plan" in changes:
            fields["alone"] = True
    if number.startswith(("model:", "chip:")) and of in ("train", "serve", "simulate") and number != "chip:peak":
        fields, of = {"model": fields.get("model", "")}, "models"
    match of:
        case "train" | "serve" | "simulate":
            return _of_answer(of, request.ask(of, fields, brief=False)), number
        case "roofline" | "collective" | "shard":
            return _of_operation(request, of, fields), number
        case "chips" | "models":
            return _of_catalogue(request, fields, number), number
        case _:
            raise unknown("view whose numbers are derived called", of, OF_FIELDS)


def _of_answer(of: str, record: Any) -> Derivation:
    """What derives the numbers of the first plan of an answer, of its first configuration, or of a simulated fleet;
    modules of other views are not loaded."""
    derivation = _DERIVATIONS.get(id(record))
    if derivation is not None:
        return derivation
    if of == "train":
        from dragonscale.commands.explain.numbers.train_numbers import TrainNumbers

        if not record.plans:
            raise InputError("There is no plan, so there is nothing to derive.")
        derivation = TrainNumbers(record, record.plans[0])
    elif of == "serve":
        from dragonscale.commands.explain.numbers.serve_numbers import ServeNumbers

        if not record.configs:
            raise InputError("There is no configuration, so there is nothing to derive.")
        derivation = ServeNumbers(record, record.configs[0])
    else:
        from dragonscale.commands.explain.numbers.fleet_numbers import FleetNumbers

        derivation = FleetNumbers(record)
    _DERIVATIONS.put(id(record), derivation)
    return derivation


def _of_operation(request: PageRequest, of: str, fields: Mapping[str, Any]) -> Derivation:
    """The answer about one operation and its explanation."""
    from dragonscale.commands.explain.numbers.operation_numbers import EXPLAIN_FIELDS, OperationNumbers, ShardNumbers

    question = {name: value for name, value in fields.items() if name in EXPLAIN_FIELDS[of]}

    def explain() -> Explanation | None:
        try:
            return request.ask(f"explain {of}", question, brief=False)
        except InputError:
            return None

    kind = ShardNumbers if of == "shard" else OperationNumbers
    return kind(of, request.ask(of, fields, brief=False), str(question.get("on", "") or ""), explain)


def _of_catalogue(request: PageRequest, fields: Mapping[str, Any], number: str) -> Derivation:
    """A chip, a slice or a model, as a number's id says: `chip:power@h100`, `slice:chips`, `model:parameters`."""
    from dragonscale.commands.explain.numbers.chip_numbers import ChipNumbers, SliceNumbers, chip_of_slice

    kind, _, path = number.partition(":")
    # after an @ stands what it is a number of, where that is not what the question names
    name, asked_name = path.partition("@")[2], str(fields.get("name", "") or "")
    if kind == "chip":
        chip, source = chip_of_slice(name or asked_name), str(fields.get("source", "") or "")
        return ChipNumbers(chip.reading(source) if source else chip)
    if kind == "slice":
        return SliceNumbers(request.ask("chips", {"name": request.text("slice") or asked_name}, brief=False))
    if kind == "model":
        return _of_model(request, fields, name)
    raise unknown("kind of fact called", kind, ("chip", "slice", "model"))


def _of_model(request: PageRequest, fields: Mapping[str, Any], name: str) -> Derivation:
    """The counts of the model of a name, or of the one that the question is about."""
    from dragonscale.commands.explain.numbers.model_numbers import READING_FIELDS, ModelNumbers
    from dragonscale.models import load_model

    text = name or str(fields.get("model", "") or "")
    reading = {key: fields[key] for key in READING_FIELDS if key in fields}
    report = request.ask("models", {**reading, "model": text}, brief=False)
    model = dropped_model(text, request.dropped[text]) if text in request.dropped else load_model(text)

    def explain() -> Explanation | None:
        if text in request.dropped:
            return None
        seq = {"seq": fields["seq"]} if fields.get("seq") else {}
        return request.ask("explain model", {"model": text, **seq}, brief=False)

    return ModelNumbers(model, report, fields.get("full") is True, not name, explain)


PANELS = {"facts": facts_panel, "formula": formula_panel, "crossovers": crossovers_panel}
