"""The pages of the course: every result of the book can be read off its chapter's page, every problem is on it."""

import re

import pytest

from dragonscale.course.chapters import CHAPTERS, Chapter, problems_of
from tests.book.casebook import NOT_COMPUTED, expectations, load
from tests.book.test_cases import CASES
from tools.refresh_docs import ROOT
from tools.shown_numbers import shows
from tools.write_course import unchecked, written_page

BOOK = [one for one in CHAPTERS if one.book]
ALSO = {"rooflines": ("index",)}
"""Chapters of the book that are told on another's page."""
_SECTION = re.compile(r"^#{2,4} ", re.MULTILINE)
_BLOCK = re.compile(r"```(?:console|python)\n(.*?)```", re.DOTALL)


def cases_of(chapter: Chapter) -> dict[str, dict]:
    names = (chapter.book, *ALSO.get(chapter.slug, ()))
    return {name: case for one in names for name, case in load(one).items() if name not in NOT_COMPUTED}


def results(chapter: Chapter) -> dict[str, str]:
    """The executed blocks that stand under each result's id."""
    text = (ROOT / f"docs/course/{chapter.slug}-results.md").read_text()
    found: dict[str, str] = {}
    for section in _SECTION.split(text):
        blocks = "\n".join(_BLOCK.findall(section))
        for name in re.findall(r"^`([\w-]+\.[\w-]+)`", section, re.MULTILINE):
            assert name not in found, f"{name} is told twice"
            found[name] = blocks
    return found


def numbers_in(value: object) -> list[float]:
    if isinstance(value, bool):
        return []
    if isinstance(value, int | float):
        return [float(value)]
    if isinstance(value, dict):
        return [one for part in value.values() for one in numbers_in(part)]
    return [one for part in value for one in numbers_in(part)] if isinstance(value, list) else []


@pytest.mark.parametrize("chapter", BOOK, ids=lambda one: one.slug)
def test_every_result_can_be_read_off_the_page(chapter: Chapter) -> None:
    found = results(chapter)
    cases = cases_of(chapter)
    assert set(cases) - set(found) == set(), "results that are not on the page"
    assert set(found) <= set(CASES), "results that the book does not have"
    missing: list[str] = []
    for name, case in cases.items():
        for key, value in expectations(case).items():
            if f"{name}:{key}" in NOT_COMPUTED:
                continue
            missing += [
                f"{name}:{key}={one:g}" for one in numbers_in(value) if not shows(found[name], one, case["tolerance"])
            ]
    assert not missing


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda one: one.slug)
def test_the_page_asks_every_problem(chapter: Chapter) -> None:
    text = (ROOT / chapter.page).read_text(encoding="utf-8")
    assert f"<!-- problems: {chapter.slug} -->\n`dscale learn {chapter.slug}`" in text
    built = written_page(text, unchecked)
    assert [problem.id for problem in problems_of(chapter.slug) if f"`dscale learn {problem.id}`" not in built] == []
    assert "## Next" in text
    assert not chapter.book or f"({chapter.slug}-results.md)" in text
    assert "pictures/" in text


def test_there_are_problems_enough() -> None:
    assert sum(len(problems_of(one.slug)) for one in CHAPTERS) >= 150
