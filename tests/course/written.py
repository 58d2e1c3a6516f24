"""The problems of every chapter, for the tests of this folder."""

from dragonscale.course.chapters import all_problems
from dragonscale.course.problem import Problem


def written() -> list[Problem]:
    """Every problem, chapter by chapter."""
    return list(all_problems())
