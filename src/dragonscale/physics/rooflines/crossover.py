"""Crossovers: where one bound takes over from another, solved exactly.

The times of a roofline are formulas; a crossover is where two of them are equal. SymPy solves what has a closed form
(most matmul rooflines are linear fractions in every variable); for the rest the sign change is bracketed and bisected.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Any

from dragonscale.errors import InputError
from dragonscale.physics.numbers import Number
from dragonscale.physics.rooflines.bounds import Roofline

# Sizes between which a crossover without a closed form is searched for.
SMALLEST = 1e-12
LARGEST = 1e15


@dataclass(frozen=True)
class Crossover:
    """At `variable = value`, `below` stops binding and `above` starts."""

    variable: str
    value: Any
    below: str
    above: str


def symbol(name: str) -> Any:
    """A positive SymPy symbol: every size here is positive."""
    import sympy

    return sympy.Symbol(name, positive=True)


def exact(value: Number) -> Any:
    """A float, alone or within an expression, as the rational that it stands for, so that solving is exact.

    >>> exact(0.5), exact(197e12), exact(0.25 * symbol("B"))
    (1/2, 197000000000000, B/4)
    """
    import sympy

    return sympy.nsimplify(sympy.sympify(value), rational=True)


def solve_equal(first: Any, second: Any, variable: Any) -> list[Any]:
    """The positive values of a variable at which two expressions are equal, in closed form if there is one."""
    import sympy

    gap = sympy.together(exact(first) - exact(second))
    if variable not in gap.free_symbols:
        return []
    try:
        solutions = sympy.solve(sympy.numer(gap), variable)
    except NotImplementedError:
        solutions = []
    # SymPy answers None where it cannot tell
    positive = [value for value in solutions if value.is_positive is not False and value.is_real is not False]
    if positive or len(gap.free_symbols) > 1:
        return positive
    root = _bisect(sympy.lambdify(variable, gap))
    if root is None:
        return []
    return [root]


def _bisect(function: Any) -> float | None:
    """A root between `SMALLEST` and `LARGEST`; None if the sign does not change between them."""
    low, high = SMALLEST, LARGEST
    start, end = function(low), function(high)
    if not (math.isfinite(start) and math.isfinite(end)) or (start > 0) == (end > 0):
        return None
    # the sign changes between low and high; halve the logarithm of the interval
    for _ in range(200):
        middle = math.sqrt(low * high)
        if (function(middle) > 0) == (start > 0):
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)


def crossovers(result: Roofline, variable: Any) -> list[Crossover]:
    """Every value of the variable at which the binding resource changes, in order.

    The roofline's times must be formulas in this one symbol (other sizes put in as numbers).
    """
    import sympy

    times = {name: sympy.sympify(seconds) for name, seconds in result.seconds.items()}
    free = set().union(*(seconds.free_symbols for seconds in times.values()))
    if variable not in free:
        others = ", ".join(sorted(map(str, free))) or "nothing"
        raise InputError(f"The times do not depend on {variable}; they depend on: {others}.")
    if free != {variable}:
        others = ", ".join(sorted(map(str, free - {variable})))
        raise InputError(f"To find where the bound changes in {variable}, give a size to: {others}.")

    def binding(value: float) -> str:
        return max(times, key=lambda name: float(times[name].subs(variable, value)))

    points: set[Any] = set()
    for first, second in itertools.combinations(result.seconds.values(), 2):
        points.update(solve_equal(first, second, variable))
    changes: list[Crossover] = []
    for point in sorted(points, key=float):
        # two times may be equal where a third one binds: look at both sides
        below, above = binding(float(point) * (1 - 1e-6)), binding(float(point) * (1 + 1e-6))
        if below != above:
            changes.append(Crossover(str(variable), point, below, above))
    return changes
