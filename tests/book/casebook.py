"""The book's results as a table of tests.

A case's `given` goes to the function registered for its id with `@solves`, which computes the answer through
Dragonscale's public API and returns it under the names the case uses. Numbers are compared within the case's
tolerance; where the book itself slipped (`verdict`), the right value is expected instead of the printed one. A symbolic
case is checked on its `sample` and, where a formula is written out, as algebra.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sympy
import yaml
from sympy.parsing.sympy_parser import implicit_multiplication, parse_expr, standard_transformations

DIRECTORY = Path(__file__).parent / "cases"
CHAPTERS = ("roofline", "tpus", "sharding", "transformers", "gpus")
SLIPS = ("inexact", "wrong", "inconsistent")

Solver = Callable[[dict[str, Any]], dict[str, Any]]
SOLVERS: dict[str, Solver] = {}
NOT_COMPUTED: dict[str, str] = {}
"""Cases that no calculation answers, each with its reason."""


def plain(value: Any) -> Any:
    """`{value: 3, unit: s}` as 3, all the way down."""
    if isinstance(value, dict):
        return plain(value["value"]) if "value" in value and set(value) <= {"value", "unit"} else {k: plain(v) for k, v in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def load(chapter: str) -> dict[str, dict[str, Any]]:
    """The cases of a chapter by id."""
    return {case["id"]: case for case in yaml.safe_load((DIRECTORY / f"{chapter}.yaml").read_text())}


def solves(*ids: str) -> Callable[[Solver], Solver]:
    """Register a function as the solver of one or more cases."""

    def register(function: Solver) -> Solver:
        for case_id in ids:
            assert case_id not in SOLVERS, f"{case_id} is solved twice"
            SOLVERS[case_id] = function
        return function

    return register


def formula(text: str, names: dict[str, Any] | None = None) -> Any:
    """A formula as the book writes it (`2BD + 2DF`), each capital letter a positive symbol.

    >>> formula("2BD + 2DF")
    2*B*D + 2*D*F
    """
    spaced = "".join(f" {c} " if c.isalpha() and len(text) < 200 else c for c in text) if names is None else text
    symbols = {letter: sympy.Symbol(letter, positive=True) for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"}
    transformations = (*standard_transformations, implicit_multiplication)
    return parse_expr(spaced.replace("^", "**"), local_dict=symbols | (names or {}), transformations=transformations)


def expectations(case: dict[str, Any]) -> dict[str, Any]:
    """What the solver must return: the sample's values over the computed ones (if the book slipped) over the printed."""
    expected = dict(plain(case["expect"]))
    if case["verdict"] in SLIPS:
        expected |= plain(case.get("computed") or {})
    return expected | plain(case.get("sample", {}).get("expect", {}))


def inputs(case: dict[str, Any]) -> dict[str, Any]:
    """What the solver is given: the case's values, with those of its sample."""
    return dict(plain(case.get("given") or {})) | plain(case.get("sample", {}).get("given", {}))


def agrees(answer: Any, expected: Any, tolerance: float) -> bool:
    """Whether an answer is what was expected: numbers within the tolerance, formulas as algebra, the rest exactly."""
    if isinstance(expected, bool) or expected is None or isinstance(answer, bool):
        return answer == expected
    if isinstance(answer, sympy.Basic) and isinstance(expected, str):
        return sympy.simplify(answer - formula(expected)) == 0
    if isinstance(expected, (int, float)):
        return math.isclose(float(answer), expected, rel_tol=max(tolerance, 1e-9), abs_tol=1e-15)
    if isinstance(expected, dict):
        return isinstance(answer, dict) and set(answer) == set(expected) and all(agrees(answer[k], expected[k], tolerance) for k in expected)
    if isinstance(expected, list):
        return len(answer) == len(expected) and all(agrees(a, e, tolerance) for a, e in zip(answer, expected, strict=True))
    return str(answer) == str(expected)


def numeric(value: Any) -> bool:
    """Whether an expectation is a number, or made of numbers, and so must be answered."""
    if isinstance(value, list):
        return all(numeric(item) for item in value)
    return isinstance(value, (int, float)) and not isinstance(value, str)
