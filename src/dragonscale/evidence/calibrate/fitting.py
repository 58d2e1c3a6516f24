"""The constants of a table that fit measured kernels best, and how far off they are on kernels left out.

Least squares of log(predicted/measured) with a soft loss and a weak pull towards usual constants, which decides what
the rows leave open. Every constant is searched as its logarithm, so that none becomes negative. Deterministic.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
import numpy

from dragonscale.evidence.calibrate.cases import calibrated

Case = TypeVar("Case")
Solve = Callable[..., Any]

PULL = 0.05
SOFT = 0.1
BOUNDS = msgspec.convert(calibrated("bounds"), dict[str, dict[str, tuple[float, float, float]]])
"""The constants that are fitted, by kind of table: lowest, where the search starts, highest."""
STEP = 1e-3
TIGHT = 1e-6
"""The search ends when a step brings less than this of the cost."""

Bounds = dict[str, tuple[float, float, float]]
Errors = Callable[[Any], Any]
"""log(predicted/measured) of some cases, by a table's constants."""


def fit_between(residual: Any, start: Any, low: Any, high: Any, effort: int = 60, soft: float = SOFT) -> Any:
    """The parameters between `low` and `high` with the least soft cost, found in at most `effort` steps of Levenberg
    and Marquardt, in NumPy alone.

    A residual r counts as 2·s²·(√(1 + (r/s)²) - 1): as a square where it is small beside s, as its size where it is
    large, so that odd rows do not pull. Slopes come from small differences; a parameter at its bound that would go
    beyond it stays.

    >>> import numpy
    >>> x = numpy.array([0.0, 1.0, 2.0, 3.0])
    >>> line = lambda p: p[0] + p[1] * x - numpy.array([1.0, 3.0, 5.0, 7.0])
    >>> wide = numpy.full(2, 100.0)
    >>> fit_between(line, numpy.zeros(2), -wide, wide, soft=0.1).round(1)
    array([1., 2.])
    >>> fit_between(line, numpy.zeros(2), -wide, numpy.array([100.0, 1.5]), soft=10.0).round(2)
    array([1.75, 1.5 ])
    """

    def cost(residuals: numpy.ndarray) -> float:
        with numpy.errstate(over="ignore", invalid="ignore"):
            total = float((numpy.sqrt(1 + (residuals / soft) ** 2) - 1).sum())
        return total if numpy.isfinite(total) else float("inf")

    at = numpy.clip(start, low, high)
    now = residual(at)
    least, damping = cost(now), 1e-2
    for _ in range(effort):
        nudges = numpy.where(at + STEP <= high, STEP, -STEP)
        moved = zip(numpy.diag(nudges), nudges, strict=True)
        slopes = numpy.stack([(residual(at + nudge) - now) / step for nudge, step in moved], axis=1)
        weight = 1 / numpy.sqrt(1 + (now / soft) ** 2)  # rows count the less the farther off they are
        gradient, curvature = slopes.T @ (weight * now), (slopes.T * weight) @ slopes
        held = ((at <= low) & (gradient > 0)) | ((at >= high) & (gradient < 0))
        free = numpy.flatnonzero(~held)
        block = curvature[numpy.ix_(free, free)]
        damped, step = numpy.diag(numpy.maximum(numpy.diag(block), 1e-9)), numpy.zeros_like(at)
        for _ in range(12 if len(free) else 0):
            step[free] = numpy.linalg.lstsq(block + damping * damped, -gradient[free], rcond=None)[0]
            trial = numpy.clip(at + step, low, high)
            then = residual(trial)
            if (reached := cost(then)) < least:
                break
            damping *= 4
        else:  # no step is any better
            return at
        gained, at, now, least = least - reached, trial, then, reached
        damping = max(damping / 6, 1e-9)
        if gained < TIGHT * least:
            break
    return at


def fit_table(start: Any, bounds: Bounds, errors: Errors, solve: Solve = fit_between, effort: int = 60) -> Any:
    """The constants that leave the least errors, the others as they are in `start`."""
    free = {name: pair for name, pair in bounds.items() if getattr(start, name)}
    low, centre, high = (numpy.log([pair[side] for pair in free.values()]) for side in (0, 1, 2))

    def made(values: numpy.ndarray) -> Any:
        return replace(start, **dict(zip(free, map(float, numpy.exp(values)), strict=True)))

    def residual(values: numpy.ndarray) -> numpy.ndarray:
        return numpy.concatenate([errors(made(values)), PULL * (values - centre)])

    found = made(solve(residual, centre, low, high, effort))
    return replace(found, **{name: float(f"{getattr(found, name):.4g}") for name in free})


def held_out_error(
    cases: Sequence[Case],
    label: Callable[[Case], Any],
    fitted: Callable[[Sequence[Case]], Any],
    errors: Callable[[Sequence[Case], Any], Any],
) -> float | None:
    """The median error on cases left out of the fit, a label at a time; None if there is only one label."""
    found: list[numpy.ndarray] = []
    for left in sorted({label(case) for case in cases}):
        kept = [case for case in cases if label(case) != left]
        if kept:
            found.append(errors([case for case in cases if label(case) == left], fitted(kept)))
    return median_error(numpy.concatenate(found)) if found else None


def median_error(logs: Any) -> float:
    """The median of |predicted/measured - 1|.

    >>> import math
    >>> round(median_error([math.log(1.1), math.log(0.9), 0.0]), 3)
    0.1
    """
    return float(numpy.median(numpy.abs(numpy.expm1(logs))))


def fold(text: Any, folds: int) -> int:
    """One of so many parts, by a hash: the same on every machine."""
    return int(hashlib.sha256(repr(text).encode()).hexdigest(), 16) % folds
