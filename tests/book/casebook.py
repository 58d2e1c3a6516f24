"""The book's results as a table of tests.

A case's `given` goes to the function registered for its id with `@solves`, which computes the answer through
Dragonscale's public API and returns it under the names the case uses. Numbers are compared within the case's
tolerance; where the book itself slipped (`verdict`), the right value is expected instead of the printed one. A symbolic
case is checked on its `sample` and, where a formula is written out, as algebra.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sympy
import yaml
from sympy.core.function import AppliedUndef
from sympy.parsing.sympy_parser import implicit_multiplication, parse_expr, standard_transformations

DIRECTORY = Path(__file__).parent / "cases"
CHAPTERS = (
    "index",
    "roofline",
    "tpus",
    "sharding",
    "transformers",
    "training",
    "applied-training",
    "gpus",
    "inference",
    "applied-inference",
    "jax-stuff",
    "profiling",
)
SLIPS = ("inexact", "wrong", "inconsistent")

Solver = Callable[[dict[str, Any]], dict[str, Any]]
SOLVERS: dict[str, Solver] = {}
NOT_COMPUTED: dict[str, str] = {}
"""Cases that no calculation answers, each with its reason; `case:name` leaves out one value of a case."""


def plain(value: Any) -> Any:
    """`{value: 3, unit: s}` as 3, all the way down."""
    if isinstance(value, dict):
        return (
            plain(value["value"])
            if "value" in value and set(value) <= {"value", "unit"}
            else {k: plain(v) for k, v in value.items()}
        )
    return [plain(item) for item in value] if isinstance(value, list) else value


def load(chapter: str) -> dict[str, dict[str, Any]]:
    """The cases of a chapter by id."""
    text = (DIRECTORY / f"{chapter}.yaml").read_text()
    return {case["id"]: case for case in yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))}


def solves(*ids: str) -> Callable[[Solver], Solver]:
    """Register a function as the solver of one or more cases."""

    def register(function: Solver) -> Solver:
        for case_id in ids:
            assert case_id not in SOLVERS, f"{case_id} is solved twice"
            SOLVERS[case_id] = function
        return function

    return register


@dataclass(frozen=True)
class Both:
    """One function's answer twice: as algebra on symbols (against the printed formula) and as a number
    on the sample."""

    formula: Any
    value: Any


_FUNCTIONS = {"max": sympy.Max, "min": sympy.Min, "floor": sympy.floor, "exp": sympy.exp}
_NAME = r"(?!(?<=\d)e\d)(?:[A-Za-z]+_[A-Za-z]+|max|min|floor|exp|params|tokens|[A-Za-z]\d+|[A-Za-z])"


def formula(text: str, words: dict[str, Any] | None = None) -> Any:
    """A formula as the book writes it, each letter a positive symbol (`2BD`), and each name with a subscript
    (`W_bidi`).

    `words` are longer names that stand for one thing (`bm` is then not b·m).

    >>> formula("2BD + 2DF"), formula("max(T_min*X/2, V/W_bidi)")
    (2*B*D + 2*D*F, Max(T_min*X/2, V/W_bidi))
    """
    assert len(text) < 200, "a formula is one line"
    words = words or {}
    pattern = re.compile("|".join([*(rf"\b{re.escape(word)}\b" for word in words), _NAME]))
    names = {name: sympy.Symbol(name, positive=True) for name in pattern.findall(text)} | _FUNCTIONS | words
    spaced = pattern.sub(lambda match: f" {match[0]} ", text).replace("^", "**")
    return parse_expr(spaced, local_dict=names, transformations=(*standard_transformations, implicit_multiplication))


def same_formula(answer: Any, text: str) -> bool:
    """Whether an expression, a relation (`D > 2B`) or a tuple (`2P FLOPs, 2P data`) is what a text says; of `a = b` it
    may be either side."""
    if isinstance(answer, tuple):
        parts = [part.strip().rpartition(" ")[0] for part in text.split(",")]
        return len(parts) == len(answer) and all(map(same_formula, answer, parts))
    if isinstance(answer, sympy.core.relational.Relational):
        sides = re.fullmatch(r"([^<>]+)([<>])([^<>]+)", text)
        found = sides is not None and answer.rel_op == sides[2]
        return found and same_formula(answer.lhs, sides[1]) and same_formula(answer.rhs, sides[3])
    words = {str(symbol): symbol for symbol in answer.free_symbols if len(str(symbol)) > 1}
    words |= {call.func.__name__: call.func for call in answer.atoms(AppliedUndef)}
    return any(sympy.simplify(answer - formula(side, words)) == 0 for side in text.split("="))


def expectations(case: dict[str, Any]) -> dict[str, Any]:
    """What the solver must return: the sample's values over the computed ones (if the book slipped)
    over the printed."""
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
    if isinstance(answer, (sympy.Basic, tuple)) and isinstance(expected, str):
        return same_formula(answer, expected)
    if isinstance(expected, (int, float)):
        return math.isclose(float(answer), expected, rel_tol=max(tolerance, 1e-9), abs_tol=1e-15)
    if isinstance(expected, dict):
        return (
            isinstance(answer, dict)
            and set(answer) == set(expected)
            and all(agrees(answer[k], expected[k], tolerance) for k in expected)
        )
    if isinstance(expected, list):
        return len(answer) == len(expected) and all(
            agrees(a, e, tolerance) for a, e in zip(answer, expected, strict=True)
        )
    return str(answer) == str(expected)


def numeric(value: Any) -> bool:
    """Whether an expectation is a number, or made of numbers, and so must be answered."""
    if isinstance(value, list):
        return all(numeric(item) for item in value)
    return isinstance(value, (int, float)) and not isinstance(value, str)
