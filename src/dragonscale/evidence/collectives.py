"""Scoring the expected times of collectives against measurements: `dscale validate collectives FILE`."""

from collections.abc import Callable
from pathlib import Path

from dragonscale.collectives.profile import expected_time
from dragonscale.errors import InputError, shorten
from dragonscale.evidence.collective_case import LARGE, Case, Skip
from dragonscale.evidence.collective_rows import kernel_case, published_case
from dragonscale.evidence.score import Report, Scored, read_rows, report_of

PUBLISHED = (
    "chip", "source", "kind", "collective", "algorithm", "n_ranks", "n_nodes", "ranks_per_node", "interconnect", "bytes",
    "bytes_meaning", "dtype", "time_us", "algbw_GBps", "busbw_GBps", "other_metric", "notes",
)  # fmt: skip
KERNELS = ("system", "impl", "op_name", "dtype", "num_gpus", "bytes", "latency_us")


def read_cases(path: str | Path) -> tuple[list[Case], list[str]]:
    """The rows of a file that can be predicted, and the reason for each one that cannot."""
    header, rows = read_rows(path)
    shown = shorten(str(path))
    reader: Callable[[dict[str, str], int], Case]
    if set(PUBLISHED) <= set(header):
        reader = published_case
    elif set(KERNELS) <= set(header):
        reader = kernel_case
    else:
        wanted = KERNELS if "system" in header else PUBLISHED
        missing = [name for name in wanted if name not in header]
        raise InputError(
            f"The file {shown} has no column {', '.join(missing[:4])}{' …' if len(missing) > 4 else ''}; measured collectives need "
            f"{', '.join(wanted)}."
        )
    if not rows:
        raise InputError(f"The file {shown} has column names but no rows.")
    cases: list[Case] = []
    reasons: list[str] = []
    for place, row in enumerate(rows, start=2):
        try:
            cases.append(reader(row, place))
        except Skip as reason:
            reasons.append(str(reason))
    return cases, reasons


def predict(case: Case) -> float:
    """Seconds that the model expects for a case."""
    return max(
        float(expected_time(case.kind, volume, group, case.profile, case.options)) for volume, group in case.parts
    )


def validate(path: str | Path) -> Report:
    """Score every row of a file of measured collectives."""
    cases, reasons = read_cases(path)
    scored = [
        Scored(case.id, case.source, case.seconds, predict(case), case.network, case.message > LARGE) for case in cases
    ]
    return report_of(scored, reasons)
