"""A problem with fresh numbers: parameters drawn from a seed, so that the same seed always poses the same question."""

import math
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dragonscale.course.judging import takes_for
from dragonscale.course.problem import Posed, Problem, Trap
from dragonscale.course.words import in_english

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
        return Variant(problem, 0, own_numbers(problem), told_well(posed))
    chance = random.Random(f"{problem.id} {seed}")
    for _ in range(_TRIES):
        drawn = {name: chance.choice(values) for name, values in problem.draws.items()}
        posed = problem.pose(**drawn)
        if posed is not None and traps_apart(posed):
            return Variant(problem, seed, drawn, told_well(posed))
    raise AssertionError(f"{problem.id} found no variant in {_TRIES} draws")


def traps_apart(posed: Posed) -> bool:
    """Whether every trap is far enough from the answer, and so no answer can be taken for both."""
    if isinstance(posed.answer, str):
        return True
    answer = posed.answer
    if posed.whole:
        return not any(math.isclose(trap.value, answer, rel_tol=1e-9) for trap in posed.traps)
    room = APART * posed.tolerance
    return all(abs(trap.value - answer) > room * max(abs(trap.value), abs(answer)) for trap in posed.traps)


def told_well(posed: Posed) -> Posed:
    """The question with its articles and plurals put right, and each value that several mistakes give told once."""
    return replace(
        posed,
        ask=in_english(posed.ask),
        hints=tuple(map(in_english, posed.hints)),
        steps=tuple(map(in_english, posed.steps)),
        traps=tuple(Trap(trap.value, in_english(trap.why)) for trap in merged(posed)),
        check=re.sub(r"(?<=\d)e\+0*(?=\d)", "e", posed.check),
    )


def merged(posed: Posed) -> tuple[Trap, ...]:
    """The traps, those that no answer can tell apart as one: which mistake was made is not known, so both are told.

    >>> posed = Posed(
    ...     "How many bytes?", 8.0, traps=(Trap(4.0, "bf16 is two bytes."), Trap(4.0, "There are two of them."))
    ... )
    >>> merged(posed)
    (Trap(value=4.0, why='Either: bf16 is two bytes. Or: There are two of them.'),)
    """
    groups: list[list[Trap]] = []
    for trap in posed.traps:
        same = next((group for group in groups if takes_for(posed, trap.value, group[0].value)), None)
        if same is None:
            groups.append([trap])
        elif trap.why not in [other.why for other in same]:
            same.append(trap)
    return tuple(
        group[0] if len(group) == 1 else Trap(group[0].value, "Either: " + " Or: ".join(trap.why for trap in group))
        for group in groups
    )
