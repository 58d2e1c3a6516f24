"""The recommended plan beside the best measured one: `dscale validate training FILE --search`.

For every job of a file (a model, a slice, a batch, a sequence, a dtype, the family of a stack) the search of `dscale
train` recommends a plan; its expected seconds over those of the quickest measured run of the job say whether the
recommendation can be believed. A ratio far below one means that the planner promises what nobody has reached. It is the
product of what the planner says the other plan gains (`gain`) and of how far it was off for the measured one."""

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from dragonscale.evidence.training_rows import MeasuredRun
from dragonscale.training.bands import family
from dragonscale.training.evaluation import first, judge_one
from dragonscale.training.plan import Plan
from dragonscale.training.search import search
from dragonscale.training.space import Space

SHORT = 8192
"""Sequences up to this long are trained without context parallelism."""

JobProgress = Callable[[int, int], None]


def jobs_of(runs: Sequence[MeasuredRun]) -> list[list[MeasuredRun]]:
    """Runs of the same job together, in the order of the file."""
    groups: dict[tuple[Any, ...], list[MeasuredRun]] = {}
    for run in runs:
        job, network = run.job, run.job.slice.chip.network
        words = job.batch, job.sequence, run.plan.dtype, family(job.stack.name)
        model = job.model.name.lower(), job.model.n_layers, job.model.d_model
        groups.setdefault((*model, str(job.slice), network, *words), []).append(run)
    return list(groups.values())


def searched(runs: Sequence[MeasuredRun], most: int = 0, progress: JobProgress | None = None) -> dict[str, Any]:
    """Ratios of the recommended plan's expected seconds to the best measured ones, over all jobs or `most` of them,
    evenly chosen; `simple` is the part of jobs with short sequences whose plan does without context parallelism."""
    jobs = jobs_of(runs)
    if most and most < len(jobs):
        jobs = [jobs[place * len(jobs) // most] for place in range(most)]
    rows: list[dict[str, Any]] = []
    for place, group in enumerate(jobs):
        if progress is not None:
            progress(place, len(jobs))
        rows.append(_laid_beside(group))
    ratios = sorted(row["ratio"] for row in rows if row["ratio"])
    short = [row["context"] == 1 for row in rows if row["plan"] and row["seq"] <= SHORT]
    tenth = ratios[int(0.1 * (len(ratios) - 1))] if ratios else None
    gains = [row["gain"] for row in rows if row["gain"]]
    return {
        "jobs": len(jobs),
        "median_ratio": statistics.median(ratios) if ratios else None,
        "p10_ratio": tenth,
        "median_gain": statistics.median(gains) if gains else None,
        "simple": sum(short) / len(short) if short else None,
        "without_plan": sum(not row["plan"] for row in rows),
        "rows": rows,
    }


def _laid_beside(group: Sequence[MeasuredRun]) -> dict[str, Any]:
    best = min(group, key=lambda run: run.row.step_s)
    job = best.job
    found = search(job, Space(words=Plan(dtype=best.plan.dtype)))
    plan = found.best[0].plan if found.best else None
    seconds = found.best[0].seconds if found.best else None
    return {
        "model": job.model.name,
        "slice": str(job.slice),
        "batch": job.batch,
        "seq": job.sequence,
        "stack": job.stack.name,
        "dtype": best.plan.dtype,
        "measured_s": best.row.step_s,
        "measured_plan": str(best.plan),
        "plan": str(plan) if plan else None,
        "expected_s": seconds,
        "context": plan.context if plan else None,
        "ratio": seconds / best.row.step_s if seconds else None,
        "gain": seconds / first(judge_one(job, best.plan).seconds) if seconds else None,
    }
