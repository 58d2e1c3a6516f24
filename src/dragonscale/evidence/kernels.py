"""Scoring the expected times of single kernels against measurements: `dscale validate kernels FILE`."""

from pathlib import Path

from dragonscale.errors import InputError, shorten
from dragonscale.evidence import collectives
from dragonscale.evidence.kernel_rows import COLUMNS, Case, Skip, predict, read_case
from dragonscale.evidence.score import Report, Scored, read_rows, report_of

LARGE = 100e-6
"""Seconds above which a kernel counts as large: launches and floors no longer matter."""


def kind_of(header: list[str], shown: str) -> str:
    """The kind of kernels in a file with these columns."""
    for kind, columns in COLUMNS.items():
        if set(columns) <= set(header):
            return kind
    if set(collectives.KERNELS) <= set(header):
        return "collectives"
    if {"comm_backend", "phase"} <= set(header):
        raise InputError(
            f"The file {shown} holds exchanges of tokens between the chips that share experts, which have no model of kernels; "
            f"known kinds are {', '.join(COLUMNS)} and collectives."
        )
    closest = max(COLUMNS, key=lambda kind: len(set(COLUMNS[kind]) & set(header)))
    missing = [name for name in COLUMNS[closest] if name not in header]
    raise InputError(
        f"The file {shown} is not one of measured kernels: as {closest} it lacks the columns {', '.join(missing)}; "
        f"known kinds are {', '.join(COLUMNS)}."
    )


def read_cases(path: str | Path) -> tuple[list[Case], list[str]]:
    """The rows of a file that can be predicted, and the reason for each one that cannot."""
    header, rows = read_rows(path)
    shown = shorten(str(path))
    kind = kind_of(header, shown)
    if not rows:
        raise InputError(f"The file {shown} has column names but no rows.")
    cases: list[Case] = []
    reasons: list[str] = []
    for row in rows:
        try:
            cases.append(read_case(kind, row))
        except Skip as reason:
            reasons.append(str(reason))
    return cases, reasons


def validate(path: str | Path) -> Report:
    """Score every row of a file of measured kernels; one of single-node collectives goes to their own model."""
    header, _ = read_rows(path)
    if kind_of(header, shorten(str(path))) == "collectives":
        return collectives.validate(path)
    cases, reasons = read_cases(path)
    scored = [
        Scored(case.id, case.source, case.seconds, expected, case.key.group, case.seconds > LARGE)
        for case, expected in zip(cases, predict(cases), strict=True)
    ]
    return report_of(scored, reasons, "kernel")
