"""Scoring expected step times and memory against measured training runs: `dscale validate training FILE`.

With `--search` the recommended plan is laid beside the best measured one: for every job of a file (a model, a slice, a
batch, a sequence, a dtype, the family of a stack) the search of `dscale train` recommends a plan; its expected seconds
over those of the quickest measured run of the job say whether the recommendation can be believed. A ratio far below one
means that the planner promises what nobody has reached. It is the product of what the planner says the other plan gains
(`gain`) and of how far it was off for the measured one. The search is of what that run could have been: its software
and numerics, and what it recomputed, where its source says so. Benchmarks often fix recompute for a whole table, and
what less of it would have gained nobody has measured."""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from dragonscale.evidence.bands import Residual, document, training_coverage
from dragonscale.evidence.choices import summary, training_choices
from dragonscale.evidence.rows import attempt, read_cases, sound
from dragonscale.evidence.score import Scored, ScoreReport, report_of, statistics_of, worst_of
from dragonscale.evidence.training_rows import FORMS, RECOMPUTE, TrainingRun, run_of
from dragonscale.physics.numbers import first_number
from dragonscale.training.cost.evaluation import Verdict, judge_one
from dragonscale.training.plan.auto import AUTO
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.stack import load_stack
from dragonscale.training.search.run_kinds import family, kind_of
from dragonscale.training.search.space import Space
from dragonscale.training.search.stack_search import search_stacks

SHORT = 8192
"""Sequences up to this long are trained without context parallelism."""

JobProgress = Callable[[int, int], None]


def jobs_of(runs: Sequence[TrainingRun]) -> list[list[TrainingRun]]:
    """Runs of the same job together, in the order of the file."""
    groups: dict[tuple[Any, ...], list[TrainingRun]] = {}
    for run in runs:
        job, network = run.job, run.job.slice.chip.network
        words = job.batch, job.sequence, run.plan.dtype, family(job.stack.name)
        model = job.model.name.lower(), job.model.n_layers, job.model.d_model
        groups.setdefault((*model, str(job.slice), network, *words), []).append(run)
    return list(groups.values())


def searched(runs: Sequence[TrainingRun], most: int = 0, progress: JobProgress | None = None) -> dict[str, Any]:
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
    ratios, gains = (sorted(row[name] for row in rows if row[name]) for name in ("ratio", "gain"))
    short = [row["context"] == 1 for row in rows if row["plan"] and row["seq"] <= SHORT]
    shares = {
        "median_ratio": statistics.median(ratios) if ratios else None,
        "p10_ratio": ratios[int(0.1 * (len(ratios) - 1))] if ratios else None,
        "median_gain": statistics.median(gains) if gains else None,
        "simple": sum(short) / len(short) if short else None,
    }
    return {"jobs": len(jobs), **shares, "without_plan": sum(not row["plan"] for row in rows), "rows": rows}


def _laid_beside(group: Sequence[TrainingRun]) -> dict[str, Any]:
    best = min(group, key=lambda run: run.row.step_s)
    job, measured = best.job, best.row.step_s
    words = {"batch": job.batch, "seq": job.sequence, "stack": job.stack.name, "dtype": best.plan.dtype}
    row = {"model": job.model.name, "slice": str(job.slice), **words}
    row |= {"measured_s": measured, "measured_plan": str(best.plan)}
    space = Space(words=Plan(dtype=best.plan.dtype, optimizer=best.plan.optimizer))
    stated = replace(space, remat=(best.plan.remat,)) if best.remat_known else space
    found = search_stacks(job, stated)[0].found.best or search_stacks(job, space)[0].found.best
    if not found:
        return row | dict.fromkeys(("plan", "expected_s", "context", "ratio", "gain"))
    plan, seconds = found[0].plan, found[0].seconds
    gain = seconds / first_number(predict(best)[1].seconds)
    chosen = {"plan": str(plan), "expected_s": seconds, "context": plan.context}
    return row | chosen | {"ratio": seconds / measured, "gain": gain}


POLICIES = ("none", "selective", "matmuls", "block")
"""What the planner tries, cheapest in time first, where a source does not say what was
recomputed. `matmuls` also stands for what a stack does between nothing and whole blocks and the
planner has no word for (Megatron-Bridge's 70B recipes on GB200 have the activations of half of the
layers in the host's memory)."""


def training_runs(path: str | Path, stack: str = "") -> tuple[list[TrainingRun], list[str]]:
    """The rows of a file of training runs that can be predicted, and the reason for each one that
    cannot; by the stacks that they name, or all by one."""
    if stack and stack != AUTO:
        load_stack(stack)
    return read_cases(path, "training runs", FORMS, partial(run_of, stack=stack))


def residual(run: TrainingRun, seconds: float) -> Residual:
    """How far a run was from its expected seconds."""
    return Residual(kind_of(run.job, run.plan), document(run.row.source), math.log(run.row.step_s / seconds))


def predict(run: TrainingRun) -> tuple[TrainingRun, Verdict]:
    """The run's verdict; where the recomputation is not stated, with the fastest policy that
    fits."""
    policies = (run.plan.remat,) if run.remat_known else POLICIES
    tried: list[tuple[TrainingRun, Verdict]] = []
    for policy in policies:
        one = replace(run, plan=replace(run.plan, remat=policy))
        tried.append((one, judge_one(one.job, one.plan)))
        sound(first_number(tried[-1][1].seconds))
        if one.fits(tried[-1][1]):
            return tried[-1]
    return min(tried, key=lambda one: first_number(one[1].hbm_bytes))


def _fitting(judged: Sequence[tuple[TrainingRun, tuple[TrainingRun, Verdict]]]) -> dict[str, int]:
    return {"rows": len(judged), "fit": sum(run.fits(verdict) for _, (run, verdict) in judged)}


def validate(
    path: str | Path, stack: str = "", search: bool = False, jobs: int = 0, progress: JobProgress | None = None
) -> ScoreReport:
    """Score every row of a file of measured training runs; with `search`, the plans that are recommended for their jobs
    too."""
    runs, reasons = training_runs(path, stack)
    judged = attempt(runs, predict, reasons)
    pairs: list[tuple[TrainingRun, Scored]] = []
    memory: list[Scored] = []
    for run, (_, verdict) in judged:
        row, label = run.row, f"{run.job.stack.name} {run.job.slice.chip.name}"
        pairs.append((run, Scored(row.id, row.source, row.step_s, first_number(verdict.seconds), label)))
        if row.peak_bytes:
            memory.append(Scored(row.id, row.source, row.peak_bytes, first_number(verdict.hbm_bytes), label))
    marks = Counter(mark for run, _ in pairs for mark in run.row.marks if mark != RECOMPUTE)
    apart = {"searched": searched([run for run, _ in judged], jobs, progress)} if search else {}
    return report_of(
        [row for _, row in pairs],
        reasons,
        "stack",
        recompute_chosen=statistics_of([row for run, row in pairs if not run.remat_known]),
        recompute_stated=statistics_of([row for run, row in pairs if run.remat_known]),
        assumed=dict(marks),
        memory={"mape": None} | statistics_of(memory) | {"worst": worst_of(memory)},
        fits=_fitting(judged)
        | {
            name: _fitting([run for run in judged if run[0].remat_known == stated])
            for name, stated in (("stated", True), ("unstated", False))
        },
        band=training_coverage([residual(run, row.predicted) for run, row in pairs]),
        choices=summary(training_choices((run, row.predicted) for run, row in pairs)),
        **apart,
    )
