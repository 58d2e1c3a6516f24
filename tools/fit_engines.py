"""Refit the constants of serving engines from measured inference and serving runs.

    python -m tools.fit_engines                # print shipped and refitted constants and the errors
    python -m tools.fit_engines --quick        # on every eighth run
    python -m tools.fit_engines --write        # and put the tables into docs/validation-inference.md and -serving.md

How is told in `tools/refit.py`. Engines that served clients are fitted on time per output token and time to first token
together; the others on latencies and rates, where a rate counts as the seconds of a token.
"""

import argparse
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import numpy as np

from dragonscale.errors import InputError
from dragonscale.evidence.inference_predict import predict
from dragonscale.evidence.inference_rows import FORMS as INFERENCE
from dragonscale.evidence.inference_rows import LATENCIES, InferenceRow, case_of
from dragonscale.evidence.rows import Skip, read_measured
from dragonscale.evidence.score import Scored
from dragonscale.evidence.serving import predict_all
from dragonscale.evidence.serving_rows import FORMS as SERVING
from dragonscale.evidence.serving_rows import ServingRow, run_of
from dragonscale.serving.engine import load_engine
from tools.refit import (
    MEASURED,
    ROOT,
    FitRow,
    FreeConstant,
    Refit,
    constants_table,
    errors_table,
    free_constants,
    grouped,
    put,
    refit,
    responses_of,
    to_try,
    write_block,
)

PAGES = {name: ROOT / "docs" / f"validation-{name}.md" for name in ("inference", "serving")}
VALUES = {"inference": 4, "serving": 3}
"""Values at which a constant is tried; a served run is simulated for each."""
Task = tuple[str, Sequence[InferenceRow] | Sequence[ServingRow], dict[str, float]]


def seconds(task: Task) -> np.ndarray:
    """Predictions of runs with some constants changed, one line for each kind of number; NaN where a run is not possible."""
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


def labels_of(kind: str, rows: Sequence[InferenceRow] | Sequence[ServingRow]) -> list[FitRow]:
    """What was measured, in the order of `seconds`: all of a kind of number, then all of the next."""
    if kind == "inference":
        return [
            FitRow(row.measured if row.scenario in LATENCIES else 1 / row.measured, row.chip, row.source)
            for row in rows
        ]
    each = [FitRow(row.tpot_s, row.chip, row.source, "TPOT") for row in rows]
    return each + [FitRow(row.ttft_s, row.chip, row.source, "TTFT") for row in rows]


def fit_engine(
    kind: str, name: str, rows: Sequence[InferenceRow] | Sequence[ServingRow], free: Sequence[FreeConstant],
    pool: ProcessPoolExecutor,
) -> Refit:  # fmt: skip
    """Refit one engine on its runs."""
    engine = load_engine(name)
    tried = to_try(engine, free, VALUES[kind])
    tables = [found.ravel() for found in pool.map(seconds, [(kind, rows, changes) for changes in tried])]
    whole = np.array(tables).T
    known = np.isfinite(whole).all(axis=1)
    labels = [row for row, there in zip(labels_of(kind, rows), known, strict=True) if there]
    responses = responses_of(labels, engine, free, tried, whole[known])
    return refit(name, responses, lambda changes: seconds((kind, rows, changes)).ravel()[known])


def read_runs(step: int = 1) -> dict[str, dict[str, list]]:
    """Typed rows by kind and engine; every `step`-th of each engine."""
    files = {"inference": (INFERENCE, "inference.csv.gz"), "serving": (SERVING, "serving.csv.gz")}
    found: dict[str, dict[str, list]] = {}
    for kind, (forms, file) in files.items():
        engines: dict[str, list] = defaultdict(list)
        for row in read_measured(MEASURED / file, f"{kind} runs", forms)[0]:
            engines[row.engine].append(row)
        found[kind] = {engine: rows[::step] for engine, rows in engines.items()}
    return found


def errors_by_kind(kind: str, engines: dict[str, list], pool: ProcessPoolExecutor) -> dict[str, str]:
    """Errors at the shipped constants; rates are compared as rates."""
    rows = [row for some in engines.values() for row in some]
    shares = [[row for row in rows if hash_of(row) % 8 == part] for part in range(8)]
    found = list(pool.map(seconds, [(kind, share, {}) for share in shares if share]))
    if kind == "inference":
        return {"errors": grouped(*_inference_labels([s for s in shares if s], found), "")}
    scored, labels = {}, defaultdict(list)
    for share, times in zip([share for share in shares if share], found, strict=True):
        for place, row in enumerate(share):
            for what, line, measured in (("TPOT", 0, row.tpot_s), ("TTFT", 1, row.ttft_s)):
                if np.isfinite(times[line, place]):
                    one = Scored(row.id, row.source, measured, float(times[line, place]))
                    scored.setdefault(what, []).append(one)
    for row in rows:
        labels["**all runs**"].append(row.id)
        labels["recipe stated" if not row.inferred else "a setting of the recipe inferred"].append(row.id)
        labels[f"{row.engine}"].append(row.id)
    for row in sorted(rows, key=lambda row: (row.chip, row.model)):
        labels[row.chip].append(row.id)
    for row in sorted(rows, key=lambda row: row.model):
        labels[row.model].append(row.id)
    return {f"errors {what}": grouped(some, labels, what) for what, some in scored.items()}


def hash_of(row: InferenceRow | ServingRow) -> int:
    """Runs of one deployment go to one worker, which builds its step table once."""
    return sum(map(ord, f"{row.model} {row.chip} {row.plan}"))


def _inference_labels(shares: Sequence[Sequence[InferenceRow]], found: Sequence[np.ndarray]):
    scored, labels = [], defaultdict(list)
    rows = [
        (row, time)
        for share, times in zip(shares, found, strict=True)
        for row, time in zip(share, times[0], strict=True)
    ]
    for row, time in rows:
        if np.isfinite(time):
            expected = float(time if row.scenario in LATENCIES else 1 / time)
            scored.append(Scored(row.id, row.source, row.measured, expected))
        labels["**all runs**"].append(row.id)
        labels["latencies" if row.scenario in LATENCIES else "rates"].append(row.id)
    for key in ("scenario", "engine", "chip", "weights"):
        for row, _ in sorted(rows, key=lambda pair: getattr(pair[0], key)):
            labels[f"`{getattr(row, key)}`" if key == "engine" else getattr(row, key)].append(row.id)
    for row, _ in rows:
        labels["mixture of experts" if row.experts else "dense"].append(row.id)
    return scored, labels


def main() -> None:
    parser = argparse.ArgumentParser(description="Refit the constants of serving engines from measured runs.")
    parser.add_argument("--quick", action="store_true", help="every eighth run")
    parser.add_argument("--only", default="", help="only this engine")
    parser.add_argument("--write", action="store_true", help="put the tables into the pages of the docs")
    options = parser.parse_args()
    runs = read_runs(8 if options.quick else 1)
    with ProcessPoolExecutor() as pool:
        for kind, engines in runs.items():
            refits: list[Refit] = []
            for name, free in free_constants("engines").items():
                # vLLM on TPUs is too few latencies to fit; engines that serve clients are fitted on those.
                if engines.get(name) and options.only in ("", name) and (kind == "serving" or name != "vllm"):
                    refits.append(fit_engine(kind, name, engines[name], free, pool))
                    print(f"{name}: {len(refits[-1].responses.rows)} numbers", flush=True)
            tables = {"constants": constants_table(refits), "held out": errors_table(refits)} if refits else {}
            if not options.only:
                tables |= errors_by_kind(kind, engines, pool)
            for name, text in tables.items():
                print(f"\n{text}")
                if options.write:
                    write_block(PAGES[kind], name, text)


if __name__ == "__main__":
    main()
