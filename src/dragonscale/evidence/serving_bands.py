"""Bands of expected latencies and rates of servers from how far measured runs were from them, and whether they hold for
what was left out.

Quantiles of log(measured / expected) for every kind of run (`dragonscale.serving.bands`); a kind leans on the next
wider one as if that lent it `LENT` runs. The runs of a model on a chip share what is wrong about them, so these are
left out together; for a chip of which nothing was measured, all runs of a generation of chips are."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dragonscale.evidence.inference_rows import LATENCIES, InferenceCase
from dragonscale.evidence.serving_rows import ServedRun
from dragonscale.evidence.training_bands import LENT, TAILS, covered, quantile
from dragonscale.serving.bands import MEASURES, Kinds, ServedKind, band_of, tables
from dragonscale.training.bands import NOMINAL

STRETCHES = (1.5, 1.75, 2.0, 2.5, 3.0)
"""Generations that were left out had their kernels fitted all the same; chosen ones can be further off, so bands of
chips with them are half as wide again at least. This is a judgement: nothing measured says it."""
FEWEST_GROUPS = 5
"""(model, chip) pairs that a file must have for bands without one of them to say anything."""


@dataclass(frozen=True)
class ServedResidual:
    """A run: its kind, its model, and log(measured / expected)."""

    kind: ServedKind
    model: str
    log: float

    @property
    def pair(self) -> str:
        """The model and chip that it shares its errors with."""
        return f"{self.model} {self.kind.chip}"


def served_residuals(judged: Iterable[tuple[ServedRun, tuple[float, float]]]) -> dict[str, list[ServedResidual]]:
    """How far measured servers were from what was expected of them: TPOT, TTFT, and tokens per second, which follow
    from both in a closed loop."""
    found: dict[str, list[ServedResidual]] = {measure: [] for measure in MEASURES}
    for run, (first, each) in judged:
        row, kind = run.row, ServedKind(run.row.chip, run.engine.name, run.moe)
        pairs = {"tpot": (row.tpot_s, each)}
        if not run.recipe.cold:
            seen, expected = (
                one + (row.output - 1) * other for one, other in ((row.ttft_s, row.tpot_s), (first, each))
            )
            pairs |= {"ttft": (row.ttft_s, first), "tokens": (expected, seen)}
        for measure, (measured, predicted) in pairs.items():
            found[measure].append(ServedResidual(kind, row.model, math.log(measured / predicted)))
    return found


def inference_residuals(judged: Iterable[tuple[InferenceCase, float]]) -> dict[str, list[ServedResidual]]:
    """The same of published latencies of steps and rates of full servers."""
    found: dict[str, list[ServedResidual]] = {measure: [] for measure in MEASURES}
    for case, predicted in judged:
        row, kind = case.row, ServedKind(case.row.chip, case.engine.name, bool(case.row.experts))
        measure = "step" if row.scenario in LATENCIES else "tokens"
        found[measure].append(ServedResidual(kind, row.model, math.log(row.measured / predicted)))
    return found


def kinds_of(residuals: Sequence[ServedResidual], tail: float) -> dict[str, dict[str, float]]:
    """A table of `errors.toml`: the runs of every kind, the band that leaves `tail` of them out on each side, and the
    median error."""
    logs: dict[str, list[float]] = {}
    wider: dict[str, str] = {}
    for one in residuals:
        names = one.kind.names
        for name, above in zip(names, (*names[1:], ""), strict=True):
            logs.setdefault(name, []).append(one.log)
            wider[name] = above
    found: dict[str, dict[str, float]] = {}

    def settled(name: str) -> dict[str, float]:
        if name not in found:
            some = logs[name]
            low, high = (quantile(some, part) for part in (tail, 1 - tail))
            if wider[name]:
                above, own = settled(wider[name]), len(some) / (len(some) + LENT)
                low = own * low + (1 - own) * math.log1p(above["low"])
                high = own * high + (1 - own) * math.log1p(above["high"])
            error = statistics.median(abs(math.expm1(-log)) for log in some)
            found[name] = {"runs": len(some), "low": math.expm1(low), "high": math.expm1(high), "median": error}
        return found[name]

    for name in sorted(logs, key=lambda name: (name != "all", len(name.split()), name)):
        settled(name)
    return dict(sorted(found.items(), key=lambda one: (one[0] != "all", len(one[0].split()), one[0])))


def inside(one: ServedResidual, measure: str, kinds: Kinds | None = None, stretch: float = 0.0) -> bool:
    """Whether a run lies in the band of its kind."""
    band = band_of(one.kind, measure, kinds, stretch)
    return math.log1p(band.low) <= one.log <= math.log1p(band.high)


def left_out(
    residuals: Sequence[ServedResidual],
    measure: str,
    tail: float,
    label: Callable[[ServedResidual], str],
    stretch: float = 1.0,
) -> list[bool]:
    """Whether each run lies in the band of its kind as the runs with other labels have it."""
    labels = {label(one) for one in residuals}
    without = {name: kinds_of([one for one in residuals if label(one) != name], tail) for name in labels}
    return [inside(one, measure, without[label(one)], stretch) for one in residuals]


def best_tail(residuals: Sequence[ServedResidual], measure: str) -> float:
    """The widest tails with which the bands still hold for a model on a chip that was left out; narrower ones hold too,
    so the range is halved until it is found."""
    first, last = 0, len(TAILS) - 1
    while first < last:
        middle = (first + last) // 2
        held = left_out(residuals, measure, TAILS[middle], lambda one: one.pair)
        first, last = (first, middle) if sum(held) >= NOMINAL * len(held) else (middle + 1, last)
    return TAILS[first]


def best_stretch(residuals: Sequence[ServedResidual], measure: str, tail: float) -> float:
    """How much wider, in logarithms, bands must be to hold for a generation of chips that was left out."""
    enough = NOMINAL * len(residuals)
    for stretch in STRETCHES:
        if sum(left_out(residuals, measure, tail, lambda one: one.kind.generation, stretch)) >= enough:
            return stretch
    return STRETCHES[-1]


def coverage(residuals: Sequence[ServedResidual], measure: str) -> dict[str, Any]:
    """What `dscale validate serving` says of bands: how many runs lie in them, with each model on each chip left out of
    its own bands where the file has several, and by the bands that answers carry."""
    shipped = [inside(one, measure) for one in residuals]
    several = len({one.pair for one in residuals}) >= FEWEST_GROUPS
    outside = shipped
    if several:
        outside = left_out(residuals, measure, tables()[measure]["tail"], lambda one: one.pair)
    return covered([one.kind.names[1] for one in residuals], shipped, outside) | {"pairs_left_out": several}
