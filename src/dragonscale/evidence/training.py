"""Scoring expected step times and memory against measured training runs: `dscale validate training
FILE`."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from dragonscale.evidence.rows import attempt, read_cases, sound
from dragonscale.evidence.score import Scored, ScoreReport, report_of, statistics_of, worst_of
from dragonscale.evidence.training_bands import Residual, coverage
from dragonscale.evidence.training_choices import choices, summary
from dragonscale.evidence.training_rows import FORMS, RECOMPUTE, MeasuredRun, run_of
from dragonscale.evidence.training_search import JobProgress, searched
from dragonscale.training.auto import AUTO
from dragonscale.training.bands import kind_of, tables
from dragonscale.training.evaluation import Verdict, first, judge_one
from dragonscale.training.stack import load_stack

POLICIES = ("none", "selective", "matmuls", "block")
"""What the planner tries, cheapest in time first, where a source does not say what was
recomputed. `matmuls` also stands for what a stack does between nothing and whole blocks and the
planner has no word for (Megatron-Bridge's 70B recipes on GB200 have the activations of half of the
layers in the host's memory)."""


def training_runs(path: str | Path, stack: str = "") -> tuple[list[MeasuredRun], list[str]]:
    """The rows of a file of training runs that can be predicted, and the reason for each one that
    cannot; by the stacks that they name, or all by one."""
    if stack and stack != AUTO:
        load_stack(stack)
    return read_cases(path, "training runs", FORMS, partial(run_of, stack=stack))


def residual(run: MeasuredRun, seconds: float) -> Residual:
    """How far a run was from its expected seconds."""
    return Residual(kind_of(run.job), run.row.source, math.log(run.row.step_s / seconds))


def predict(run: MeasuredRun) -> tuple[MeasuredRun, Verdict]:
    """The run's verdict; where the recomputation is not stated, with the fastest policy that
    fits."""
    policies = (run.plan.remat,) if run.remat_known else POLICIES
    tried: list[tuple[MeasuredRun, Verdict]] = []
    for policy in policies:
        one = replace(run, plan=replace(run.plan, remat=policy))
        tried.append((one, judge_one(one.job, one.plan)))
        sound(first(tried[-1][1].seconds))
        if fits(*tried[-1]):
            return tried[-1]
    return min(tried, key=lambda one: first(one[1].hbm_bytes))


def fits(run: MeasuredRun, verdict: Verdict) -> bool:
    """Whether the run's memory has room for what the planner expects it to hold."""
    return first(verdict.hbm_bytes) <= run.job.slice.chip.visible


def _fitting(judged: Sequence[tuple[MeasuredRun, tuple[MeasuredRun, Verdict]]]) -> dict[str, int]:
    return {"rows": len(judged), "fit": sum(fits(*done) for _, done in judged)}


def validate(
    path: str | Path, stack: str = "", search: bool = False, jobs: int = 0, progress: JobProgress | None = None
) -> ScoreReport:
    """Score every row of a file of measured training runs; with `search`, the plans that are recommended for their jobs
    too."""
    runs, reasons = training_runs(path, stack)
    judged = attempt(runs, predict, reasons)
    pairs: list[tuple[MeasuredRun, Scored]] = []
    memory: list[Scored] = []
    for run, (_, verdict) in judged:
        row, label = run.row, f"{run.job.stack.name} {run.job.slice.chip.name}"
        pairs.append((run, Scored(row.id, row.source, row.step_s, first(verdict.seconds), label)))
        if row.peak_bytes:
            memory.append(Scored(row.id, row.source, row.peak_bytes, first(verdict.hbm_bytes), label))
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
            "stated": _fitting([one for one in judged if one[0].remat_known]),
            "unstated": _fitting([one for one in judged if not one[0].remat_known]),
        },
        band=coverage([residual(run, row.predicted) for run, row in pairs], tables()["tail"]),
        choices=summary(choices((run, row.predicted) for run, row in pairs)),
        **apart,
    )
