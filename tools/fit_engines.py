"""Refit the constants of serving engines from measured inference and serving runs.

    python -m tools.fit_engines                # print shipped and refitted constants and the errors
    python -m tools.fit_engines serving --most 100       # of served clients, on at most so many runs of each engine
    python -m tools.fit_engines --quick        # all of it on at most 12
    python -m tools.fit_engines --errors --write         # fit nothing: the errors at the shipped constants
    python -m tools.fit_engines serving --halves --write   # constants of half of the (model, chip) pairs on the other
    half python -m tools.fit_engines --write        # and keep them for the pages of the docs (`tools.list_constants`)

How is told in `tools/refit.py`. Engines that served clients are fitted on time per output token and
time to first token together; the others on latencies and rates, where a rate counts as the seconds
of a token."""

import argparse
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from dragonscale.errors import InputError
from dragonscale.evidence.inference import predict
from dragonscale.evidence.inference_rows import FORMS as INFERENCE
from dragonscale.evidence.inference_rows import LATENCIES, InferenceRow, case_of
from dragonscale.evidence.rows import Skip, read_measured
from dragonscale.evidence.score import Scored
from dragonscale.evidence.serving import predict_all
from dragonscale.evidence.serving_rows import FORMS as SERVING
from dragonscale.evidence.serving_rows import ServingRow, run_of
from dragonscale.models import load_model
from dragonscale.serving.engine.engine import load_engine
from dragonscale.serving.space.bands import is_moe
from tools.halves import halves_table, scored_halves
from tools.list_constants import keep
from tools.refit import (
    MEASURED,
    FitRow,
    FreeConstant,
    Refit,
    Responses,
    free_constants,
    grouped,
    labelled,
    put,
    refit,
    responses_of,
    spread,
    to_try,
)

VALUES = {"inference": 4, "serving": 3}
"""Values at which a constant is tried; a served run is simulated for each."""
Rows = Sequence[Any]
"""Typed rows of one kind."""
Task = tuple[str, Rows, dict[str, float]]


def seconds(task: Task) -> np.ndarray:
    """Predictions of runs with some constants changed, one line for each kind of number; NaN where
    a run is not possible."""
    kind, rows, changes = task
    return _latencies(rows, changes) if kind == "inference" else _served(rows, changes)


def _latencies(rows: Sequence[InferenceRow], changes: dict[str, float]) -> np.ndarray:
    found = np.full((1, len(rows)), np.nan)
    for place, row in enumerate(rows):
        try:
            case = case_of(row)
            taken = predict(replace(case, engine=put(case.engine, changes)))
        except (Skip, InputError):
            continue
        found[0, place] = taken if row.scenario in LATENCIES else 1 / taken
    return found


def _served(rows: Sequence[ServingRow], changes: dict[str, float]) -> np.ndarray:
    found = np.full((2, len(rows)), np.nan)
    runs = [run_of(row) for row in rows]
    runs = [replace(run, engine=put(run.engine, changes)) for run in runs]
    places = {run.row.id: place for place, run in enumerate(runs)}
    for run, (ttft, tpot) in predict_all(runs, []):
        found[:, places[run.row.id]] = tpot, np.nan if run.recipe.cold else ttft
    return found


def labels_of(kind: str, rows: Rows) -> list[FitRow]:
    """What was measured, in the order of `seconds`: all of a kind of number, then all of the
    next."""
    if kind == "inference":
        return [
            FitRow(row.measured if row.scenario in LATENCIES else 1 / row.measured, row.chip, row.source)
            for row in rows
        ]
    each = [FitRow(row.tpot_s, row.chip, row.source, "TPOT") for row in rows]
    return each + [FitRow(row.ttft_s, row.chip, row.source, "TTFT") for row in rows]


def fit_engine(
    kind: str,
    name: str,
    rows: Rows,
    free: Sequence[FreeConstant],
    pool: ProcessPoolExecutor,
) -> Refit:
    """Refit one engine on its runs."""
    responses, known = tabulated(kind, name, rows, free, pool)
    return refit(name, responses, lambda changes: seconds((kind, rows, changes)).ravel()[known])


def tabulated(
    kind: str, name: str, rows: Rows, free: Sequence[FreeConstant], pool: ProcessPoolExecutor
) -> tuple[Responses, np.ndarray]:
    """The numbers of an engine's runs with each constant at a few values, and which of all numbers these are."""
    engine = load_engine(name)
    tried = to_try(engine, free, VALUES[kind])
    tables = [found.ravel() for found in pool.map(seconds, [(kind, rows, changes) for changes in tried])]
    whole = np.array(tables).T
    known = np.flatnonzero(np.isfinite(whole).all(axis=1))
    every = labels_of(kind, rows)
    return responses_of([every[place] for place in known], engine, free, tried, whole[known]), known


def read_runs(most: int = 0) -> dict[str, dict[str, list]]:
    """Typed rows by kind and engine, at most so many of each engine."""
    files = {"inference": (INFERENCE, "inference.csv.gz"), "serving": (SERVING, "serving.csv.gz")}
    found: dict[str, dict[str, list]] = {}
    for kind, (forms, file) in files.items():
        engines: dict[str, list] = defaultdict(list)
        for row in read_measured(MEASURED / file, f"{kind} runs", forms)[0]:
            engines[row.engine].append(row)
        found[kind] = {engine: spread(rows, most) for engine, rows in engines.items()}
    return found


def errors_by_kind(kind: str, rows: Rows, pool: ProcessPoolExecutor) -> str:
    """Errors at the shipped constants; rates are compared as rates."""
    # Runs of one deployment go to one worker, which builds its step table once.
    parts = labelled(rows, lambda row: str(sum(map(ord, f"{row.model} {row.chip} {row.plan}")) % 8))
    shares = [[row for row in rows if row.id in set(ids)] for ids in parts.values()]
    series: dict[str, list[Scored]] = defaultdict(list)
    for share, found in zip(shares, pool.map(seconds, [(kind, share, {}) for share in shares]), strict=True):
        for label, row, time in zip(labels_of(kind, share), [*share, *share], found.ravel(), strict=False):
            rate = kind == "inference" and row.scenario not in LATENCIES
            pair = (1 / label.measured, 1 / time) if rate else (label.measured, time)
            if np.isfinite(time):
                series[label.what].append(Scored(row.id, row.source, pair[0], float(pair[1])))
    return grouped(series, labelled(rows, *LABELS[kind]))


def stated(label: Callable[[Any], str]) -> Callable[[Any], str]:
    """The label of rows with nothing inferred from results; none of the others."""
    return lambda row: "" if row.inferred else label(row)


LABELS: dict[str, tuple[Callable[[Any], str], ...]] = {
    "inference": (
        lambda _: "**all runs**",
        lambda row: "latencies" if row.scenario in LATENCIES else "rates",
        lambda row: row.scenario.replace("_", " "),
        lambda row: f"`{row.engine}`",
        lambda row: "split chosen by the planner" if not row.plan else "split stated",
        lambda row: "MoE" if row.experts else "dense",
        lambda row: row.weights,
        lambda row: row.chip,
    ),
    "serving": (
        lambda row: "apart: a setting inferred from results" if row.inferred else "**launch stated**",
        lambda row: "multi-token prediction (apart)" if "acceptance" in row.inferred else "",
        stated(lambda row: "MoE" if is_moe(load_model(row.model)) else "dense"),
        stated(lambda row: f"`{row.engine}`"),
        stated(lambda row: row.chip),
        stated(lambda row: row.model),
    ),
}


def write_halves(engines: dict[str, list], most: int, write: bool, pool: ProcessPoolExecutor) -> None:
    """Constants of half of the runs scored on the other half."""
    free = {name: own for name, own in free_constants("engines").items() if engines.get(name)}
    served = {name: engines[name] for name in free}

    def responses(name: str, rows: Rows, own: Sequence[FreeConstant]) -> Responses:
        return tabulated("serving", name, rows, own, pool)[0]

    series, told = scored_halves(served, free, most, responses, seconds, pool)
    text = halves_table(series, [row for rows in served.values() for row in rows])
    print("\n".join(told))
    keep("serving", [], {"halves": text}, served, write)


def main() -> None:
    parser = argparse.ArgumentParser(description="Refit the constants of serving engines from measured runs.")
    parser.add_argument("kinds", nargs="*", default=[*VALUES], metavar="inference|serving")
    parser.add_argument("--quick", action="store_true", help="all of it on at most 12 runs of an engine")
    parser.add_argument("--most", type=int, default=0, help="fit at most so many runs of an engine")
    parser.add_argument("--only", default="", help="only this engine")
    parser.add_argument("--write", action="store_true", help="keep it and write the pages of the docs")
    parser.add_argument("--errors", action="store_true", help="fit nothing: the errors at the shipped constants")
    parser.add_argument(
        "--halves", action="store_true", help="settle on half of the (model, chip) pairs, score the other"
    )
    options = parser.parse_args()
    runs = read_runs(12 if options.quick else 0)
    with ProcessPoolExecutor() as pool:
        if options.halves:
            write_halves(runs["serving"], options.most or 40, options.write, pool)
            return
        for kind in options.kinds:
            engines = runs[kind]
            refits: list[Refit] = []
            for name, free in free_constants("engines").items() if not options.errors else ():
                # vLLM on TPUs is too few latencies to fit; engines that serve clients are fitted on those.
                if engines.get(name) and options.only in ("", name) and (kind == "serving" or name != "vllm"):
                    refits.append(fit_engine(kind, name, spread(engines[name], options.most), free, pool))
                    print(f"{name}: {len(refits[-1].responses.rows)} numbers", flush=True)
            every = [row for some in engines.values() for row in some]
            errors = {} if options.only else {"errors": errors_by_kind(kind, every, pool)}
            keep(kind, refits, errors, engines, options.write, bool(options.only))


if __name__ == "__main__":
    main()
