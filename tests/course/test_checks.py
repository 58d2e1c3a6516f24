"""The command that checks an answer ends well and shows it, with fresh numbers too."""

import pytest

from dragonscale.course.chapters import all_problems
from dragonscale.course.problem import Posed, Problem
from dragonscale.course.variants import variant
from tools.write_course import checked

PROBLEMS = all_problems()


def check_the_check(problem: Problem, seed: int) -> None:
    posed = variant(problem, seed).posed
    assert posed.check.startswith("dscale "), f"{problem.id} seed {seed} has no check"
    assert checked(problem, posed)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id)
def test_a_check_shows_the_answer(problem: Problem) -> None:
    check_the_check(problem, 901)


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id)
def test_a_check_shows_other_answers(problem: Problem) -> None:
    for seed in (902, 903):
        check_the_check(problem, seed)


@pytest.mark.parametrize(
    ("check", "told"),
    [
        ('dscale calc "82000000000000.0 FLOP + 1 byte"', "ends with 2"),
        ('dscale calc "82e12 + 9e12"', "does not show"),
    ],
)
def test_an_error_is_no_check(check: str, told: str) -> None:
    posed = Posed("Which rate?", 82e12, check=check)
    with pytest.raises(SystemExit, match=told):
        checked(PROBLEMS[0], posed)
