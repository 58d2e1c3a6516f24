"""Scoring expected peaks of memory, and whether runs fit, against measured ones: `dscale validate
memory FILE`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from dragonscale.evidence.memory_rows import FORMS, MemoryRun, run_of
from dragonscale.evidence.rows import attempt, read_cases, sound
from dragonscale.evidence.score import Scored, ScoreReport, by, report_of, statistics_of
from dragonscale.training.evaluation import Job, Verdict, first, judge_one
from dragonscale.training.peak_memory import OUTSIDE


def counted(run: MemoryRun, verdict: Verdict) -> float:
    """The bytes that the row's counter is expected to show."""
    return peak_of(verdict, run.job, run.row.counter)


def peak_of(verdict: Verdict, job: Job, counter: str) -> float:
    """The bytes that a counter of PyTorch's allocator is expected to show: `max_allocated`, or `max_reserved`."""
    allocated = sum(first(size) for part, size in verdict.ledger.memory.items() if part not in OUTSIDE)
    return allocated * (job.stack.memory.slack if counter == "max_reserved" else 1.0)


def fits(run: MemoryRun, verdict: Verdict) -> bool:
    """Whether the run is expected to fit."""
    return first(verdict.hbm_bytes) <= run.job.slice.chip.visible


def judge(run: MemoryRun) -> Verdict:
    """What the planner expects of a run."""
    verdict = judge_one(run.job, run.plan)
    sound(first(verdict.hbm_bytes))
    return verdict


def validate(path: str | Path) -> ScoreReport:
    """Score every row of a file of measured peaks or outcomes."""
    runs, reasons = read_cases(path, "memory", FORMS, run_of)
    judged = attempt(runs, judge, reasons)
    scored, method = [], {}
    for run, verdict in judged:
        row = run.row
        if row.peak_bytes:
            one = Scored(row.id, row.source, row.peak_bytes, counted(run, verdict), f"{row.stack} {row.counter}")
            scored.append(one)
            method[one.id] = row.method
    methods = {name: statistics_of(rows) for name, rows in by(scored, lambda row: method[row.id]).items()}
    counters = {name: statistics_of(rows) for name, rows in by(scored, lambda row: row.group.split()[-1]).items()}
    report = report_of(scored, reasons, "stack", by_method=methods, by_counter=counters, outcomes=outcomes(judged))
    return replace(report, decided=len(judged) - len(scored))


def outcomes(judged: list[tuple[MemoryRun, Verdict]]) -> dict[str, Any]:
    """Of runs that ran, how many fit; of runs that ran out of memory, how many are refused."""
    ran = [fits(run, verdict) for run, verdict in judged if run.row.outcome == "ran"]
    out = [fits(run, verdict) for run, verdict in judged if run.row.outcome == "oom"]
    return {"ran": {"rows": len(ran), "fit": sum(ran)}, "oom": {"rows": len(out), "refused": len(out) - sum(out)}}
