"""The records that `dscale learn` answers with."""

from typing import ClassVar

import msgspec

from dragonscale.app.record import Record
from dragonscale.errors import MISSED
from dragonscale.sheets.sheet import Sheet


class LessonRow(msgspec.Struct):
    """A chapter of the course, and how much of it is solved."""

    chapter: str
    title: str
    about: str
    problems: int
    solved: int
    page: str


class CourseReport(Record):
    """Every chapter; `next` is what to type to go on."""

    ROWS: ClassVar[str] = "chapters"

    chapters: list[LessonRow]
    problems: int
    solved: int
    next: str
    progress_file: str

    def headline(self) -> str:
        return f"{self.solved} of {self.problems} problems solved in {len(self.chapters)} chapters"

    def sheet(self, detail: bool = False) -> Sheet:  # noqa: ARG002  there is no more to say
        from dragonscale.app.learn.sheet import course_sheet

        return course_sheet(self)


class ProblemRow(msgspec.Struct):
    """A problem of a chapter, and how it was answered."""

    problem: str
    title: str
    right: int
    wrong: int
    book: list[str]
    """Results of the book that it reproduces with its own numbers."""


class LessonReport(Record):
    """The problems of a chapter."""

    ROWS: ClassVar[str] = "problems"

    chapter: str
    title: str
    about: str
    page: str
    problems: list[ProblemRow]
    next: str

    def headline(self) -> str:
        solved = sum(one.right > 0 for one in self.problems)
        return f"{self.title}: {solved} of {len(self.problems)} problems solved"

    def sheet(self, detail: bool = False) -> Sheet:
        from dragonscale.app.learn.sheet import lesson_sheet

        return lesson_sheet(self, detail)


class ProblemReport(Record):
    """A problem with its numbers put in, and what came of an answer.

    `hints` are those asked for. `solution`, `answer` and `check` are empty until the answer is right or the
    solution was asked for; `right` is None where nothing was answered.
    """

    problem: str
    title: str
    chapter: str
    seed: int
    ask: str
    unit: str
    tolerance: float
    options: list[str]
    hints: list[str]
    answered: str
    right: bool | None
    told: str
    answer: str
    value: float | None
    solution: list[str]
    check: str
    page: str
    again: str
    next: str

    @property
    def exit_code(self) -> int:
        return MISSED if self.right is False else 0

    def headline(self) -> str:
        return f"{self.problem}: {self.told or self.title}"

    def sheet(self, detail: bool = False) -> Sheet:  # noqa: ARG002  the solution has a flag of its own
        from dragonscale.app.learn.sheet import problem_sheet

        return problem_sheet(self)
