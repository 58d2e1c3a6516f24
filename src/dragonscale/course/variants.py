"""A problem with fresh numbers: parameters drawn from a seed, so that the same seed always poses the same question."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dragonscale.course.problem import Posed, Problem

APART = 2.5
"""Tolerances that must lie between an answer and every trap, so that no one answer is near both."""
_TRIES = 200


@dataclass(frozen=True)
class Variant:
    """A problem, the seed it was drawn with (0: its own numbers), the parameters, and the question they make."""

    problem: Problem
    seed: int
    drawn: Mapping[str, Any]
    posed: Posed


def own_numbers(problem: Problem) -> dict[str, Any]:
    """The first value of each parameter: the book's, where the problem is the book's."""
    return {name: values[0] for name, values in problem.draws.items()}


def variant(problem: Problem, seed: int = 0) -> Variant:
    """The problem as a seed draws it; seed 0 has its own numbers. Combinations that make no sense, and those where a
    usual mistake happens to give nearly the right answer, are drawn again."""
    if seed == 0:
        posed = problem.pose(**own_numbers(problem))
        assert posed is not None, f"{problem.id} makes no sense with its own numbers"
        return Variant(problem, 0, own_numbers(problem), posed)
    chance = random.Random(f"{problem.id} {seed}")
    for _ in range(_TRIES):
        drawn = {name: chance.choice(values) for name, values in problem.draws.items()}
        posed = problem.pose(**drawn)
        if posed is not None and traps_apart(posed):
            return Variant(problem, seed, drawn, posed)
    raise AssertionError(f"{problem.id} found no variant in {_TRIES} draws")


def traps_apart(posed: Posed) -> bool:
    """Whether every trap is far enough from the answer, and so no answer can be taken for both."""
    if isinstance(posed.answer, str):
        return True
    room, answer = APART * posed.tolerance, posed.answer
    return all(abs(trap.value - answer) > room * max(abs(trap.value), abs(answer)) for trap in posed.traps)
