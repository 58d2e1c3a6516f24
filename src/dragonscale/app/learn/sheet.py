"""`dscale learn` laid out."""

from dragonscale.app.learn.records import CourseReport, LessonReport, ProblemReport
from dragonscale.course.judging import LETTERS
from dragonscale.sheets.sheet import Block, Column, NextStep, Prose, Sheet, Title, Verbatim, facts, table


def course_sheet(report: CourseReport) -> Sheet:
    rows = [[row.chapter, f"{row.solved}/{row.problems}", row.about] for row in report.chapters]
    columns = [Column("chapter"), Column("solved", right=True), Column("about", wrap=True, keep=5)]
    foot = "In a terminal `dscale learn CHAPTER` asks the problems one by one; `--seed N` draws other numbers."
    return Sheet(
        (
            Title(f"{report.solved} of {report.problems} problems solved", f"kept in {report.progress_file}"),
            table(columns, rows, foot=foot),
            NextStep(report.next, "Next:"),
        )
    )


def lesson_sheet(report: LessonReport, detail: bool) -> Sheet:
    mark = {True: "solved", False: ""}
    rows = [
        [row.problem.partition(".")[2], row.title, mark[row.right > 0], *([", ".join(row.book)] if detail else [])]
        for row in report.problems
    ]
    columns = [Column("problem"), Column("", wrap=True, keep=5), Column("")]
    columns += [Column("in the book", wrap=True)] if detail else []
    solved = sum(row.right > 0 for row in report.problems)
    aside = f"{report.about} {solved} of {len(report.problems)} solved. To read: {report.page}"
    return Sheet((Title(report.title, aside), table(columns, rows), NextStep(report.next, "Next:")))


def problem_sheet(report: ProblemReport) -> Sheet:
    seed = f", seed {report.seed}" if report.seed else ""
    title = [Title(report.title, f"{report.problem}{seed}"), Prose(report.ask)]
    blocks: list[Block] = [*title] if report.ask else []  # a dialogue has asked it already
    if report.options:
        lines = (f"{letter}) {one}" for letter, one in zip(LETTERS, report.options, strict=False))
        blocks.append(Verbatim("\n".join(lines)))
    blocks += [Prose(f"Hint {place}: {hint}", "dim") for place, hint in enumerate(report.hints, 1)]
    if report.told:
        blocks.append(Prose(f"{report.answered}: {report.told}", "good" if report.right else "warn"))
    if report.solution:
        blocks.append(Verbatim("\n".join(f"  {step}" for step in report.solution)))
        blocks.append(facts(("answer", report.answer, "key"), ("check", report.check), ("to read", report.page)))
    elif report.right is None:
        blocks.append(Prose(f"Answer: {report.unit}{_percent(report.tolerance)}."))
    return Sheet((*blocks, *([NextStep(report.next, "Next:")] if report.next else [])))


def _percent(tolerance: float) -> str:
    return f", within {100 * tolerance:.3g}%" if tolerance else ""
