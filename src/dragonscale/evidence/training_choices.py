"""Right choices: among measured alternatives of the same model on the same chips, does the
predicted order agree?

Alternatives are runs of one model and sequence on as many of the same chips with the same software,
that differ in how they were split, in their batch or in their number format; seconds per token are
compared. Kendall's tau counts pairs in the same order; a pair whose measurements differ by less
than they repeat is no choice and is left out, as are two measurements of the same run. The regret
of a group is how much longer the run with the best prediction took than the best measured one."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dragonscale.evidence.training_rows import MeasuredRun

REPEATS = 0.02
"""Measurements of one run differ by about this part from time to time."""


@dataclass(frozen=True)
class Choice:
    """A group of alternatives: pairs in the same and in the other order, and the regret of the
    predicted best."""

    agreeing: int
    opposing: int
    regret: float


def weigh(pairs: Sequence[tuple[float, float]]) -> Choice:
    """A group from its (measured, predicted) seconds.

    >>> weigh([(1.0, 1.1), (2.0, 1.9), (3.0, 3.3)])
    Choice(agreeing=3, opposing=0, regret=0.0)
    """
    agreeing = opposing = 0
    for (one, guess), (other, second) in itertools.combinations(pairs, 2):
        if abs(one - other) <= REPEATS * min(one, other) or guess == second:
            continue
        agreeing += (one - other) * (guess - second) > 0
        opposing += (one - other) * (guess - second) <= 0
    picked = min(pairs, key=lambda pair: pair[1])[0]
    return Choice(agreeing, opposing, picked / min(measured for measured, _ in pairs) - 1)


def choices(judged: Iterable[tuple[MeasuredRun, float]]) -> list[Choice]:
    """Every group of at least two alternatives among runs with their predicted seconds."""
    groups: dict[tuple[Any, ...], list[tuple[MeasuredRun, float]]] = {}
    for run, seconds in judged:
        job, software = run.job, run.row.stack.partition("-")[0]
        key = (job.model.name.lower(), str(job.slice), job.sequence, job.model.n_layers, software)
        groups.setdefault(key, []).append((run, seconds))
    alternatives = [members for members in groups.values() if len({run.plan for run, _ in members}) > 1]
    return [
        weigh([(run.row.step_s / run.job.tokens, seconds / run.job.tokens) for run, seconds in members])
        for members in alternatives
    ]


def summary(found: Sequence[Choice]) -> dict[str, float]:
    """Over all groups: Kendall's tau over all pairs, and the mean and largest regret."""
    agreeing, opposing = sum(one.agreeing for one in found), sum(one.opposing for one in found)
    regrets = [one.regret for one in found] or [0.0]
    return {
        "groups": len(found),
        "pairs": agreeing + opposing,
        "tau": (agreeing - opposing) / max(agreeing + opposing, 1),
        "regret_mean": sum(regrets) / len(regrets),
        "regret_max": max(regrets),
    }
