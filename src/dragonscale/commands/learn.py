"""`dscale learn`: all chapters of the course, one of them, or a problem with an answer judged."""

from pathlib import Path
from typing import ClassVar

import msgspec

from dragonscale.blocks.sheet import Block, Column, NextStep, Prose, Sheet, Title, Verbatim, facts, sheet, table
from dragonscale.commands.calc import MatchesReport, matches_report
from dragonscale.commands.grids import grid
from dragonscale.commands.questions.facts import LearnQuestion
from dragonscale.commands.record import Face, Record, bind
from dragonscale.course.chapters import CHAPTERS, Chapter, all_problems, find_chapter, problems_of
from dragonscale.course.judging import LETTERS, WANTED, Judgement, judge
from dragonscale.course.problem import Posed, Problem
from dragonscale.course.progress import Progress, answered, read_progress, usual_file, write_progress
from dragonscale.course.variants import Variant, variant
from dragonscale.course.words import amount, count, number
from dragonscale.errors import MISSED, InputError, nearest, shorten
from dragonscale.listener import Listener


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

    @property
    def solved(self) -> int:
        """How many problems were answered rightly."""
        return sum(row.right > 0 for row in self.problems)

    def headline(self) -> str:
        return f"{self.title}: {self.solved} of {len(self.problems)} problems solved"


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
        if self.right is False:
            return MISSED
        return 0

    def headline(self) -> str:
        return f"{self.problem}: {self.told or self.title}"


def ask(question: LearnQuestion, listener: Listener) -> CourseReport | LessonReport | ProblemReport | MatchesReport:
    """What the question is about; an answer that is given is judged and kept."""
    if question.find:
        return matches_report(question.find).came_from(question, listener.notes)
    return _answer(question).came_from(question, listener.notes)


def _answer(question: LearnQuestion) -> CourseReport | LessonReport | ProblemReport:
    path = Path(question.progress) if question.progress else usual_file()
    name = question.name.strip().lower()
    if "." in name or (name and name not in _slugs()):
        problem = named_problem(name)
        if not question.list:
            return _problem(question, problem, path)
        name = problem.chapter
    progress = read_progress(path)
    if question.answer or question.hint or question.solution:
        raise InputError(
            "--answer, --hint and --solution are about one problem; name it, such as rooflines.time-of-flops."
        )
    if name:
        return lesson_report(find_chapter(name), progress)
    return course_report(progress, path)


def _slugs() -> list[str]:
    return [chapter.slug for chapter in CHAPTERS]


def named_problem(name: str) -> Problem:
    """A problem by its whole id, or by its name alone."""
    # `rooflines.time-of-flops` or `time-of-flops`
    slug, dot, _ = name.partition(".")
    if dot:
        problems = problems_of(find_chapter(slug).slug)
    else:
        problems = all_problems()
    matches = [problem for problem in problems if name in (problem.id, problem.name)]
    if len(matches) > 1:
        raise InputError(
            f"Several chapters have a problem {shorten(name)}: {', '.join(problem.id for problem in matches)}."
        )
    if matches:
        return matches[0]
    close = nearest(name, [*(problem.id if dot else problem.name for problem in problems), *_slugs()])
    if close:
        hint = f"did you mean {close!r}?"
    else:
        hint = "`dscale learn` lists the chapters, `dscale learn CHAPTER --list` its problems."
    raise InputError(f"The course has no chapter or problem {shorten(name)}; {hint}")


def course_report(progress: Progress, path: Path) -> CourseReport:
    rows = [_lesson_row(row, progress) for row in CHAPTERS]
    return CourseReport(
        rows,
        sum(row.problems for row in rows),
        sum(row.solved for row in rows),
        f"dscale learn {next((row.chapter for row in rows if row.solved < row.problems), rows[0].chapter)}",
        str(path),
    )


def _lesson_row(chapter: Chapter, progress: Progress) -> LessonRow:
    problems = problems_of(chapter.slug)
    solved = sum(progress.solved(problem.id) for problem in problems)
    return LessonRow(chapter.slug, chapter.title, chapter.about, len(problems), solved, chapter.page)


def lesson_report(chapter: Chapter, progress: Progress) -> LessonReport:
    rows: list[ProblemRow] = []
    for problem in problems_of(chapter.slug):
        tally = progress.tally(problem.id)
        rows.append(
            ProblemRow(
                problem.id, problem.title, tally.right, tally.wrong, [case.partition(":")[0] for case in problem.cases]
            )
        )
    following = next((row.problem for row in rows if not row.right), rows[0].problem)
    return LessonReport(chapter.slug, chapter.title, chapter.about, chapter.page, rows, f"dscale learn {following}")


def _problem(question: LearnQuestion, problem: Problem, path: Path) -> ProblemReport:
    problem_posed = variant(problem, question.seed)
    verdict = None
    if question.answer:
        verdict = judge(problem_posed.posed, question.answer)
    if verdict is not None:  # to look at a problem needs no progress
        write_progress(path, answered(read_progress(path), problem.id, question.seed, verdict.right))
    return problem_report(problem_posed, verdict, question.answer, question.hint, question.solution)


def problem_report(
    problem_posed: Variant, verdict: Judgement | None, answer_given: str, hint: bool, solution: bool
) -> ProblemReport:
    """A problem as it is asked, and what came of an answer."""
    problem, posed = problem_posed.problem, problem_posed.posed
    this = f"dscale learn {problem.id}"
    seed = f" --seed {problem_posed.seed}" if problem_posed.seed else ""
    report = ProblemReport(
        problem=problem.id,
        title=problem.title,
        chapter=problem.chapter,
        seed=problem_posed.seed,
        ask=posed.ask,
        unit=_unit(posed),
        # options and whole numbers are answered exactly
        tolerance=0.0 if posed.options or posed.whole else posed.tolerance,
        options=list(posed.options),
        hints=list(posed.hints) if hint else [],
        answered=answer_given,
        right=None,
        told="",
        answer="",
        value=None,
        solution=[],
        check="",
        page=find_chapter(problem.chapter).page,
        again=f"{this} --seed {problem_posed.seed + 1}",
        next=f"{this}{seed} {'--hint' if verdict else '--answer …'}",
    )
    if verdict is not None:
        report.right, report.told = verdict.right, verdict.told
    if solution or report.right:
        report.answer, report.solution, report.check = answer_text(posed), list(posed.steps), posed.check
        report.value = None if isinstance(posed.answer, str) else posed.answer
        report.next = _following(problem)
    return report


def _unit(posed: Posed) -> str:
    """What an answer is to be."""
    if posed.options:
        return "one of the options"
    return "a whole number" if posed.whole else WANTED[posed.dimension]


def answer_text(posed: Posed) -> str:
    """The right answer as it would be printed."""
    if isinstance(posed.answer, str):
        return posed.answer
    if posed.whole:
        return count(posed.answer)
    if posed.dimension != "count":
        return amount(posed.answer, posed.dimension)
    return number(posed.answer, 5)


def _following(problem: Problem) -> str:
    ids = [problem_.id for problem_ in problems_of(problem.chapter)]
    next_index = ids.index(problem.id) + 1
    if next_index < len(ids):
        return f"dscale learn {ids[next_index]}"
    slugs = _slugs()
    # after the last problem the first of the next chapter
    return f"dscale learn {slugs[(slugs.index(problem.chapter) + 1) % len(slugs)]}"


def course_blocks(report: CourseReport, _detail: bool) -> Sheet:
    solved = (lambda row: f"{row.solved}/{row.problems}", "")
    title = Title(f"{report.solved} of {report.problems} problems solved", f"kept in {report.progress_file}")
    return sheet(title, grid("learn", report.chapters, own={"solved": solved}), NextStep(report.next, "Next:"))


def lesson_blocks(report: LessonReport, detail: bool) -> Sheet:
    """The problems of a chapter, and which of them are solved."""
    columns = [Column("problem"), Column("", wrap=True, keep=5), Column("")]
    if detail:
        columns.append(Column("in the book", wrap=True))
    rows: list[list[str]] = []
    for row in report.problems:
        cells = [row.problem.partition(".")[2], row.title, "solved" if row.right else "", ", ".join(row.book)]
        rows.append(cells[: len(columns)])
    aside = f"{report.about} {report.solved} of {len(report.problems)} solved. To read: {report.page}"
    return sheet(Title(report.title, aside), table(columns, rows), NextStep(report.next, "Next:"))


def problem_blocks(report: ProblemReport, _detail: bool) -> Sheet:
    """A problem as it is asked, its hints, and what came of an answer."""
    blocks: list[Block] = []
    if report.ask:  # a dialogue has asked it already
        seed = f", seed {report.seed}" if report.seed else ""
        blocks += [Title(report.title, f"{report.problem}{seed}"), Prose(report.ask)]
    options = (f"{letter}) {option}" for letter, option in zip(LETTERS, report.options, strict=False))
    blocks.append(Verbatim("\n".join(options)))
    for rank, hint in enumerate(report.hints, 1):
        blocks.append(Prose(f"Hint {rank}: {hint}", "dim"))
    if report.told:
        blocks.append(Prose(f"{report.answered}: {report.told}", "good" if report.right else "warn"))
    if report.solution:
        blocks.append(Verbatim("\n".join(f"  {step}" for step in report.solution)))
        blocks.append(facts(("answer", report.answer, "key"), ("check", report.check), ("to read", report.page)))
    elif report.right is None:
        blocks.append(Prose(f"Answer: {report.unit}{_percent(report.tolerance)}."))
    return sheet(*blocks, NextStep(report.next, "Next:"))


def _percent(tolerance: float) -> str:
    if tolerance:
        return f", within {100 * tolerance:.3g}%"
    return ""


bind(CourseReport, Face(course_blocks))
bind(LessonReport, Face(lesson_blocks))
bind(ProblemReport, Face(problem_blocks))
