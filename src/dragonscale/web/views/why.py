"""Where a number of the page comes from: `facts` at once, `formula` a moment later, `crossovers` last.

A request says which view showed the number (`of`), with the fields of that view's question, and the number by its id
(`number`).
"""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from dragonscale.errors import InputError, unknown
from dragonscale.web.amounts import ELSEWHERE
from dragonscale.web.derivations.pieces import Derivation, Piece
from dragonscale.web.page_request import PageRequest
from dragonscale.web.view_names import OF_FIELDS
from dragonscale.web.views.compare import columns_of

Derivations = Callable[[PageRequest, str, Mapping[str, Any], str], Derivation]


def facts_panel(asked: PageRequest) -> Piece:
    """What it is, how it is put together, how sure it is."""
    derivation, number = _derivation(asked)
    return {"id": _number(asked)} | derivation.facts(number)


def formula_panel(asked: PageRequest) -> Piece:
    """The formulas, the numbers put in, and each letter."""
    derivation, number = _derivation(asked)
    return {"id": _number(asked)} | derivation.formula(number)


def crossovers_panel(asked: PageRequest) -> Piece:
    """Where the answer changes, solved from the same formulas; it takes longest, so it comes last."""
    derivation, number = _derivation(asked)
    return {"id": _number(asked), "crossovers": derivation.crossovers(number)}


def _number(asked: PageRequest) -> str:
    number = asked.text("number")
    if not number:
        raise InputError("The request names no number; give its id as `number`.")
    return number


def _derivation(asked: PageRequest) -> tuple[Derivation, str]:
    """Something with `facts` and `formula` of a number, and the number's id there."""
    of, number, fields = asked.text("of", "train"), _number(asked), asked.fields
    if of == "compare":
        of, columns = columns_of(asked)
        place, _, number = number.partition(":")
        if not place.isdecimal() or int(place) >= len(columns):
            raise unknown("column called", place, map(str, range(len(columns))))
        fields = columns[int(place)]
    if number.startswith(ELSEWHERE):
        changes, _, number = number.removeprefix(ELSEWHERE).partition("|")
        fields = {**fields, **dict(parse_qsl(changes))}
        fields |= {"alone": True} if of == "train" and "plan" in changes else {}
    if number.startswith(("model:", "chip:")) and of in ("train", "serve", "simulate") and number != "chip:peak":
        fields, of = {"model": fields.get("model", "")}, "models"
    return _derivations(of)(asked, of, fields, number), number


def _derivations(of: str) -> Derivations:
    """What derives the numbers of a view; it is imported when it is first asked for."""
    match of:
        case "train":
            from dragonscale.web.derivations.training import numbers_of
        case "serve":
            from dragonscale.web.derivations.serving import numbers_of
        case "simulate":
            from dragonscale.web.derivations.simulated import numbers_of
        case "roofline" | "collective" | "shard":
            from dragonscale.web.derivations.operations import numbers_of
        case "chips" | "models":
            from dragonscale.web.derivations.lookup import numbers_of
        case _:
            raise unknown("view whose numbers are derived called", of, OF_FIELDS)
    return numbers_of


PANELS = {"facts": facts_panel, "formula": formula_panel, "crossovers": crossovers_panel}
