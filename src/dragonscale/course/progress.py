"""What a reader has solved, kept in one JSON file.

    {"version": 1,
     "problems": {"rooflines.time-of-flops": {"right": 2, "wrong": 1, "last": "2026-11-17", "seeds": [0, 7]}}}

The file is written whole or not at all. One that cannot be read is refused and left as it is.
"""

import os
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Annotated

import msgspec

from dragonscale.errors import InputError, shorten
from dragonscale.files import write_file
from dragonscale.tables import read_regular

VERSION = 1
_SEEDS = 50
"""Seeds that were solved and are remembered, the latest."""


class ProblemTally(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often a problem was answered right and wrong, when last, and the seeds that were solved."""

    right: Annotated[int, msgspec.Meta(ge=0)] = 0
    wrong: Annotated[int, msgspec.Meta(ge=0)] = 0
    last: str = ""
    seeds: tuple[int, ...] = ()


class Progress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every problem that was tried, by its id."""

    version: int
    problems: Mapping[str, ProblemTally]

    def solved(self, problem_id: str) -> bool:
        return self.tally(problem_id).right > 0

    def tally(self, problem_id: str) -> ProblemTally:
        return self.problems.get(problem_id, ProblemTally())


def usual_file() -> Path:
    """Where progress is kept without another word: the user's data folder.

    DRAGONSCALE_PROGRESS names another file.
    """
    if os.environ.get("DRAGONSCALE_PROGRESS"):
        return Path(os.environ["DRAGONSCALE_PROGRESS"])
    folder = os.environ.get("XDG_DATA_HOME") or os.environ.get("LOCALAPPDATA")
    return Path(folder or Path.home() / ".local/share") / "dragonscale" / "learn.json"


def read_progress(path: Path) -> Progress:
    """The progress of a file; none where there is none yet."""
    try:
        text = read_regular(path, "Progress file")
    except FileNotFoundError:
        return Progress(VERSION, {})
    except OSError as error:
        raise InputError(f"The progress file {shorten(str(path))} cannot be read: {error}.") from None
    if not text.strip():
        return Progress(VERSION, {})
    try:
        read = msgspec.json.decode(text, type=Progress)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(
            f"{shorten(str(path))} is not a progress file of `dscale learn` ({error}); move it away, or name another "
            "with --progress."
        ) from None
    if read.version != VERSION:
        raise InputError(f"{shorten(str(path))} is of version {read.version}, and this program writes {VERSION}.")
    return read


def answered(progress: Progress, problem_id: str, seed: int, right: bool) -> Progress:
    """The progress after an answer."""
    old = progress.tally(problem_id)
    seeds = (*(other for other in old.seeds if other != seed), seed)[-_SEEDS:] if right else old.seeds
    new = ProblemTally(old.right + right, old.wrong + (not right), date.today().isoformat(), seeds)
    return Progress(VERSION, {**progress.problems, problem_id: new})


def write_progress(path: Path, progress: Progress) -> None:
    """Keep the progress."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{shorten(str(path.parent))} cannot be made: {error.strerror or error}.") from None
    write_file(path, msgspec.json.format(msgspec.json.encode(progress), indent=1), "The progress")
