"""The problems of every chapter that is written, for the tests of this folder."""

import importlib.util

from dragonscale.course.chapters import CHAPTERS, problems_of
from dragonscale.course.problem import Problem


def written() -> list[Problem]:
    """Every problem, chapter by chapter."""
    modules = [one for one in CHAPTERS if importlib.util.find_spec(_module(one.slug))]
    return [one for chapter in modules for one in problems_of(chapter.slug)]


def _module(slug: str) -> str:
    return f"dragonscale.course.problems.{slug.replace('-', '_')}"
