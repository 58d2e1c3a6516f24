"""The course on the page: its chapters and problems, and one problem asked, hinted at, judged and solved.

Nothing is kept here: the reader's browser remembers what was solved.

>>> from dragonscale.web.page_request import PageRequest
>>> asked = PageRequest.read({"view": "learn", "panels": ["course"]}, lambda _: None)
>>> course_panel(asked)["chapters"][0]["chapter"]
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
    for one in CHAPTERS:
        problems = [fields(problem, "id title") for problem in problems_of(one.slug)]
        named = {"chapter": one.slug, "page": _page(one.page), "problems": problems}
        chapters.append(fields(one, "title about picture") | named)
    return {"chapters": chapters}


def problem_panel(asked: PageRequest) -> dict[str, Any]:
    """A problem as `dscale learn NAME --json` has it."""
    known = [field.name for field in fields_of(LearnQuestion) if field.name in _FIELDS]
    for name in asked.fields:
        if name not in known:
            raise unknown("field of a problem called", name, known)
    question = LearnQuestion(**dict(asked.fields))
    if len(question.answer) > LONGEST:
        raise InputError(f"The answer has {len(question.answer):,} characters; at most {LONGEST} are read.")
    made = variant(named_problem(question.name.strip().lower()), question.seed)
    verdict = judge(made.posed, question.answer) if question.answer else None
    report = problem_report(made, verdict, question.answer, question.hint, question.solution)
    return {**report.to_dict(), "hint_count": len(made.posed.hints), "page": _page(report.page)}


def _page(path: str) -> str:
    """A page of the docs by its name, as addresses are made of it."""
    return path.removeprefix("docs/").removesuffix(".md")


PANELS = {"course": course_panel, "problem": problem_panel}
