"""Speculative decoding on a real deployment: what drafting and verifying cost there, how much to draft, when it hurts.

Verifying k drafts is an iteration with k + 1 new tokens for every sequence: the weights and the cache are read once as
for one token, the matmuls grow. While the batch is small that is almost free; towards the critical batch every draft
that is rejected costs as much as a token. A deployment's plan may hold arrays: many at once.

How often drafts are right: one chance for all of them, or one for each position.

A chance is that of a draft whose forerunners were all right. Later drafts are right less often: DeepSeek-V3 reports
0.85 to
0.9 for the second token, and heads that go on from there lose about a tenth with every further one. (vLLM logs how
often a position was reached *and* right: each of its numbers over the one before it is the chance meant here.)

>>> read_acceptance("0.85,0.7,0.5")
(0.85, 0.7, 0.5)
>>> round(tokens_per_loop(0.75, 3), 3), round(tokens_per_loop((0.85, 0.7, 0.5), 3), 4)
(2.734, 2.7425)
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy

from dragonscale.errors import InputError, shorten
from dragonscale.models.transformer import Transformer
from dragonscale.physics.numbers import Number
from dragonscale.plan.settings import shipped_table
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.phases import decode, iteration_cost

Acceptance = float | tuple[float, ...]


def read_acceptance(text: str, flag: str = "--accept") -> tuple[float, ...]:
    """`0.8` or `0.85,0.7,0.5`: the chance of every draft, or of each in turn (the last of them for all
    further ones)."""
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(
            f"{flag} is {shorten(text)}; write the probability that a draft is right, or one for each: 0.85,0.7,0.5."
        ) from None
    check_acceptance(found, flag)
    return found


def check_acceptance(acceptance: Acceptance, what: str = "The acceptance of a draft") -> None:
    """Refuse what are no probabilities."""
    for chance in acceptance if isinstance(acceptance, tuple) else (acceptance,):
        if not 0 <= chance <= 1:
            raise InputError(f"{what} is {chance}; it is a probability between 0 and 1.")


def chance_at(acceptance: Acceptance | Number, place: int) -> Number:
    """The chance of one draft, counted from 0, those before it right."""
    if isinstance(acceptance, tuple):
        return acceptance[min(place, len(acceptance) - 1)]
    return acceptance


def reached(acceptance: Acceptance | Number, drafts: int) -> list[Number]:
    """How often each draft and all before it are right."""
    found: list[Number] = []
    for place in range(drafts):
        found.append(chance_at(acceptance, place) * (found[-1] if found else 1))
    return found


def tokens_per_loop(acceptance: Acceptance | Number, drafts: int) -> Number:
    """Tokens of one loop, on average: drafts up to the first wrong one, and the one that the model itself adds."""
    return 1 + sum(reached(acceptance, drafts))


MOST = 8
"""Drafts of one loop beyond which nobody goes unless asked to."""
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class Draft:
    """Who drafts: a small `model` on the same chips, or heads of the model's own (multi-token modules, EAGLE) that take
    `part` of a step of it for each draft. `acceptance` is the probability that a draft is right, the ones before it
    right, for all of them or by position; `counts` are the numbers of drafts to choose from."""

    acceptance: Acceptance
    model: Transformer | None = None
    part: float = 0.0
    counts: tuple[int, ...] = tuple(range(MOST + 1))
    source: str = ""
    """Who says the acceptance, where nobody who asks does."""

    def __post_init__(self) -> None:
        check_acceptance(self.acceptance)


@dataclass(frozen=True)
class Speculated:
    """One loop of drafting and verifying: seconds of each, tokens it yields on average, and the plain
    step beside it."""

    drafts: int
    drafting: float
    verifying: float
    tokens: float
    plain: float

    @property
    def tpot(self) -> float:
        """Seconds per token."""
        return (self.drafting + self.verifying) / self.tokens

    @property
    def speedup(self) -> float:
        """How much sooner tokens come than without drafts; below 1 it hurts."""
        return self.plain / self.tpot


def head_part(model: Transformer, layers: float = 1.0) -> float:
    """The part of a step that one multi-token head takes: its layers among the model's, and half as much for the
    model's own head again.

    >>> from dragonscale.models import load_model
    >>> 0.015 < head_part(load_model("deepseek-v3")) < 0.05
    True
    """
    return (layers + 0.5) / model.n_layers


def has_heads(model: Transformer) -> bool:
    """Whether a checkpoint comes with multi-token modules.

    >>> from dragonscale.models import load_model
    >>> has_heads(load_model("deepseek-v3")), has_heads(load_model("kimi-k2"))
    (True, False)
    """
    return any(section.name.startswith("mtp") for section in model.extras)


def own_draft(model: Transformer, counts: Sequence[int] = ()) -> Draft | None:
    """Drafts by a checkpoint's own multi-token modules, as often right as such are published to be; as many as people
    run, or one of `counts`. None without such modules."""
    if not has_heads(model):
        return None
    row = shipped_table("serving.steady", "drafts.toml")["mtp"]
    chances = tuple(row["acceptance"])
    return Draft(chances, None, head_part(model), tuple(counts or range(len(chances) + 1)), row["source"])


def drafting_seconds(deployment: Deployment, draft: Draft, batch: Number, keys: Number, step: Number) -> Number:
    """Seconds of one draft for every sequence; `step` is the plain decode step."""
    if draft.model is None:
        return draft.part * step
    small = replace(deployment, model=draft.model, plan=replace(deployment.plan, expert=1, pipe=1))
    return iteration_cost(small, decode(batch, keys)).expected


def loop_seconds(deployment: Deployment, draft: Draft, batch: Any, keys: Number, plain: Any) -> tuple[Any, Any]:
    """Seconds per token with the best of the draft's counts, and that count, for many batches at once; `plain` is the
    step without drafts."""
    counts = numpy.array(draft.counts)
    some = counts[counts > 0][:, None]
    verify = iteration_cost(deployment, decode(batch, keys, some + 1.0)).expected if some.size else plain
    verify = numpy.broadcast_to(verify, (max(len(some), 1), *numpy.shape(plain)))
    if draft.source and 0 in draft.counts:  # nobody asked for drafts, which engines make in no pipeline
        verify = numpy.where(numpy.asarray(deployment.plan.pipe) > 1, numpy.inf, verify)
    rows, each = iter(verify), drafting_seconds(deployment, draft, batch, keys, plain)
    loops = ((next(rows) + count * each) if count else plain for count in draft.counts)
    tokens = (tokens_per_loop(draft.acceptance, count) for count in draft.counts)
    table = numpy.stack([loop / made for loop, made in zip(loops, tokens, strict=True)])
    return table.min(axis=0), counts[table.argmin(axis=0)]


def speculate(
    deployment: Deployment, draft: Draft, batch: float, keys: float, counts: Sequence[int] = tuple(range(MOST + 1))
) -> list[Speculated]:
    """Loops of some numbers of drafts for a batch whose sequences hold `keys` tokens each."""
    queries = numpy.array([0, *counts]) + 1.0
    verify = numpy.broadcast_to(iteration_cost(deployment, decode(batch, keys, queries)).expected, queries.shape)
    each = float(numpy.ravel(drafting_seconds(deployment, draft, batch, keys, verify[0]))[0])
    tokens = [float(tokens_per_loop(draft.acceptance, count)) for count in counts]
    rows = zip(counts, verify[1:].tolist(), tokens, strict=True)
    return [Speculated(count, count * each, taken, made, float(verify[0])) for count, taken, made in rows]


def break_even(deployment: Deployment, draft: Draft, keys: float, batches: Iterable[int] = BATCHES) -> int | None:
    """The smallest batch of those looked at from which drafting no longer helps; None if it helps at all of them."""
    sizes = numpy.array([*batches], float)
    plain = numpy.broadcast_to(iteration_cost(deployment, decode(sizes, keys)).expected, sizes.shape)
    counts = draft.counts if draft.source else tuple(range(MOST + 1))
    _, best = loop_seconds(deployment, replace(draft, counts=counts), sizes, keys, plain)
    return next((int(size) for size, drafts in zip(sizes, best, strict=True) if drafts == 0), None)
