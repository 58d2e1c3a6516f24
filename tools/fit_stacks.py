"""Refit the constants of software stacks from measured training runs.

    python -m tools.fit_stacks                 # print shipped and refitted constants and the errors
    python -m tools.fit_stacks --most 60       # the fit on at most so many runs of each stack, evenly chosen
    python -m tools.fit_stacks --quick         # all of it on at most 12
    python -m tools.fit_stacks --write         # and keep them for docs/validation-training.md (`tools.list_constants`)

How is told in `tools/refit.py`. A run whose recomputation is not stated keeps the policy chosen at
the shipped constants."""

import argparse
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np

from dragonscale.errors import InputError
from dragonscale.evidence.rows import Skip, read_measured
from dragonscale.evidence.score import Scored
from dragonscale.evidence.training import predict
from dragonscale.evidence.training_rows import FORMS, RECOMPUTE, TrainingRow, run_of
from dragonscale.physics.numbers import first_number
from dragonscale.training.cost.evaluation import judge_one
from dragonscale.training.plan.stack import load_stack
from tools.list_constants import keep
from tools.refit import (
    MEASURED,
    FitRow,
    FreeConstant,
    Refit,
    free_constants,
    grouped,
    labelled,
    put,
    refit,
    responses_of,
    spread,
    to_try,
)

FILES = (MEASURED / "training.csv.gz", MEASURED / "training_single_node.csv.gz")
VALUES = 4
"""Values at which a constant is tried."""


def seconds(task: tuple[TrainingRow, Sequence[dict[str, float]]]) -> list[float]:
    """A run's expected seconds at the shipped constants, then with each set of changes; empty if it
    cannot be run."""
    row, changes = task
    try:
        run, verdict = predict(run_of(row))
    except (Skip, InputError):
        return []
    found = [first_number(verdict.seconds)]
    for change in changes:
        job = replace(run.job, stack=put(run.job.stack, change))
        found.append(first_number(judge_one(job, run.plan).seconds))
    return found


def fit_stack(name: str, rows: Sequence[TrainingRow], free: Sequence[FreeConstant], pool: ProcessPoolExecutor) -> Refit:
    """Refit one stack on its runs; those that are not possible are dropped."""
    stack = load_stack(name)
    tried = to_try(stack, free, VALUES)
    found = list(pool.map(seconds, [(row, tried[1:]) for row in rows], chunksize=8))
    kept = [row for row, times in zip(rows, found, strict=True) if times]
    labels = [FitRow(row.step_s, row.chip, row.source) for row in kept]
    responses = responses_of(labels, stack, free, tried, np.array([times for times in found if times]))

    def exact(changes: dict[str, float]) -> np.ndarray:
        return np.array([times[1] for times in pool.map(seconds, [(row, [changes]) for row in kept], chunksize=8)])

    return refit(name, responses, exact)


def read_runs(files: Sequence[Path], most: int = 0) -> dict[str, list[TrainingRow]]:
    """Runs by their stack, at most so many of each."""
    found: dict[str, list[TrainingRow]] = defaultdict(list)
    for file in files:
        for row in read_measured(file, "training runs", FORMS)[0]:
            found[row.stack].append(row)
    return {stack: spread(rows, most) for stack, rows in found.items()}


def errors_by_kind(runs: dict[str, list[TrainingRow]], pool: ProcessPoolExecutor) -> str:
    """Errors at the shipped constants, by stack, chip, format and kind of model, and of all
    published runs together."""
    rows = [row for some in runs.values() for row in some]
    times = list(pool.map(seconds, [(row, []) for row in rows], chunksize=8))
    scored = [Scored(row.id, row.source, row.step_s, found[0]) for row, found in zip(rows, times, strict=True) if found]
    published = [row for row in rows if row.stack != "megatron-deepspeed"]
    labels = labelled(rows, lambda row: f"`{row.stack}`") | labelled(
        published,
        lambda _: "**all but `megatron-deepspeed`**",
        lambda row: "recomputation not stated" if RECOMPUTE in row.marks else "recomputation stated",
        lambda row: "MoE" if row.experts else "dense",
        lambda row: dict(part.split("=") for part in row.plan.split(",")).get("dtype", "bf16"),
        lambda row: row.chip,
    )
    return grouped({"": scored}, labels)


def main() -> None:
    parser = argparse.ArgumentParser(description="Refit the constants of software stacks from measured training runs.")
    parser.add_argument("files", nargs="*", type=Path, default=FILES, metavar="FILE")
    parser.add_argument("--quick", action="store_true", help="all of it on at most 12 runs of a stack")
    parser.add_argument("--most", type=int, default=0, help="fit at most so many runs of a stack")
    parser.add_argument("--only", default="", help="only this stack")
    parser.add_argument("--write", action="store_true", help="keep it and write the page of the docs")
    options = parser.parse_args()
    runs = read_runs(options.files, 12 if options.quick else 0)
    refits: list[Refit] = []
    with ProcessPoolExecutor() as pool:
        for name, free in free_constants("stacks").items():
            if runs.get(name) and options.only in ("", name):
                refits.append(fit_stack(name, spread(runs[name], options.most), free, pool))
                print(f"{name}: {len(refits[-1].responses.rows)} runs", flush=True)
        errors = {} if options.only else {"errors": errors_by_kind(runs, pool)}
    keep("training", refits, errors, runs, options.write, bool(options.only))


if __name__ == "__main__":
    main()
