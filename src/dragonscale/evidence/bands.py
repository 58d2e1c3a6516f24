"""Bands around expected numbers from how far measured runs were from them, and whether they hold for what was left out.

Quantiles of log(measured / expected) for every kind of run (`dragonscale.training.search.error_bands`,
`dragonscale.serving.space.bands`); a kind with few runs leans on the wider kind it belongs to, as if that one lent it
`LENT` runs. Runs that share what the model gets wrong are left out together: those of one source of training runs, and
those of one model on one chip of served ones. Of these there are many, at every load and length, which all err alike: a
kind of served runs counts as so many runs as it has models on chips, times `EACH`; and of the runs of a kind with `OWN`
and more, however it leans, its band leaves between the two `BEYOND` out on each side.

Bands of training runs are calibrated (`tools/fit_bands.py`): the band that other sources give a run is widened, for
each kind by as much as four of five of its runs need (conformal prediction with whole sources left out). Widening is
on both sides; a side is then cut to a little further than the furthest of the kind's own runs, or a tenth.
"""

import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dragonscale.evidence.serving_rows import ServedRun
from dragonscale.serving.space.bands import MEASURES, ServedBand, ServedKind
from dragonscale.serving.space.bands import band_of as served_band
from dragonscale.serving.space.bands import tables as served_tables
from dragonscale.training.search.error_bands import NOMINAL, Band, band_of, narrowest, tables
from dragonscale.training.search.run_kinds import RunKind

LENT, EACH = 16.0, 2.0
OWN, BEYOND = 10, (0.05, 0.12)
TAIL, LEAST_SIDE = 0.5 * (1 - NOMINAL), 0.02
"""Of bands of training runs before they are widened: the part of the runs beyond each side, and how near a side comes
to what was expected, in logarithms."""
FEWEST_GROUPS = 5
"""Sources, or models on chips, that a file must have for bands without one of them to say anything."""

Kinds = Mapping[str, Mapping[str, float]]
BandOf = Callable[[Any, Kinds | None], Band | ServedBand]
"""The band of a kind, among bands that were fitted or those that answers carry."""


@dataclass(frozen=True)
class Residual:
    """A run: its kind, what it shares its errors with (a document, or a model on a chip), and
    log(measured / expected)."""

    kind: RunKind | ServedKind
    group: str
    log: float


def document(source: str) -> str:
    """The document of a source, without the table or release in it.

    >>> document("mosaicml/llm-foundry scripts/train/benchmarking/README.md [H100 80GB BF16]")
    'mosaicml/llm-foundry'
    >>> document("NVIDIA/dgxc-benchmarking v25.05 grok1 README"), document("Narayanan et al. SC21 Table 1")
    ('NVIDIA/dgxc-benchmarking', 'Narayanan et al. SC21 Table 1')
    """
    repository = re.match(r"[\w.-]+/[\w.-]+(?= )", source)
    return repository[0] if repository else source.partition(" [")[0]


def kinds_of(residuals: Sequence[Residual], tail: float) -> dict[str, dict[str, float]]:
    """The kinds of `errors.toml`: the runs of each, the band that leaves `tail` of them out on each side, and their
    median error."""
    logs: dict[str, list[float]] = {}
    groups: dict[str, set[str]] = {}
    wider: dict[str, str] = {}
    served = any(isinstance(run.kind, ServedKind) for run in residuals)
    for run in residuals:
        for name in run.kind.names:
            logs.setdefault(name, []).append(run.log)
            groups.setdefault(name, set()).add(run.group)
        wider |= zip(run.kind.names, (*run.kind.names[1:], ""), strict=True)
    kinds: dict[str, dict[str, float]] = {}

    def settled(name: str) -> dict[str, float]:
        if name not in kinds:
            own = logs[name]
            low, high = (quantile(own, part) for part in (tail, 1 - tail))
            if wider[name] in logs:
                size = EACH * len(groups[name]) if served else len(own)
                above, share = settled(wider[name]), size / (size + LENT)
                low = share * low + (1 - share) * math.log1p(above["low"])
                high = share * high + (1 - share) * math.log1p(above["high"])
                if served and len(own) >= OWN:
                    few, many = BEYOND
                    low = min(max(low, quantile(own, few)), quantile(own, many))
                    high = max(min(high, quantile(own, 1 - few)), quantile(own, 1 - many))
            error = statistics.median(abs(math.expm1(-log)) for log in own)
            kinds[name] = {"runs": len(own), "low": math.expm1(low), "high": math.expm1(high), "median": error}
        return kinds[name]

    return {name: settled(name) for name in sorted(logs, key=lambda name: (name != "all", len(name.split()), name))}


def quantile(values: Iterable[float], part: float) -> float:
    """The value below which `part` of them lie, between neighbours in proportion."""
    ordered = sorted(values)
    place = part * (len(ordered) + 1) - 1
    lower = min(max(math.floor(place), 0), len(ordered) - 1)
    upper = min(lower + 1, len(ordered) - 1)
    share = min(max(place - lower, 0.0), 1.0)
    return ordered[lower] * (1 - share) + ordered[upper] * share


def sides_of(names: Sequence[str], kinds: Kinds) -> tuple[float, float]:
    """The band of the narrowest of some kinds with enough runs, in logarithms, before it is widened."""
    row = kinds[narrowest(names, kinds)]
    return min(math.log1p(row["low"]), -LEAST_SIDE), max(math.log1p(row["high"]), LEAST_SIDE)


def widened_sides(sides: tuple[float, float], more: float) -> tuple[float, float]:
    """A band in logarithms made wider on both sides, or, below zero, by so much of itself narrower."""
    low, high = sides
    both = (low - more, high + more) if more > 0 else (low * (1 + more), high * (1 + more))
    return math.expm1(both[0]), math.expm1(both[1])


def widened(calibrated: Kinds) -> BandOf:
    """Bands among kinds that were fitted without a source, widened as runs of their kind need it."""

    def band(kind: RunKind, kinds: Kinds | None) -> Band:
        if kinds is None:
            return band_of(kind)
        name = narrowest(kind.names, calibrated)
        sides = sides_of(kind.names[kind.names.index(name) :], kinds)
        return Band(*widened_sides(sides, calibrated[name]["wider"]), int(calibrated[name]["runs"]), name)

    return band


def without_groups(
    residuals: Sequence[Residual], tail: float, group: Callable[[Residual], str]
) -> dict[str, dict[str, dict[str, float]]]:
    """The kinds of all runs but those of a group, by group."""
    groups = {group(run) for run in residuals}
    return {name: kinds_of([run for run in residuals if group(run) != name], tail) for name in groups}


def inside(run: Residual, band_of: BandOf, kinds: Kinds | None = None) -> bool:
    """Whether a run lies in the band of its kind."""
    band = band_of(run.kind, kinds)
    return math.log1p(band.low) <= run.log <= math.log1p(band.high)


def left_out(
    residuals: Sequence[Residual],
    tail: float,
    band_of: BandOf = band_of,
    group: Callable[[Residual], str] = lambda run: run.group,
) -> list[bool]:
    """Whether each run lies in the band of its kind as the runs of other groups have it."""
    without = without_groups(residuals, tail, group)
    return [inside(run, band_of, without[group(run)]) for run in residuals]


def band_around(measure: str, stretch: float = 0.0) -> BandOf:
    """Bands of a measure of servers; `stretch`: how much wider those of chips are of which nothing was measured,
    instead of what answers carry."""
    return lambda kind, kinds: served_band(kind, measure, kinds, stretch)


def training_coverage(residuals: Sequence[Residual]) -> dict[str, Any]:
    """What `dscale validate training` says of bands."""
    return _coverage(residuals, TAIL, band_of, widened(tables()["kinds"]), "sources_left_out")


def served_coverage(judged: Iterable[tuple[ServedRun, tuple[float, float]]]) -> dict[str, Any]:
    """What `dscale validate serving` says of bands, by measure."""
    coverage: dict[str, Any] = {}
    for name, runs in served_residuals(judged).items():
        if runs:
            around = band_around(name), band_around(name, 1.0)
            coverage[name] = _coverage(runs, served_tables()[name]["tail"], *around, "pairs_left_out")
    return coverage


def _coverage(
    residuals: Sequence[Residual], tail: float, shipped_of: BandOf, fitted_of: BandOf, key: str
) -> dict[str, Any]:
    """How many runs lie in their bands, also by kind: in those that answers carry (`shipped`), and in those of the
    others where the file has several groups to leave out (`covered`)."""
    shipped = [inside(run, shipped_of) for run in residuals]
    several = len({run.group for run in residuals}) >= FEWEST_GROUPS
    outside = left_out(residuals, tail, fitted_of) if several else shipped
    by_kind: dict[str, list[bool]] = {}
    for run, held in zip(residuals, outside, strict=True):
        for name in run.kind.reported:
            by_kind.setdefault(name, []).append(held)
    return {
        "nominal": NOMINAL,
        "covered": _share(outside),
        "shipped": _share(shipped),
        "by_kind": {name: {"rows": len(held), "covered": _share(held)} for name, held in sorted(by_kind.items())},
        key: several,
    }


def _share(held: Sequence[bool]) -> float | None:
    return sum(held) / len(held) if held else None


def served_residuals(judged: Iterable[tuple[ServedRun, tuple[float, float]]]) -> dict[str, list[Residual]]:
    """How far measured servers were from what was expected of them: TPOT, TTFT, and tokens per second, which follow
    from both in a closed loop."""
    residuals: dict[str, list[Residual]] = {measure: [] for measure in MEASURES}
    for run, (first, each) in judged:
        row, kind = run.row, ServedKind(run.row.chip, run.engine.name, run.moe)
        pairs = {"tpot": (row.tpot_s, each)}
        if not run.recipe.cold:
            seen, expected = (
                ttft + (row.output - 1) * tpot for ttft, tpot in ((row.ttft_s, row.tpot_s), (first, each))
            )
            pairs |= {"ttft": (row.ttft_s, first), "tokens": (expected, seen)}
        for measure, (measured, predicted) in pairs.items():
            log = math.log(measured / predicted)
            residuals[measure].append(Residual(kind, f"{row.model} {kind.chip}", log))
    return residuals
