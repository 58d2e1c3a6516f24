"""Least squares between bounds with a soft loss, in NumPy alone: Levenberg and Marquardt's steps.

A residual r counts as 2·s²·(√(1 + (r/s)²) - 1): as a square where it is small beside s, as its size where it is large,
so that odd rows do not pull. Slopes come from small differences; a parameter at its bound that would go beyond it
stays.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy

STEP = 1e-3
TIGHT = 1e-6
"""The search ends when a step brings less than this of the cost."""


def fit_between(
    residual: "Callable[[numpy.ndarray], numpy.ndarray]",
    start: "numpy.ndarray",
    low: "numpy.ndarray",
    high: "numpy.ndarray",
    soft: float,
    effort: int = 60,
) -> "numpy.ndarray":
    """The parameters between `low` and `high` with the least soft cost, found in at most `effort` steps.

    >>> import numpy
    >>> x = numpy.array([0.0, 1.0, 2.0, 3.0])
    >>> line = lambda p: p[0] + p[1] * x - numpy.array([1.0, 3.0, 5.0, 7.0])
    >>> wide = numpy.full(2, 100.0)
    >>> fit_between(line, numpy.zeros(2), -wide, wide, soft=0.1).round(1)
    array([1., 2.])
    >>> fit_between(line, numpy.zeros(2), -wide, numpy.array([100.0, 1.5]), soft=10.0).round(2)
    array([1.75, 1.5 ])
    """
    import numpy

    at = numpy.clip(start, low, high)
    now = residual(at)
    cost, damping = _cost(now, soft), 1e-2
    for _ in range(effort):
        slopes = _slopes(residual, at, now, high)
        gradient, curvature = _weighed(now, slopes, soft)
        held = ((at <= low) & (gradient > 0)) | ((at >= high) & (gradient < 0))
        free = numpy.flatnonzero(~held)
        if not len(free):
            break
        better = None
        for _ in range(12):
            block = curvature[numpy.ix_(free, free)]
            block = block + damping * numpy.diag(numpy.maximum(numpy.diag(block), 1e-9))
            step = numpy.zeros_like(at)
            step[free] = numpy.linalg.lstsq(block, -gradient[free], rcond=None)[0]
            trial = numpy.clip(at + step, low, high)
            found = residual(trial)
            if (tried := _cost(found, soft)) < cost:
                better = trial, found, tried
                break
            damping *= 4
        if better is None:
            break
        before = cost
        at, now, cost = better
        damping = max(damping / 6, 1e-9)
        if before - cost < TIGHT * cost:
            break
    return at


def _cost(residuals: "numpy.ndarray", soft: float) -> float:
    import numpy

    with numpy.errstate(over="ignore", invalid="ignore"):
        found = float((numpy.sqrt(1 + (residuals / soft) ** 2) - 1).sum())
    return found if numpy.isfinite(found) else float("inf")


def _weighed(residuals: "numpy.ndarray", slopes: "numpy.ndarray", soft: float) -> "tuple[numpy.ndarray, numpy.ndarray]":
    """Half of the soft cost's gradient and of its curvature, by rows that count the less the farther off they are."""
    import numpy

    weight = 1 / numpy.sqrt(1 + (residuals / soft) ** 2)
    return slopes.T @ (weight * residuals), (slopes.T * weight) @ slopes


def _slopes(
    residual: "Callable[[numpy.ndarray], numpy.ndarray]",
    at: "numpy.ndarray",
    now: "numpy.ndarray",
    high: "numpy.ndarray",
) -> "numpy.ndarray":
    import numpy

    columns = []
    for place in range(len(at)):
        step = STEP if at[place] + STEP <= high[place] else -STEP
        moved = at.copy()
        moved[place] += step
        columns.append((residual(moved) - now) / step)
    return numpy.stack(columns, axis=1)
