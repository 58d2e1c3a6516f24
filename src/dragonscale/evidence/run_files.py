"""Files of measured runs: every row as a case that can be predicted, or the reason why it cannot."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from dragonscale.errors import InputError, shorten
from dragonscale.evidence.collective_case import Skip
from dragonscale.evidence.score import read_rows

Case = TypeVar("Case")


def read_runs(
    path: str | Path, columns: Sequence[str], kind: str, read: Callable[[dict[str, str], int], Case]
) -> tuple[list[Case], list[str]]:
    """The cases of a file with these `columns`, and a reason for each row left out; `read` takes a row and its line."""
    header, rows = read_rows(path)
    missing = [name for name in columns if name not in header]
    if missing:
        raise InputError(
            f"The file {shorten(str(path))} has no column {', '.join(missing[:4])}{' …' if len(missing) > 4 else ''}; measured "
            f"{kind} runs need {', '.join(columns)}."
        )
    if not rows:
        raise InputError(f"The file {shorten(str(path))} has column names but no rows.")
    cases: list[Case] = []
    reasons: list[str] = []
    for place, row in enumerate(rows, start=2):
        try:
            cases.append(read(row, place))
        except Skip as reason:
            reasons.append(str(reason))
        except InputError as error:
            reasons.append(f"not a possible run: {error}")
    return cases, reasons
