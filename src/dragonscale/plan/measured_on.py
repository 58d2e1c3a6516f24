"""Constants of a stack or an engine that were settled on whole steps: on which chip, how, and how far off they were on
steps left out.

`dscale calibrate --stack` writes them into a file of the user's own, with a table `[stack]` for training and one
`[engine]` for serving; ours stand in `stacks.toml` and `engines.toml`.
"""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from dragonscale.errors import InputError, shorten
from dragonscale.tables import read_table

MOST_STEPS = 1_000_000


class MeasuredOn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`rows` steps were fitted on a `chip`; of `left_out` others, of models not among them, the median error is
    `median` and the largest `worst`, and they took between 1 + `low` and 1 + `high` times the expected seconds. `what`:
    training, prefill or decode."""

    chip: str
    what: str
    source: str
    date: str
    rows: int
    left_out: int
    median: float
    worst: float
    low: float
    high: float

    @property
    def text(self) -> str:
        """In a sentence.

        >>> MeasuredOn("h200", "training", "own", "2026-11-16", 16, 12, 0.04, 0.12, -0.1, 0.12).text
        'all of 12 steps of training measured on h200, of models that its constants were not fitted on, were within
        -10%/+12% (median 4%)'
        """
        those = f"all of {self.left_out} steps of {self.what} measured on {self.chip}"
        within = f"within {self.low:+.0%}/{self.high:+.0%} (median {self.median:.0%})"
        return f"{those}, of models that its constants were not fitted on, were {within}"


def check_measured(rows: Iterable[MeasuredOn], where: str) -> None:
    """Errors that a file states of itself are ones that steps can have; `where` begins the sentence about one that is
    not."""
    for row in rows:
        counts = 0 <= row.rows < MOST_STEPS and 0 <= row.left_out < MOST_STEPS
        errors = 0 <= row.median <= row.worst < math.inf and -1 < row.low <= row.high < math.inf  # false of nan too
        if not (counts and errors):
            raise InputError(
                f"{where}: what it says was measured of {shorten(row.what)} on {shorten(row.chip)} cannot be "
                f"(median {row.median}, worst {row.worst}, low {row.low}, high {row.high} of {row.left_out} steps "
                f"left out, {row.rows} fitted)."
            )


def is_file(name: str) -> bool:
    """Whether a stack or an engine is given as a file."""
    return name.lower().endswith(".toml")


def file_table(path: str, name: str) -> dict[str, Any]:
    """One table of a user's file."""
    found = read_table(Path(path), "Stack")
    table = found.get(name)
    if not isinstance(table, dict):
        there = ", ".join(f"[{key}]" for key in found if key in ("stack", "engine")) or "neither"
        raise InputError(
            f"The file {shorten(path)} has no table [{name}] (of [stack] and [engine] it has {there}); `dscale "
            "calibrate --stack` writes such files."
        )
    return table
