"""With its own numbers a problem's answer is the book's, or what is right where the book slips."""

import math

import pytest

from dragonscale.course.chapters import all_problems
from dragonscale.course.problem import Problem
from dragonscale.course.variants import variant
from tests.book.casebook import CHAPTERS, expectations, load, numeric

CASES = {name: case for chapter in CHAPTERS for name, case in load(chapter).items()}
REPRODUCED = [(problem, case) for problem in all_problems() for case in problem.cases]


@pytest.mark.parametrize(("problem", "case"), REPRODUCED, ids=[f"{one.id}-{case}" for one, case in REPRODUCED])
def test_the_own_numbers_are_the_books(problem: Problem, case: str) -> None:
    case_id, _, name = case.partition(":")
    assert case_id in CASES, f"the book has no result {case_id}"
    expected = expectations(CASES[case_id])
    if not name:
        names = [one for one, value in expected.items() if numeric(value) or len(expected) == 1]
        assert len(names) == 1, f"{case_id} has several values, {sorted(expected)}; name one as {case_id}:NAME"
        name = names[0]
    found, wanted = variant(problem).posed.answer, expected[name]
    if isinstance(found, str):
        assert str(wanted).casefold() == found.casefold()
        return
    tolerance = max(CASES[case_id]["tolerance"], 1e-6)
    assert math.isclose(found, float(wanted), rel_tol=tolerance), f"{found:g}, and the book has {wanted:g}"
