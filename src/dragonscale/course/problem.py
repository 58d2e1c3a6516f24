"""What a problem is, and how one is written.

    @problem("rooflines", "Where a matmul turns compute-bound", chip=("v5e", "h100"))
    def critical_batch_of_a_matmul(chip: str) -> Posed:
        ...

Each parameter is given as the values it may take, the usual one first (the book's own where the problem is the
book's). The function puts the numbers in, calls the planner for the answer and returns the problem as `Posed`; for a
combination that makes no sense it returns None.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Trap:
    """The value that a usual mistake gives, and the mistake."""

    value: float
    why: str


@dataclass(frozen=True)
class Posed:
    """A problem with its numbers put in.

    `answer` is in base units of its `dimension` (`dragonscale.physics.units`), or one of `options`. A relative error
    within `tolerance` is right, unless it is within it of a trap; an answer that is `whole` (chips, hops, a batch
    rounded down) must be met exactly. `check` is a command that gives the answer; where it does not print an option's
    own words, `shown` is the pattern of what it prints instead.
    """

    ask: str
    answer: float | str
    dimension: str = "count"
    hints: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    traps: tuple[Trap, ...] = ()
    check: str = ""
    tolerance: float = 0.02
    options: tuple[str, ...] = ()
    whole: bool = False
    shown: str = ""


Pose = Callable[..., Posed | None]


@dataclass(frozen=True)
class Problem:
    """A problem of a chapter: how it poses itself, what it draws from, which results of the book it reproduces."""

    name: str
    chapter: str
    title: str
    pose: Pose
    draws: Mapping[str, tuple[Any, ...]]
    cases: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.chapter}.{self.name}"


PROBLEMS: dict[str, Problem] = {}
"""Every problem that was defined, by its id; `chapters.py` loads them."""


def problem(chapter: str, title: str, cases: tuple[str, ...] = (), **draws: tuple[Any, ...]) -> Callable[[Pose], Pose]:
    """Define a problem by the function that poses it; its name is the function's, with dashes."""

    def define(pose: Pose) -> Pose:
        made = Problem(pose.__name__.replace("_", "-"), chapter, title, pose, draws, cases)
        assert made.id not in PROBLEMS, f"two problems are called {made.id}"
        assert all(draws.values()), f"a parameter of {made.id} has no values"
        PROBLEMS[made.id] = made
        return pose

    return define
