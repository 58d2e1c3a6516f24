"""Scoring the expected times of collectives against measurements: `dscale validate collectives
FILE`."""

from pathlib import Path

from dragonscale.evidence import rows
from dragonscale.evidence.collective_case import CollectiveCase, case_of
from dragonscale.evidence.collective_rows import FORMS
from dragonscale.evidence.score import Scored, ScoreReport, report_of
from dragonscale.physics.collectives.profile import expected_time

LARGE = 2**20
"""Bytes above which a message counts as large."""


def read_cases(path: str | Path) -> tuple[list[CollectiveCase], list[str]]:
    """The rows of a file that can be predicted, and the reason for each one that cannot."""
    return rows.read_cases(path, "collectives", FORMS, case_of)


def predict(case: CollectiveCase) -> float:
    """Seconds that the model expects for a case."""
    kind, profile, options = case.row.collective, case.profile, case.options
    return max(float(expected_time(kind, volume, group, profile, options)) for volume, group in case.parts)


def validate(path: str | Path) -> ScoreReport:
    """Score every row of a file of measured collectives."""
    cases, reasons = read_cases(path)
    scored = [
        Scored(case.row.id, case.row.source, case.row.seconds, expected, case.network, case.row.message > LARGE)
        for case, expected in rows.attempt(cases, lambda case: rows.sound(predict(case)), reasons)
    ]
    return report_of(scored, reasons)
