"""The course on the page: its chapters and problems, and one problem asked, hinted at, judged and solved.

Nothing is kept here: the reader's browser remembers what was solved.

>>> from dragonscale.web.page_request import PageRequest
>>> request = PageRequest.read({"view": "learn", "panels": ["course"]}, lambda _: None)
>>> course_panel(request)["chapters"][0]["chapter"]
'rooflines'
"""

from typing import Any

from dragonscale.commands.learn import named_problem, problem_report
from dragonscale.commands.questions.facts import LearnQuestion
from dragonscale.commands.questions.flag import fields_of
from dragonscale.course.chapters import CHAPTERS, problems_of
from dragonscale.course.judging import judge
from dragonscale.course.variants import variant
from dragonscale.errors import InputError, unknown
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.cards import fields

LONGEST = 200
"""Characters of an answer."""
_FIELDS = ("name", "seed", "answer", "hint", "solution")


def course_panel(_: PageRequest) -> dict[str, Any]:
    """Every chapter with the problems it has."""
    chapters = []
    for chapter in CHAPTERS:
        problems = [fields(problem, "id title") for problem in problems_of(chapter.slug)]
        named = {"chapter": chapter.slug, "page": _page(chapter.page), "problems": problems}
        chapters.append(fields(chapter, "title about picture") | named)
    return {"chapters": chapters}


def problem_panel(request: PageRequest) -> dict[str, Any]:
    """A problem as `dscale learn NAME --json` has it."""
    names = [field.name for field in fields_of(LearnQuestion) if field.name in _FIELDS]
    for name in request.fields:
        if name not in names:
            raise unknown("field of a problem called", name, names)
    question = LearnQuestion(**dict(request.fields))
    if len(question.answer) > LONGEST:
        raise InputError(f"The answer has {len(question.answer):,} characters; at most {LONGEST} are read.")
    problem = variant(named_problem(question.name.strip().lower()), question.seed)
    verdict = judge(problem.posed, question.answer) if question.answer else None
    report = problem_report(problem, verdict, question.answer, question.hint, question.solution)
    return {**report.to_dict(), "hint_count": len(problem.posed.hints), "page": _page(report.page)}


def _page(path: str) -> str:
    """A page of the docs by its name, as addresses are made of it."""
    return path.removeprefix("docs/").removesuffix(".md")


PANELS = {"course": course_panel, "problem": problem_panel}
