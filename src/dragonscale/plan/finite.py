"""Costs that are no numbers. They are faults of the planner, and are told by the term that they come from.

A comparison with a NaN is false whichever way it is asked, so one of them in a ranking puts any plan first. Whatever
ranks plans, or prints one, therefore checks its costs here.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy

from dragonscale.errors import NonFiniteCost
from dragonscale.physics.numbers import is_array
from dragonscale.plan.ledger import QUANTITIES, HeldLine, Ledger, LedgerLine


def check_terms(terms: Mapping[str, Any], rows: Any, of: str) -> None:
    """Refuse costs, by term and each a number or an array over plans, that are not finite in some of the rows (a mask
    over the plans, or True for all of them). `of` says what they are the costs of.

    >>> check_terms({"update": numpy.array([1.0, numpy.nan])}, numpy.array([True, False]), "a step")
    >>> check_terms({"update": numpy.array([1.0, numpy.nan])}, True, "a step")
    Traceback (most recent call last):
    dragonscale.errors.NonFiniteCost: The planner failed: update of a step came out as nan, which is a fault of its own.
    """
    for term, value in terms.items():
        broken = ~numpy.isfinite(value) & rows
        if numpy.any(broken):
            wrong = numpy.broadcast_to(value, numpy.shape(broken))[broken]
            raise NonFiniteCost(term, float(numpy.ravel(wrong)[0]), of)


def check_lines(lines: Iterable[LedgerLine], of: str) -> None:
    """Refuse lines of a ledger, over one plan or many, with a quantity that is not finite; formulas are let through."""
    for line in lines:
        for name in QUANTITIES:
            value = getattr(line, name)
            if isinstance(value, int | float):
                wrong = not math.isfinite(value)
            else:
                wrong = is_array(value) and not numpy.isfinite(value).all()
            if wrong:
                term = f"{name} of {' '.join(filter(None, (line.section, line.phase, line.what, line.kind)))}"
                found = numpy.ravel(value)[~numpy.isfinite(numpy.ravel(value))][0]
                raise NonFiniteCost(term, float(found), of)


def check_held(held: Iterable[HeldLine], of: str) -> None:
    """Refuse tensors whose bytes are no finite number."""
    for line in held:
        if isinstance(line.bytes, int | float) and not math.isfinite(line.bytes):
            raise NonFiniteCost(f"bytes of {' '.join(filter(None, (line.section, line.what)))}", line.bytes, of)


def checked(ledger: Ledger, of: str) -> Ledger:
    """The ledger of one plan, all of whose numbers are finite."""
    check_lines(ledger.lines, of)
    check_held([*ledger.held, *ledger.hosted], of)
    return ledger
