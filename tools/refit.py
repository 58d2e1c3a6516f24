"""Refit constants of stacks and engines from measured runs, and say what they are worth on runs
left out.

The constants of a stack or engine that no kernel measurement gives are *free*, each within bounds
(`free_constants.toml`). Every run is predicted at the shipped constants and, one constant at a
time, at a few values within its bounds. A predicted time is nearly a sum of parts, so that the
change of several constants is taken to be the sum of their changes:

t(c) = t(shipped) + Σ over constants j of [t_j(c_j) − t(shipped)]         t_j interpolated between
its values

With this table any subset of the runs is fitted in milliseconds: the mean |log(predicted /
measured)| is minimised one constant at a time, over and over, with a weak pull towards neutral
values (it decides what the runs leave open). The shipped constants are neither where a search
begins nor what pulls, since they were settled with all runs in sight. The constants fitted on all
runs are then put into the model itself; the error reported for them is exact.

Held-out errors are those of runs that the fit did not see: every second run, all runs of one chip,
all of one source. Nothing here changes what is shipped."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dragonscale.evidence.score import Scored, statistics_of

ROOT = Path(__file__).parents[1]
MEASURED = ROOT / "docs" / "data" / "measured"
POINTS = 33
SWEEPS = 6
PULL = 0.01
"""Added to the error for a constant that moves from its neutral value across its whole range."""


@dataclass(frozen=True)
class FreeConstant:
    """A constant by its path in the record, `host.step_s`, and the bounds within which it is looked
    for."""

    path: str
    low: float
    high: float


@dataclass(frozen=True)
class FitRow:
    """A measured number, the labels by which it can be left out, and `what` it is (step, TPOT, TTFT
    …)."""

    measured: float
    chip: str
    source: str
    what: str = ""


@dataclass(frozen=True)
class Responses:
    """Predictions of runs: at the shipped constants, and with one constant at each of its
    `values`."""

    rows: tuple[FitRow, ...]
    free: tuple[FreeConstant, ...]
    shipped: tuple[float, ...]
    neutral: tuple[float, ...]
    """Those of software of which nothing is known: the record's own defaults, within the bounds."""
    base: np.ndarray
    values: tuple[np.ndarray, ...]
    table: tuple[np.ndarray, ...]
    """For each constant, runs x values."""


def free_constants(kind: str) -> dict[str, tuple[FreeConstant, ...]]:
    """What is free for each stack or engine."""
    tables = tomllib.loads((Path(__file__).parent / "free_constants.toml").read_text(encoding="utf-8"))
    return {
        name: tuple(FreeConstant(path, float(low), float(high)) for path, (low, high) in table.items())
        for name, table in tables[kind].items()
    }


def spread(rows: Sequence[Any], most: int) -> list[Any]:
    """At most so many rows (0: all), evenly from first to last."""
    return list(rows[:: -(-len(rows) // most)]) if most else list(rows)


def get(record: Any, path: str) -> float:
    """A constant of a stack or engine."""
    for part in path.split("."):
        record = getattr(record, part)
    return float(record)


def put(record: Any, changes: Mapping[str, float]) -> Any:
    """The record with some constants changed."""
    for path, value in changes.items():
        group, _, name = path.rpartition(".")
        inner = msgspec.structs.replace(getattr(record, group), **{name: value}) if group else value
        record = msgspec.structs.replace(record, **{group or name: inner})
    return record


def to_try(record: Any, free: Sequence[FreeConstant], points: int) -> list[dict[str, float]]:
    """What a run is predicted with: nothing changed, then each constant in turn at the ends of its
    range, evenly between them and at the shipped value."""
    found: list[dict[str, float]] = [{}]
    for one in free:
        values = np.unique([*np.linspace(one.low, one.high, points), get(record, one.path)])
        found += [{one.path: float(value)} for value in values]
    return found


def responses_of(
    rows: Sequence[FitRow],
    record: Any,
    free: Sequence[FreeConstant],
    tried: Sequence[dict[str, float]],
    times: np.ndarray,
) -> Responses:
    """The table of runs from their predicted `times`, runs x what was tried."""
    where = [[place for place, change in enumerate(tried) if one.path in change] for one in free]
    values = [np.array([tried[place][one.path] for place in some]) for one, some in zip(free, where, strict=True)]
    shipped = tuple(get(record, one.path) for one in free)
    parts = tuple(times[:, some] for some in where)
    plain = type(record)()
    neutral = tuple(min(max(get(plain, one.path), one.low), one.high) for one in free)
    return Responses(tuple(rows), tuple(free), shipped, neutral, times[:, 0], tuple(values), parts)


def predicted(responses: Responses, constants: Sequence[float], where: np.ndarray) -> np.ndarray:
    """Seconds of some runs with these constants."""
    total = responses.base[where].copy()
    for value, shipped, values, table in zip(
        constants, responses.shipped, responses.values, responses.table, strict=True
    ):
        if value != shipped:
            total += interpolated(value, values, table[where]) - responses.base[where]
    return np.maximum(total, 0.05 * responses.base[where])


def interpolated(value: float, values: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Each run's time at a value between two of those tried."""
    after = int(np.clip(np.searchsorted(values, value), 1, len(values) - 1))
    part = (value - values[after - 1]) / (values[after] - values[after - 1])
    return table[:, after - 1] * (1 - part) + table[:, after] * part


def errors(responses: Responses, constants: Sequence[float], where: np.ndarray) -> np.ndarray:
    """predicted / measured − 1."""
    measured = np.array([responses.rows[place].measured for place in where])
    return predicted(responses, constants, where) / measured - 1


def fit(responses: Responses, where: np.ndarray) -> tuple[float, ...]:
    """The constants with the least mean |log error| on some runs, one constant at a time until none
    moves; the best of two searches, from the neutral constants and from the middle of their ranges.
    The shipped ones, which were settled with all runs in sight, are not looked at."""
    centres = tuple((free.low + free.high) / 2 for free in responses.free)

    def loss(trial: Sequence[float]) -> float:
        moved = sum(
            abs(value - start) / (free.high - free.low)
            for value, start, free in zip(trial, responses.neutral, responses.free, strict=True)
        )
        return float(np.abs(np.log1p(errors(responses, trial, where))).mean()) + PULL * moved

    found = [_descend(start, responses.free, loss) for start in (responses.neutral, centres)]
    return min(found, key=loss)


def _descend(
    start: Sequence[float], free: Sequence[FreeConstant], loss: Callable[[Sequence[float]], float]
) -> tuple[float, ...]:
    constants = list(start)
    for _ in range(SWEEPS):
        before = list(constants)
        for place, one in enumerate(free):
            tried = [*np.linspace(one.low, one.high, POINTS), constants[place]]
            trials = [[*constants[:place], float(value), *constants[place + 1 :]] for value in tried]
            constants = min(trials, key=loss)
        if constants == before:
            break
    return tuple(constants)


def held_out(responses: Responses, label: Callable[[int, FitRow], str]) -> np.ndarray:
    """Errors of runs by constants that were fitted on runs with other labels; empty if all have the
    same."""
    labels = np.array([label(place, row) for place, row in enumerate(responses.rows)])
    found = np.zeros(len(labels))
    if len(set(labels)) < 2:
        return np.zeros(0)
    for name in sorted(set(labels)):
        test, train = np.nonzero(labels == name)[0], np.nonzero(labels != name)[0]
        found[test] = errors(responses, fit(responses, train), test)
    return found


FOLDS: dict[str, Callable[[int, FitRow], str]] = {
    "every second": lambda place, _: str(place % 2),
    "chips": lambda _, row: row.chip,
    "sources": lambda _, row: row.source,
}


@dataclass(frozen=True)
class Refit:
    """What a fit of one stack or engine found."""

    name: str
    responses: Responses
    constants: tuple[float, ...]
    exact: np.ndarray
    """Errors of the model itself with the refitted constants."""
    left_out: dict[str, np.ndarray]


def refit(name: str, responses: Responses, exact: Callable[[dict[str, float]], np.ndarray]) -> Refit:
    """Fit on all runs, put the constants into the model, and cross-validate; `exact` predicts with
    changed constants."""
    everything = np.arange(len(responses.rows))
    constants = fit(responses, everything)
    changes = {free.path: value for free, value in zip(responses.free, constants, strict=True)}
    measured = np.array([row.measured for row in responses.rows])
    left_out = {fold: held_out(responses, label) for fold, label in FOLDS.items()}
    return Refit(name, responses, constants, exact(changes) / measured - 1, left_out)


def shown(found: np.ndarray) -> str:
    """Median and mean error."""
    return f"{np.median(np.abs(found)):.1%}, {np.mean(np.abs(found)):.1%}" if len(found) else "–"


def lines_of(found: Refit) -> list[tuple[str, int, list[str]]]:
    """For each kind of number (TPOT, TTFT …) how many there are, and its errors: shipped, refitted, and on runs left
    out."""
    lines = []
    for what in dict.fromkeys(row.what for row in found.responses.rows):
        where = np.array([place for place, row in enumerate(found.responses.rows) if row.what == what])
        shipped = shown(errors(found.responses, found.responses.shipped, where))
        folds = [shown(seen[where] if len(seen) else seen) for seen in found.left_out.values()]
        lines.append((what, len(where), [shipped, shown(found.exact[where]), *folds]))
    return lines


def labelled(rows: Sequence[Any], *keys: Callable[[Any], str]) -> dict[str, list[str]]:
    """Ids of typed rows under the labels that each key gives them (none: an empty one), one key after the other."""
    found: dict[str, list[str]] = {}
    for key in keys:
        for row in sorted(rows, key=key):
            if label := key(row):
                found.setdefault(label, []).append(row.id)
    return found


def grouped(series: Mapping[str, Sequence[Scored]], labels: Mapping[str, Sequence[str]]) -> str:
    """A table of errors: a line for each label, and median, mean and bias for each series of scored
    rows."""
    heads = " | ".join(f"{name} median | mean | bias".strip() for name in series)
    lines = [f"| | runs | {heads} |", "|---|---|" + "---|---|---|" * len(series)]
    for label, ids in labels.items():
        known = set(ids)
        found = [statistics_of([row for row in rows if row.id in known]) for rows in series.values()]
        if found[0]["rows"]:
            cells = " | ".join(
                f"{one['median_ape']:.1%} | {one['mape']:.1%} | {one['bias']:+.1%}" if one["rows"] else "– | – | –"
                for one in found
            )
            lines.append(f"| {label} | {found[0]['rows']} | {cells} |")
    return "\n".join(lines)
