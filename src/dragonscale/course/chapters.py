"""The chapters of the course, in order (`chapters.toml`), and the problems of each (`problems/CHAPTER.txt`)."""

from functools import cache
from importlib.resources import files

import msgspec

from dragonscale.course.problem import Problem
from dragonscale.course.problem_file import read_problems
from dragonscale.errors import unknown
from dragonscale.tables import Strict

_FOLDER = files("dragonscale.course")


class Chapter(Strict, frozen=True):
    """A chapter: its slug, its title, the question it answers; `book` is the book's chapter, where it has one."""

    slug: str
    title: str
    about: str
    book: str = ""

    @property
    def page(self) -> str:
        return f"docs/course/{self.slug}.md"


_TABLE = _FOLDER.joinpath("chapters.toml").read_bytes()
CHAPTERS = msgspec.toml.decode(_TABLE, type=dict[str, tuple[Chapter, ...]])["chapter"]


def find_chapter(slug: str) -> Chapter:
    """The chapter of a slug."""
    for chapter in CHAPTERS:
        if chapter.slug == slug:
            return chapter
    raise unknown("chapter", slug, [chapter.slug for chapter in CHAPTERS])


@cache
def problems_of(slug: str) -> tuple[Problem, ...]:
    """The problems of a chapter, in the order of its file."""
    name = f"{find_chapter(slug).slug}.txt"
    return read_problems(slug, _FOLDER.joinpath("problems", name).read_text(encoding="utf-8"), name)


def all_problems() -> tuple[Problem, ...]:
    """Every problem, chapter by chapter."""
    return tuple(problem for chapter in CHAPTERS for problem in problems_of(chapter.slug))
