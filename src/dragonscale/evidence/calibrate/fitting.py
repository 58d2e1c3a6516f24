"""The constants of a table that fit measured kernels best, and how far off they are on kernels left out.

Least squares of log(predicted/measured) with a soft loss and a weak pull towards usual constants, which decides what
the rows leave open. Every constant is searched as its logarithm, so that none becomes negative. Deterministic.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from dragonscale.evidence.calibrate.least_squares import fit_between

if TYPE_CHECKING:
    import numpy

Case = TypeVar("Case")
Solve = Callable[..., Any]

PULL = 0.05
SOFT = 0.1
BOUNDS: dict[str, dict[str, tuple[float, float, float]]] = {
    "matmul": {
        "launch": (5e-7, 3e-6, 3e-5),
        "rate": (0.2, 0.9, 1.0),
        "operands": (0.1, 20, 300),
        "prologue": (1, 200, 3000),
        "quantum": (0.01, 0.7, 1),
        "join": (1e-7, 5e-6, 3e-5),
        "bandwidth": (0.4, 0.9, 0.98),
        "unhidden": (1e-3, 0.2, 1),
        "sustained": (0.55, 0.85, 0.999),
        "throttle": (5e-5, 5e-4, 3e-3),
        "quantise_row": (1e-12, 3e-9, 1e-7),
        "quantise_passes": (1, 2, 20),
        "dispatch_few": (1e-6, 6e-5, 5e-4),
        "dispatch": (1e-6, 9e-5, 5e-4),
    },
    "attention": {
        "launch": (5e-7, 1e-5, 3e-5),
        "rate": (0.1, 0.6, 1.0),
        "edge": (1e-8, 3e-6, 2e-5),
        "fill": (1e-8, 2e-6, 2e-5),
        "quantum": (0.01, 0.5, 1),
        "longest": (0.2, 0.9, 1.5),
        "query_bytes": (4, 5, 40),
        "kv_bytes": (4, 5, 40),
        "unhidden": (1e-3, 0.5, 1),
        "write_row": (1e-12, 1e-9, 1e-7),
        "write_bytes": (6, 12, 100),
    },
    "decode": {
        "launch": (5e-7, 1e-5, 3e-5),
        "block": (1e-8, 2e-6, 2e-5),
        "group": (1e-10, 3e-8, 1e-6),
        "quantum": (0.01, 0.5, 1),
        "bandwidth": (0.3, 0.9, 0.98),
        "cached": (0.5, 1.5, 6),
        "unhidden": (1e-3, 0.5, 1),
        "key": (1e-12, 2e-9, 1e-7),
        "chain": (100, 1000, 1e5),
        "join": (1e-9, 1e-6, 1e-5),
    },
    "grouped": {
        "launch": (1e-6, 3e-5, 1.5e-4),
        "rate": (0.02, 0.6, 1.0),
        "operands": (0.1, 30, 400),
        "prologue": (1, 100, 3000),
        "quantum": (0.01, 0.7, 1),
        "bandwidth": (0.05, 0.9, 0.98),
        "occupancy": (0.02, 0.5, 4),
        "unhidden": (1e-3, 0.2, 1),
        "route_row": (1e-12, 3e-9, 1e-7),
        "hidden_bytes": (0.01, 5, 100),
        "inner_bytes": (0.01, 2, 100),
        "expert": (1e-12, 5e-8, 1e-6),
    },
    "stream": {"launch": (2e-7, 2e-6, 1e-3), "bandwidth": (0.02, 0.85, 0.99)},
}
"""The constants that are fitted, by kind: lowest, where the search starts (and is pulled to), highest. One that a table
has at zero stays zero."""

Bounds = dict[str, tuple[float, float, float]]
Errors = Callable[[Any], Any]
"""log(predicted/measured) of some cases, by a table's constants."""


def own_solver(residual: Any, start: Any, low: Any, high: Any, effort: int) -> Any:
    """The search that needs NumPy alone."""
    return fit_between(residual, start, low, high, SOFT, effort)


def fit_table(start: Any, bounds: Bounds, errors: Errors, solve: Solve = own_solver, effort: int = 60) -> Any:
    """The constants that leave the least errors, the others as they are in `start`."""
    import numpy

    free = {name: pair for name, pair in bounds.items() if getattr(start, name)}
    low, centre, high = (numpy.log([pair[side] for pair in free.values()]) for side in (0, 1, 2))

    def made(values: "numpy.ndarray") -> Any:
        return replace(start, **dict(zip(free, map(float, numpy.exp(values)), strict=True)))

    def residual(values: "numpy.ndarray") -> "numpy.ndarray":
        return numpy.concatenate([errors(made(values)), PULL * (values - centre)])

    found = made(solve(residual, centre, low, high, effort))
    return replace(found, **{name: float(f"{getattr(found, name):.4g}") for name in free})


def held_out_error(
    cases: Sequence[Case],
    label: Callable[[Case], Any],
    fitted: Callable[[Sequence[Case]], Any],
    errors: Callable[[Sequence[Case], Any], Any],
) -> float:
    """The median error on cases left out of the fit, a label at a time; not a number if there is only one label."""
    import numpy

    found: list[numpy.ndarray] = []
    for left in sorted({label(case) for case in cases}):
        kept = [case for case in cases if label(case) != left]
        if kept:
            found.append(errors([case for case in cases if label(case) == left], fitted(kept)))
    return median_error(numpy.concatenate(found)) if found else float("nan")


def median_error(logs: Any) -> float:
    """The median of |predicted/measured - 1|.

    >>> import math
    >>> round(median_error([math.log(1.1), math.log(0.9), 0.0]), 3)
    0.1
    """
    import numpy

    return float(numpy.median(numpy.abs(numpy.expm1(logs))))


def fold(text: Any, folds: int) -> int:
    """One of so many parts, by a hash: the same on every machine."""
    return int(hashlib.sha256(repr(text).encode()).hexdigest(), 16) % folds
