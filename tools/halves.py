"""Constants of served engines settled on half of the (model, chip) pairs and scored on the other half, both ways.

    python -m tools.fit_engines serving --halves [--most 40] [--write]

A pair belongs to one half or the other by a hash of its name, so that no run of a model on a chip is both fitted and
scored. Each engine's free constants are fitted as in `tools/refit.py` on at most so many runs of a half; the other half
is then predicted whole, by the model itself."""

import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np

from dragonscale.evidence.score import Scored
from dragonscale.evidence.serving_rows import ServingRow, run_of
from tools.refit import FreeConstant, Responses, fit, grouped, labelled, spread

Predict = Callable[[tuple[str, Sequence[Any], dict[str, float]]], np.ndarray]
EACH = 4
"""Runs of a deployment that are fitted."""
SHARES = 8
"""Parts into which the runs of a half are dealt for the workers, whole deployments together."""


def half_of(row: ServingRow) -> int:
    """0 or 1 for a model on a chip."""
    return zlib.crc32(f"{row.model} {row.chip}".encode()) & 1


def few_deployments(rows: Sequence[ServingRow], most: int) -> list[ServingRow]:
    """At most so many runs: up to four of a deployment, evenly from the first to the last, because its step times are
    tabulated once for all of them."""
    deployed: dict[tuple[str, ...], list[ServingRow]] = defaultdict(list)
    for row in rows:
        deployed[(row.model, row.chip, row.plan)].append(row)
    some = [spread(own, EACH) for own in deployed.values()]
    return [row for own in spread(some, max(most // EACH, 1)) for row in own]


def settled(responses: Responses) -> dict[str, float]:
    """The constants fitted on all these runs."""
    values = fit(responses, np.arange(len(responses.rows)))
    return {one.path: float(value) for one, value in zip(responses.free, values, strict=True)}


def scored_halves(
    engines: Mapping[str, Sequence[ServingRow]],
    free: Mapping[str, Sequence[FreeConstant]],
    most: int,
    responses_of: Callable[[str, Sequence[ServingRow], Sequence[FreeConstant]], Responses],
    predict: Predict,
    pool: Executor,
) -> tuple[dict[str, list[Scored]], list[str]]:
    """Every run by the constants of the half that it is not in, and what these were."""
    tasks, told = [], []
    for name, rows in engines.items():
        for side in (0, 1):
            train, test = ([row for row in rows if (half_of(row) == side) == own] for own in (True, False))
            if train and test:
                chosen = few_deployments(train, most)
                constants = settled(responses_of(name, chosen, free[name]))
                shown = ", ".join(f"{path} {value:.3g}" for path, value in constants.items())
                told.append(f"{name}, settled on {len(chosen)} runs of half {side}: {shown}")
                shares = defaultdict(list)
                for row in test:
                    shares[zlib.crc32(f"{row.model} {row.chip} {row.plan}".encode()) % SHARES].append(row)
                tasks += [("serving", share, constants) for share in shares.values()]
    series: dict[str, list[Scored]] = {"TPOT": [], "TTFT": []}
    for (_, rows, _), (tpot, ttft) in zip(tasks, pool.map(predict, tasks), strict=True):
        for row, each, first in zip(rows, tpot, ttft, strict=True):
            for what, measured, seconds in (("TPOT", row.tpot_s, each), ("TTFT", row.ttft_s, first)):
                if np.isfinite(seconds):
                    series[what].append(Scored(row.id, row.source, measured, float(seconds)))
    return series, told


def halves_table(series: Mapping[str, Sequence[Scored]], rows: Sequence[ServingRow]) -> str:
    """Errors on the half that was left out."""
    labels = (
        lambda _: "**all runs**",
        lambda row: "MoE" if run_of(row).moe else "dense",
        lambda row: f"`{row.engine}`",
    )
    return grouped(series, labelled(rows, *labels))
