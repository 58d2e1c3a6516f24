"""Scoring expected latencies and rates against measured inference runs: `dscale validate inference FILE`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dragonscale.errors import InputError
from dragonscale.evidence.collective_case import Skip
from dragonscale.evidence.inference_predict import predict, predict_memory
from dragonscale.evidence.inference_rows import COLUMNS, LATENCIES, Case, case_of
from dragonscale.evidence.run_files import read_runs
from dragonscale.evidence.score import Report, Scored, report_of, statistics_of


@dataclass(frozen=True)
class InferenceReport(Report):
    """A report with latencies (seconds) and rates (tokens per second) apart, and with the rows counted apart for which
    the planner chose the split or something else was assumed."""

    memory: tuple[Scored, ...] = ()
    chosen: tuple[str, ...] = ()
    assumed: dict[str, int] = field(default_factory=dict)

    def as_json(self, worst: int = 10) -> dict[str, Any]:
        """The record of `dscale validate --json`."""
        found = super().as_json(worst)
        chosen = set(self.chosen)
        found["latencies"] = statistics_of([row for row in self.scored if row.group in LATENCIES])
        found["rates"] = statistics_of([row for row in self.scored if row.group not in LATENCIES])
        found["plan_chosen"] = statistics_of([row for row in self.scored if row.id in chosen])
        found["plan_stated"] = statistics_of([row for row in self.scored if row.id not in chosen])
        found["assumed"] = self.assumed
        found["memory"] = {"mape": None} | statistics_of(self.memory)
        return found


def inference_cases(path: str | Path) -> tuple[list[Case], list[str]]:
    """The rows of a file of inference runs that can be predicted, and the reason for each one that cannot."""
    return read_runs(path, COLUMNS, "inference", case_of)


def validate(path: str | Path) -> InferenceReport:
    """Score every row of a file of measured inference runs."""
    cases, reasons = inference_cases(path)
    scored: list[Scored] = []
    memory: list[Scored] = []
    chosen: list[str] = []
    assumed: dict[str, int] = {}
    for case in cases:
        try:
            expected = predict(case)
        except Skip as reason:
            reasons.append(str(reason))
            continue
        except InputError as error:
            reasons.append(f"not a possible run: {error}")
            continue
        scored.append(Scored(case.id, case.source, case.measured, expected, case.scenario))
        if case.memory and case.plan is not None and case.batch:
            memory.append(Scored(case.id, case.source, case.memory, predict_memory(case), case.scenario))
        if case.plan is None:
            chosen.append(case.id)
        for what in case.assumed:
            assumed[what] = assumed.get(what, 0) + 1
    plain = report_of(scored, reasons, "scenario")
    return InferenceReport(plain.scored, plain.skipped, "scenario", tuple(memory), tuple(chosen), assumed)
