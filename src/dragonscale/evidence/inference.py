"""Scoring expected latencies and rates against measured inference runs: `dscale validate inference
FILE`.

Latencies (seconds) and rates (tokens per second) are reported apart, and so are rows for which the
planner chose the split."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

from dragonscale.evidence.inference_predict import predict, predict_memory
from dragonscale.evidence.inference_rows import FORMS, LATENCIES, InferenceCase, case_of
from dragonscale.evidence.rows import attempt, read_cases, sound
from dragonscale.evidence.score import Scored, ScoreReport, report_of, statistics_of


def inference_cases(path: str | Path) -> tuple[list[InferenceCase], list[str]]:
    """The rows of a file of inference runs that can be predicted, and the reason for each one that
    cannot."""
    return read_cases(path, "inference runs", FORMS, case_of)


def validate(path: str | Path) -> ScoreReport:
    """Score every row of a file of measured inference runs."""
    cases, reasons = inference_cases(path)
    judged = attempt(cases, lambda case: sound(predict(case)), reasons)
    pairs = [
        (case, Scored(case.row.id, case.row.source, case.row.measured, expected, case.row.scenario))
        for case, expected in judged
    ]
    memory = [
        replace(row, measured=case.row.memory_bytes, predicted=predict_memory(case))
        for case, row in pairs
        if case.row.memory_bytes and case.plan is not None and case.row.batch
    ]
    return report_of(
        [row for _, row in pairs],
        reasons,
        "scenario",
        latencies=statistics_of([row for _, row in pairs if row.group in LATENCIES]),
        rates=statistics_of([row for _, row in pairs if row.group not in LATENCIES]),
        plan_chosen=statistics_of([row for case, row in pairs if case.plan is None]),
        plan_stated=statistics_of([row for case, row in pairs if case.plan is not None]),
        assumed=dict(Counter(mark for case, _ in judged for mark in case.row.marks)),
        memory={"mape": None} | statistics_of(memory),
    )
