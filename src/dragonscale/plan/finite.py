"""Checks that costs are finite. A cost that is not is a fault of the planner, reported with the term that it is from.

Every comparison with a NaN is false, so a single one in a ranking can put any plan first. Code that ranks plans, or
prints one, therefore checks its costs here.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy

from dragonscale.errors import NonFiniteCost
from dragonscale.physics.numbers import is_array
from dragonscale.plan.ledger import QUANTITIES, Ledger, LedgerLine


def check_terms(terms: Mapping[str, Any], rows: Any, of: str) -> None:
    """Refuse costs, by term, that are not finite. Each is a number or an array of shape (plans,); `rows` is a mask of
    that shape, or True for all of them. `of` is what the costs are of.

    >>> check_terms({"update": numpy.array([1.0, numpy.nan])}, numpy.array([True, False]), "a step")
    >>> check_terms({"update": numpy.array([1.0, numpy.nan])}, True, "a step")
    Traceback (most recent call last):
    dragonscale.errors.NonFiniteCost: The planner failed: update of a step came out as nan, which is a fault of its own.
    """
    for term, value in terms.items():
        is_wrong = ~numpy.isfinite(value) & rows
        if numpy.any(is_wrong):
            wrong = numpy.broadcast_to(value, numpy.shape(is_wrong))[is_wrong]
            raise NonFiniteCost(term, float(numpy.ravel(wrong)[0]), of)


def check_lines(lines: Iterable[LedgerLine], of: str) -> None:
    """Refuse lines of a ledger, over one plan or many, with a quantity that is not finite; formulas are not checked."""
    for line in lines:
        for name in QUANTITIES:
            value = getattr(line, name)
            if isinstance(value, int | float):
                if math.isfinite(value):
                    continue  # the common case, without NumPy
            elif not is_array(value) or numpy.isfinite(value).all():
                continue
            term = f"{name} of {' '.join(filter(None, (line.section, line.phase, line.what, line.kind)))}"
            values = numpy.ravel(value)
            raise NonFiniteCost(term, float(values[~numpy.isfinite(values)][0]), of)


def checked(ledger: Ledger, of: str) -> Ledger:
    """The ledger of one plan, all of whose numbers are finite."""
    check_lines(ledger.lines, of)
    for tensor in (*ledger.held, *ledger.hosted):
        if isinstance(tensor.bytes, int | float) and not math.isfinite(tensor.bytes):
            what = f"{tensor.section} {tensor.what}".strip()
            raise NonFiniteCost(f"bytes of {what}", tensor.bytes, of)
    return ledger
