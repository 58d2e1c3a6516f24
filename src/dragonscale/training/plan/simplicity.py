"""Which of several plans of about the same speed an engineer would rather run.

A plan that leaves too little of a chip's memory free (`room`) is not recommended, however fast it is, while another
leaves enough. A search is sure of a step's time to some percent, so of those that leave it, plans within `SLACK` of
the fastest are as fast as it, and the recommended one is the first in this order:

1. a kind of plan that somebody has published, without `context` at sequences of `SHORT` tokens or less;
2. the fewest points of `points`: for everything that has to be set up, watched and debugged;
3. memory in plenty: a chip at most `ROOMY` full;
4. the shorter step, to `SAME`;
5. fewer microbatches a step.

To be recommended all the same, other kinds must gain more than `run_kinds.needed_gains` says: their time counts that
much more (`handicap`). Without slack the fastest that leaves room is recommended.
"""

from typing import Any

import numpy

from dragonscale.training.plan.plan import Plan, without_layers

SLACK = 0.01
"""Plans this near to the fastest are taken as equally fast: about a fifth of the median error of predicted steps."""
SAME = 0.001
"""Times and bytes this near are told apart by nothing that is measured."""
ROOMY = 0.80
"""The part of the memory that a program can allocate beyond which there is none to spare."""
SHORT = 8192
"""Sequences up to which `context` is rare."""

SCHEDULE_POINTS = {"1f1b": 0, "gpipe": 1, "interleaved": 1, "zb-h1": 3, "zbv": 4, "dualpipe": 4, "dualpipev": 4}
"""1F1B is in every trainer, interleaving in most; zero-bubble and bidirectional schedules in one or two each."""
REMAT_POINTS = {"none": 0, "block": 0, "block:N": 1, "selective": 1, "matmuls": 2, "offload": 4}
"""All or nothing is a switch of every trainer, some layers of one; what is saved of a block by name differs between
them; offload needs pinned host memory."""
CONTEXT_POINTS = {"gather": 0, "ring": 1, "ulysses": 1}
OFFLOAD_POINTS = {"none": 0, "optimizer": 4, "parameters": 5}


def word_points(words: Plan) -> int:
    """Points of a plan's words, whatever its mesh."""
    found = REMAT_POINTS.get(without_layers(words.remat), 2) + OFFLOAD_POINTS.get(words.offload, 4)
    found += 1 if words.zero == 2 else 0
    return found + (1 if words.etp else 0) + (1 if words.layout != "even" else 0)


def points(words: Plan, numbers: dict[str, Any], sequence: int) -> Any:
    """Points of plans that share their words: two for each mesh axis that splits something (one for replicas beside
    `fsdp`), and for what is rare beyond that. Fewer is simpler.

    >>> from dragonscale.training.plan.plan_file import parse_plan
    >>> def of(text):
    ...     plan = parse_plan(text)
    ...     return int(points(plan, vars(plan), 8192))
    >>> of("fsdp=8"), of("data=2 fsdp=4"), of("cp8 ring"), of("pp4 tp8 z1"), of("pp4 tp8 z2 v2 interleaved")
    (2, 3, 4, 4, 6)
    """
    fsdp, data, pipe, context = (numpy.asarray(numbers[name]) for name in ("fsdp", "data", "pipe", "context"))
    found = 2 * (
        (pipe > 1).astype(int) + (numpy.asarray(numbers["expert"]) > 1) + (numpy.asarray(numbers["tensor"]) > 1)
    )
    whole = 3 if words.zero else 2  # replicas of what ZeRO could shard over them
    found = found + numpy.where(fsdp > 1, 2, 0) + numpy.where(data > 1, numpy.where(fsdp > 1, 1, whole), 0)
    short = 3 if sequence <= SHORT else 2
    found = found + numpy.where(context > 1, short + CONTEXT_POINTS.get(words.context_by, 1), 0)
    piped = SCHEDULE_POINTS.get(words.schedule, 4) + (1 if words.zero == 3 else 0)
    found = found + numpy.where(pipe > 1, piped, 0) + (numpy.asarray(numbers["virtual"]) > 4)
    return found + word_points(words)


def handicap(gains: Any, slack: float) -> Any:
    """What the time of plans counts that must gain so much to be recommended."""
    return numpy.maximum(1.0, (1 + gains) / (1 + slack)) if slack else numpy.ones_like(gains)


def order(seconds: Any, filled: Any, scores: Any, microbatches: Any, slack: float, rare: Any = False) -> Any:
    """Places of plans, the recommended one first: those within the slack of the fastest by the order above (`rare`:
    of which kinds more is asked), then the others by time.

    >>> order(
    ...     numpy.array([1.0, 1.005, 1.2]), numpy.array([0.5, 0.5, 0.1]), numpy.array([6, 2, 0]), numpy.ones(3), 0.01
    ... ).tolist()
    [1, 0, 2]
    """
    apart = numpy.log(seconds / seconds.min())
    if not slack:
        return numpy.lexsort((microbatches, scores, numpy.round(apart * 1e9)))
    late, handicapped = seconds > seconds.min() * (1 + slack), numpy.broadcast_to(rare, len(seconds))
    rounded = numpy.round(apart / numpy.log1p(SAME))
    near = numpy.lexsort((microbatches, rounded, filled > ROOMY, scores, handicapped, late))
    slower = numpy.flatnonzero(late)
    return numpy.concatenate([near[~late[near]], slower[numpy.argsort(seconds[late], kind="stable")]])
