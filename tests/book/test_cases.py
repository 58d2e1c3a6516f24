"""Every result of the book that can be computed, through the public API, under its id."""

import importlib
from typing import Any

import pytest

from tests.book import casebook
from tests.book.casebook import CHAPTERS, NOT_COMPUTED, SOLVERS, Both, agrees, expectations, inputs, load, numeric

CASES: dict[str, dict[str, Any]] = {}
for chapter in CHAPTERS:
    importlib.import_module(f"tests.book.solve_{chapter.replace('-', '_')}")
    CASES |= load(chapter)


@pytest.mark.parametrize("case_id", [case_id for case_id in CASES if case_id not in NOT_COMPUTED])
def test_case(case_id: str) -> None:
    case = CASES[case_id]
    assert case_id in SOLVERS, f"{case_id} has no solver and no reason in NOT_COMPUTED"
    expected = expectations(case)
    answer = SOLVERS[case_id](inputs(case))
    assert answer, "a solver must answer something"
    for name, value in answer.items():
        assert name in expected, f"{case_id} expects {sorted(expected)}, not {name!r}"
        if isinstance(value, Both):
            printed = case["expect"][name]
            assert agrees(value.formula, printed, 0), f"{name}: got {value.formula}, the book has {printed}"
            value = value.value
        assert agrees(value, expected[name], case["tolerance"]), (
            f"{name}: got {value!r}, the book has {expected[name]!r}"
        )
    missing = [
        name
        for name, value in expected.items()
        if numeric(value) and name not in answer and f"{case_id}:{name}" not in NOT_COMPUTED
    ]
    assert not missing, f"{case_id} leaves out {missing}"


def test_few_cases_are_left_out() -> None:
    """Under 5% may be without a computation, each with its reason."""
    assert {key.partition(":")[0] for key in NOT_COMPUTED} <= set(CASES)
    assert not set(NOT_COMPUTED) & set(SOLVERS)
    assert all(len(reason) > 20 for reason in NOT_COMPUTED.values())
    assert len(NOT_COMPUTED) < 0.05 * len(CASES)


def test_a_wrong_answer_is_noticed() -> None:
    """The comparison itself can fail."""
    assert not casebook.agrees(241, 240, 0.001)
    assert not casebook.agrees(casebook.formula("2BD"), "2BD + 2DF", 0)
    assert casebook.agrees(casebook.formula("2DF + 2BD"), "2BD + 2DF", 0)
