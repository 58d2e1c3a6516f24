"""Right choices: among measured alternatives, does the predicted order agree, and what does the predicted best cost?

Of training, alternatives are runs of one model and sequence on as many of the same chips with the same software, that
differ in how they were split, in their batch or in their number format; seconds per token are compared. Kendall's tau
counts pairs in the same order; a pair whose measurements differ by less than they repeat is no choice and is left out,
as are two measurements of the same run. The regret of a group is how much longer the run with the best prediction took
than the best measured one.

Of serving, alternatives are runs of one source, engine, release, model, chip, formats and lengths that differ in how
the model was split (tensor, data, expert) or in how many clients it served. What is compared is their cost:
chip-seconds of an output token. A closed loop serves clients x output tokens in the time that one request takes, so

cost = chips x (TTFT + (output - 1) x TPOT) / (clients x output)

A user chooses under a limit on TPOT that can be kept: groups of which no run keeps it are no choice there. A run that
is slower than the limit counts as dearer by as much as it misses it, cost x TPOT / limit, in the prediction by its
predicted TPOT and in the measurement by its measured one. The regret of a group at a limit is what the run with the
least predicted cost really costs over the least measured one. With a hard limit a run that misses it by a hair is no
choice at all; this is counted apart (`hard`), and there the regret is that of picks that keep it."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dragonscale.evidence.serving_rows import ServedRun
from dragonscale.evidence.training_rows import TrainingRun

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


def training_choices(judged: Iterable[tuple[TrainingRun, float]]) -> list[Choice]:
    """Every group of at least two alternatives among runs with their predicted seconds."""
    groups: dict[tuple[Any, ...], list[tuple[TrainingRun, float]]] = {}
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


LIMITS_S = (0.1, 0.05, 0.03, 0.02, 0.01)
"""Of 10, 20, 33, 50 and 100 tokens per second for each user."""
Latency = tuple[float, float]
"""Seconds to the first token, and between tokens."""
Alternative = tuple[Latency, Latency]
"""Cost and TPOT of a configuration, measured and predicted."""


def cost(run: ServedRun, latency: Latency) -> float:
    """Chip-seconds of an output token."""
    row, (first, each) = run.row, latency
    return run.plan.chips * (first + (row.output - 1) * each) / (row.clients * row.output)


def alternatives(judged: Iterable[tuple[ServedRun, Latency]]) -> list[list[Alternative]]:
    """Groups of at least two configurations; one that was measured several times counts once, with its mean."""
    groups: dict[tuple[Any, ...], dict[tuple[int, ...], list[Alternative]]] = {}
    for run, predicted in judged:
        row, plan, recipe = run.row, run.plan, run.recipe
        formats = (plan.weights, plan.compute, plan.kv, plan.attention)
        alike = (row.source, row.engine, row.version, row.model, row.chip, formats, row.input, row.output)
        special = (bool(run.drafts), recipe.cold)
        own = (plan.tensor, plan.data, plan.expert, row.clients)
        measured = (row.ttft_s, row.tpot_s)
        pair = ((cost(run, measured), row.tpot_s), (cost(run, predicted), predicted[1]))
        groups.setdefault((*alike, *special), {}).setdefault(own, []).append(pair)
    return [[_mean(same) for same in group.values()] for group in groups.values() if len(group) > 1]


def _mean(same: Sequence[Alternative]) -> Alternative:
    (cost, tpot), (guess, each) = (
        tuple(sum(pair[side][place] for pair in same) / len(same) for place in (0, 1)) for side in (0, 1)
    )
    return (cost, tpot), (guess, each)


def counted(one: Latency, limit: float | None) -> float:
    """The cost of a configuration, dearer by as much as its TPOT misses the limit.

    >>> counted((2.0, 0.03), None), counted((2.0, 0.03), 0.02), counted((2.0, 0.01), 0.02)
    (2.0, 3.0, 2.0)
    """
    spent, tpot = one
    return spent * max(1.0, tpot / limit) if limit else spent


def under(groups: Sequence[Sequence[Alternative]], limit: float | None) -> list[Choice]:
    """The choice in every group under a limit on TPOT that some run of it keeps, or under none."""
    open_to = [group for group in groups if not limit or any(seen[1] <= limit for seen, _ in group)]
    return [weigh([(counted(seen, limit), counted(guess, limit)) for seen, guess in group]) for group in open_to]


def hard(groups: Sequence[Sequence[Alternative]], limit: float) -> dict[str, Any]:
    """Choices where a configuration that misses the limit is none: groups in which some keep it, how many picks miss it
    in truth, and the mean regret of the others. Where none is expected to keep it the quickest is picked."""
    regrets, missed, some = [], 0, 0
    for group in groups:
        best = min((seen[0] for seen, _ in group if seen[1] <= limit), default=0.0)
        if not best:
            continue
        some += 1
        kept = [one for one in group if one[1][1] <= limit]
        picked = min(kept, key=lambda one: one[1][0]) if kept else min(group, key=lambda one: one[1][1])
        if picked[0][1] <= limit:
            regrets.append(picked[0][0] / best - 1)
        else:
            missed += 1
    return {"groups": some, "missed": missed, "regret_mean": sum(regrets) / len(regrets) if regrets else None}


def served_choices(judged: Iterable[tuple[ServedRun, Latency]]) -> dict[str, Any]:
    """What `dscale validate serving` says of choices: over all limits and none, and for each of them."""
    groups = alternatives(judged)
    by_limit = {limit: under(groups, limit) for limit in (None, *LIMITS_S)}
    every = [one for found in by_limit.values() for one in found]
    shown = {
        f"{limit * 1e3:g}ms" if limit else "none": summary(found) | ({"hard": hard(groups, limit)} if limit else {})
        for limit, found in by_limit.items()
    }
    return summary(every) | {"groups": len(groups), "configurations": sum(map(len, groups)), "by_limit": shown}
