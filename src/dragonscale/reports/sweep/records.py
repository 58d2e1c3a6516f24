"""The records of `dscale sweep`: what is asked, what was answered, and the answer to the whole."""

import hashlib
from typing import Any, Literal

import msgspec

from dragonscale.evidence.verify.sweep_score import SweepScore

COMMANDS = ("verify", "train", "serve")


class Entry(msgspec.Struct, frozen=True):
    """One question of a grid: a command and its flags, by name."""

    command: Literal["verify", "train", "serve"]
    asks: dict[str, Any]

    @property
    def key(self) -> str:
        """A name for what is asked, the same for equal entries.

        >>> Entry("train", {"model": "a", "on": "b"}).key == Entry("train", {"on": "b", "model": "a"}).key
        True
        """
        return f"{self.command}-{hashlib.sha256(msgspec.json.encode(self, order='sorted')).hexdigest()[:20]}"


class Answer(msgspec.Struct, frozen=True):
    """A line of the results: the entry, the record that its command prints as JSON, or why there is none."""

    key: str
    command: str
    asks: dict[str, Any]
    seconds: float
    failed: str = ""
    answer: dict[str, Any] | None = None


class SweepReport(msgspec.Struct, frozen=True):
    """A whole sweep. `known` rows were there before; `rows` are flat, one for each entry, in the grid's order."""

    grid: str
    entries: int
    known: int
    answered: int
    failed: int
    seconds: float
    rows: list[dict[str, Any]]
    verify: SweepScore | None = None
    stopped: bool = False
