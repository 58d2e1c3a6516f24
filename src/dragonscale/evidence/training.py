"""Scoring expected step times and memory against measured training runs: `dscale validate training FILE`."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dragonscale.errors import InputError
from dragonscale.evidence.run_files import read_runs
from dragonscale.evidence.score import Report, Scored, report_of, statistics_of
from dragonscale.evidence.training_rows import COLUMNS, Run, run_of
from dragonscale.training.evaluation import Verdict, first, judge_one

CHOICES = ("none", "selective", "matmuls", "block")
"""Policies that the planner tries, cheapest in time first, where a source does not say what was recomputed."""


@dataclass(frozen=True)
class TrainingReport(Report):
    """A report with memory, and with the rows counted apart for which something had to be chosen or assumed."""

    memory: tuple[Scored, ...] = ()
    chosen: tuple[str, ...] = ()
    assumed: dict[str, int] = field(default_factory=dict)

    def as_json(self, worst: int = 10) -> dict[str, Any]:
        """The record of `dscale validate --json`."""
        found = super().as_json(worst)
        chosen = set(self.chosen)
        apart = [row for row in self.scored if row.id in chosen]
        stated = [row for row in self.scored if row.id not in chosen]
        found["recompute_chosen"] = statistics_of(apart)
        found["recompute_stated"] = statistics_of(stated)
        found["assumed"] = self.assumed
        heavy = sorted(self.memory, key=lambda row: -row.ape)[:worst]
        found["memory"] = statistics_of(self.memory) | {
            "worst": [
                {"id": row.id, "measured": row.measured, "predicted": row.predicted, "ape": row.ape} for row in heavy
            ]
        }
        found["memory"].setdefault("mape", None)
        return found


def training_runs(path: str | Path) -> tuple[list[Run], list[str]]:
    """The rows of a file of training runs that can be predicted, and the reason for each one that cannot."""
    return read_runs(path, COLUMNS, "training", run_of)


def predict(run: Run) -> tuple[Run, Verdict]:
    """The run's verdict; where the recomputation is not stated, with the fastest policy that fits."""
    if run.remat_known:
        return run, judge_one(run.job, run.plan)
    limit = run.job.piece.chip.hbm.capacity
    tried: list[tuple[Run, Verdict]] = []
    for policy in CHOICES:
        one = replace(run, plan=replace(run.plan, remat=policy))
        tried.append((one, judge_one(one.job, one.plan)))
        if first(tried[-1][1].hbm_bytes) <= limit:
            return tried[-1]
    return min(tried, key=lambda one: first(one[1].hbm_bytes))


def validate(path: str | Path) -> TrainingReport:
    """Score every row of a file of measured training runs."""
    runs, reasons = training_runs(path)
    scored: list[Scored] = []
    memory: list[Scored] = []
    chosen: list[str] = []
    assumed: dict[str, int] = {}
    for run in runs:
        try:
            done, verdict = predict(run)
        except InputError as error:
            reasons.append(f"not a possible run: {error}")
            continue
        scored.append(Scored(run.id, run.source, run.seconds, first(verdict.seconds), run.group))
        if run.memory is not None:
            memory.append(Scored(run.id, run.source, run.memory, first(verdict.hbm_bytes), run.group))
        if not done.remat_known:
            chosen.append(run.id)
        for what in run.assumed:
            assumed[what] = assumed.get(what, 0) + 1
    plain = report_of(scored, reasons, "stack")
    return TrainingReport(plain.scored, plain.skipped, "stack", tuple(memory), tuple(chosen), assumed)
