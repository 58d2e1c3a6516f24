"""Where a number of the page comes from: `facts` at once, `formula` a moment later.

A request says which view showed the number (`of`), with the fields of that view's question, and the number by its id (`number`).
"""

from typing import Any

from dragonscale.errors import InputError, unknown
from dragonscale.web.asked import Asked
from dragonscale.web.derivations.pieces import Piece

DERIVED = ("train",)
"""Views whose numbers are derived."""


def facts_panel(asked: Asked) -> Piece:
    """What it is, how it is put together, how sure it is."""
    return {"id": _number(asked)} | _derivation(asked).facts(_number(asked))


def formula_panel(asked: Asked) -> Piece:
    """The formulas, the numbers put in, and each letter."""
    return {"id": _number(asked)} | _derivation(asked).formula(_number(asked))


def _number(asked: Asked) -> str:
    number = asked.text("number")
    if not number:
        raise InputError("The request names no number; give its id as `number`.")
    return number


def _derivation(asked: Asked) -> Any:
    """Something with `facts` and `formula` of a number."""
    of = asked.text("of", "train")
    if of not in DERIVED:
        raise unknown("view whose numbers are derived called", of, DERIVED)
    record = asked.ask(of, asked.fields)
    from dragonscale.web.derivations.training import TrainNumbers

    if not record.plans:
        raise InputError("There is no plan, so there is nothing to derive.")
    return TrainNumbers(record, record.plans[0])


PANELS = {"facts": facts_panel, "formula": formula_panel}
