"""Speculative decoding on a real deployment: what drafting and verifying cost, how much to draft, when it hurts.

Verifying k drafts is an iteration with k + 1 new tokens for every sequence. Weights and cache are read once as for one
token, while the matmuls grow. While the batch is small that is almost free; towards the critical batch every rejected
draft costs as much as a token. A deployment's plan may hold arrays: many plans at once.

The acceptance is the chance that a draft is right, given that the drafts before it were: one for all drafts, or one for
each position. Later drafts are right less often: DeepSeek-V3 reports 0.85 to 0.9 for the second token, and heads that
continue from there lose about a tenth with each further one. (vLLM logs how often a position was reached *and* right:
each of its numbers over the one before it is the chance meant here.)

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
from dragonscale.models import load_model
from dragonscale.models.transformer import Transformer, count_parameters
from dragonscale.physics.numbers import Number, first_number
from dragonscale.plan.settings import shipped_table
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.phases import decode, iteration_cost

Acceptance = float | tuple[float, ...]


def read_acceptance(text: str, flag: str = "--accept") -> tuple[float, ...]:
    """`0.8` or `0.85,0.7,0.5`: the chance of every draft, or of each in turn (the last for all further ones)."""
    try:
        acceptance = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(
            f"{flag} is {shorten(text)}; write the probability that a draft is right, or one for each: 0.85,0.7,0.5."
        ) from None
    check_acceptance(acceptance, flag)
    return acceptance


def check_acceptance(acceptance: Acceptance, what: str = "The acceptance of a draft") -> None:
    """Refuse numbers that are no probabilities."""
    for chance in acceptance if isinstance(acceptance, tuple) else (acceptance,):
        if not 0 <= chance <= 1:
            raise InputError(f"{what} is {chance}; it is a probability between 0 and 1.")


def chance_at(acceptance: Acceptance | Number, position: int) -> Number:
    """The chance of one draft, counted from 0, given that those before it are right."""
    if isinstance(acceptance, tuple):
        return acceptance[min(position, len(acceptance) - 1)]
    return acceptance


def reached(acceptance: Acceptance | Number, drafts: int) -> list[Number]:
    """The chance that each draft and all before it are right."""
    chances: list[Number] = []
    chance: Number = 1
    for position in range(drafts):
        chance = chance_at(acceptance, position) * chance
        chances.append(chance)
    return chances


def tokens_per_loop(acceptance: Acceptance | Number, drafts: int) -> Number:
    """Mean tokens of one loop: drafts up to the first wrong one, and the one that the model itself adds."""
    return 1 + sum(reached(acceptance, drafts))


MAX_DRAFTS = 8
"""Most drafts of one loop that are considered by default."""
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class Draft:
    """Who drafts: a small `model` on the same chips, or the model's own heads (multi-token modules, EAGLE), which take
    `part` of a step of it for each draft.

    `acceptance` is the chance that a draft is right if those before it are, for all of them or by position; `counts`
    are the numbers of drafts to choose from.
    """

    acceptance: Acceptance
    model: Transformer | None = None
    part: float = 0.0
    counts: tuple[int, ...] = tuple(range(MAX_DRAFTS + 1))
    source: str = ""
    """The source of the acceptance, if it is not the user's."""
    kind: str = ""
    """Who drafts, by the name that `drafts.toml` has; empty where that is left open."""

    def __post_init__(self) -> None:
        check_acceptance(self.acceptance)


@dataclass(frozen=True)
class Speculated:
    """One loop of drafting and verifying: seconds of each, its mean tokens, and the plain step to compare with."""

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
        """How much faster tokens come than without drafts; below 1 drafting hurts."""
        return self.plain / self.tpot


def head_part(model: Transformer, layers: float = 1.0) -> float:
    """The fraction of a step that one multi-token head takes: the parameters of its layers and of the output head,
    which it runs again, over those that a token of the model meets.

    >>> from dragonscale.models import load_model
    >>> 0.03 < head_part(load_model("deepseek-v3")) < 0.05
    True
    >>> 0.08 < head_part(load_model("llama3-8b")) < 0.11
    True
    """
    dims = model.program().sections[-1].dims
    head = float(dims["d"] * dims["v"])
    inside = float(count_parameters(model).active) - head * (1 if model.tied else 2)
    return (layers * inside / model.n_layers + head) / (inside + head)


def drafter_kinds() -> dict[str, Any]:
    """Kinds of drafters that can be asked for by name, each with its usual acceptance."""
    return shipped_table("serving.steady", "drafts.toml")


def named_draft(kind: str, model: Transformer, counts: Sequence[int] = (), acceptance: Acceptance = ()) -> Draft:
    """Drafts of a kind for a model, with an acceptance or the one that is published for such.

    >>> from dragonscale.models import load_model
    >>> llama = load_model("llama3-8b")
    >>> [round(float(tokens_per_loop(named_draft(kind, llama).acceptance, 4)), 2) for kind in ("eagle", "ngram")]
    [2.21, 1.39]
    """
    row = drafter_kinds()[kind]
    # n-gram lookup runs on the host alone
    part = head_part(model, row["layers"]) if "layers" in row else 0.0
    source = "" if acceptance else row["source"]
    choices = tuple(counts or range(MAX_DRAFTS + 1))
    return Draft(acceptance or tuple(row["acceptance"]), None, part, choices, source, kind)


def has_heads(model: Transformer) -> bool:
    """Whether a checkpoint comes with multi-token modules.

    >>> from dragonscale.models import load_model
    >>> has_heads(load_model("deepseek-v3")), has_heads(load_model("kimi-k2"))
    (True, False)
    """
    return any(section.name.startswith("mtp") for section in model.extras)


def own_draft(model: Transformer, counts: Sequence[int] = ()) -> Draft | None:
    """Drafts by a checkpoint's own multi-token modules, with the acceptance that is published for such.

    As many as people run, or one of `counts`. None without such modules.
    """
    if not has_heads(model):
        return None
    return named_draft("mtp", model, counts or range(len(drafter_kinds()["mtp"]["acceptance"]) + 1))


def read_drafter(
    text: str, model: Transformer, counts: Sequence[int] = (), acceptance: tuple[float, ...] = ()
) -> Draft:
    """Who drafts for a model as it is written: a kind (`eagle`, `mtp`, `mlp`, `ngram`) or another model, with an
    acceptance or the one that is published for such.

    >>> from dragonscale.models import load_model
    >>> read_drafter("n-gram", load_model("llama3-8b")).kind, read_drafter("llama3.2-1b", load_model("llama3-8b")).kind
    ('ngram', 'model')
    """
    kinds = drafter_kinds()
    kind = text.strip().strip("[]").lower().replace("-", "")
    if kind in kinds and kind != "model":
        if kind == "mtp" and not has_heads(model) and not acceptance:
            raise InputError(f"{model.name} has no MTP modules; --draft eagle, ngram or a small model drafts for it.")
        return named_draft(kind, model, counts, acceptance)
    usual, source = tuple(kinds["model"]["acceptance"]), kinds["model"]["source"]
    if acceptance:
        usual, source = acceptance, ""
    choices = tuple(counts or range(MAX_DRAFTS + 1))
    return Draft(usual, load_model(text), counts=choices, source=source, kind="model")


def drafting_seconds(deployment: Deployment, draft: Draft, batch: Number, keys: Number, step: Number) -> Number:
    """Seconds of one draft for every sequence; `step` are those of the plain decode step."""
    if draft.model is None:
        return draft.part * step
    small = replace(deployment, model=draft.model, plan=replace(deployment.plan, expert=1, pipe=1))
    return iteration_cost(small, decode(batch, keys)).expected


def overhead_seconds(deployment: Deployment) -> float:
    """Seconds that each loop adds on the host: proposing, sampling what is right, scheduling that cannot run ahead."""
    return deployment.engine.host.draft_step_s


def loop_seconds(deployment: Deployment, draft: Draft, batch: Any, keys: Number, plain: Any) -> tuple[Any, Any]:
    """Seconds per token with the best of the draft's counts, and that count, for many batches at once: (rows,) each.

    `plain` are the seconds of the step without drafts.
    """
    counts = numpy.array(draft.counts)
    positive = counts[counts > 0][:, None]  # (counts, 1)
    verify = plain
    if positive.size:
        verify = iteration_cost(deployment, decode(batch, keys, positive + 1.0)).expected
    verify = numpy.broadcast_to(verify, (max(len(positive), 1), *numpy.shape(plain)))  # (counts, rows)
    if draft.kind == "mtp" and draft.source and 0 in draft.counts:
        # drafts that nobody asked for: engines draft in no pipeline
        verify = numpy.where(numpy.asarray(deployment.plan.pipe) > 1, numpy.inf, verify)
    verifying, draft_s = iter(verify), drafting_seconds(deployment, draft, batch, keys, plain)
    per_token: list[Any] = []
    for count in draft.counts:
        # without drafts a loop is one plain step
        loop_s = plain
        if count:
            loop_s = next(verifying) + count * draft_s + overhead_seconds(deployment)
        per_token.append(loop_s / tokens_per_loop(draft.acceptance, count))
    table = numpy.stack(per_token)  # (counts, rows)
    table = numpy.where(counts[:, None] * _beyond(deployment, draft, batch) > 0, numpy.inf, table)
    return table.min(axis=0), counts[table.argmin(axis=0)]


def _beyond(deployment: Deployment, draft: Draft, batch: Any) -> Any:
    """Whether batches are larger than the engine runs where it drafts; never where no other count is allowed."""
    most = deployment.engine.scheduling.draft_sequences
    if not most or 0 not in draft.counts:
        return numpy.zeros_like(batch)
    return numpy.asarray(batch) > most * numpy.asarray(deployment.plan.data)


def speculate(
    deployment: Deployment,
    draft: Draft,
    batch: float,
    keys: float,
    counts: Sequence[int] = tuple(range(MAX_DRAFTS + 1)),
) -> list[Speculated]:
    """Loops of some numbers of drafts for a batch whose sequences have `keys` cached tokens each."""
    queries = numpy.array([0, *counts]) + 1.0  # the plain step first
    verify = numpy.broadcast_to(iteration_cost(deployment, decode(batch, keys, queries)).expected, queries.shape)
    plain, *verifying = verify.tolist()
    draft_s = first_number(drafting_seconds(deployment, draft, batch, keys, verify[0]))
    loops: list[Speculated] = []
    for count, verify_s in zip(counts, verifying, strict=True):
        tokens = float(tokens_per_loop(draft.acceptance, count))
        drafting = 0.0
        if count:
            drafting = count * draft_s + overhead_seconds(deployment)
        loops.append(Speculated(count, drafting, verify_s, tokens, plain))
    return loops


def break_even(deployment: Deployment, draft: Draft, keys: float, batches: Iterable[int] = BATCHES) -> int | None:
    """The smallest of some batches from which drafting no longer helps; None if it helps at all of them."""
    sizes = numpy.array([*batches], float)
    plain = numpy.broadcast_to(iteration_cost(deployment, decode(sizes, keys)).expected, sizes.shape)
    counts = tuple(range(MAX_DRAFTS + 1))
    if draft.kind == "mtp" and draft.source:
        counts = (0, *(count for count in draft.counts if count))
    _, best = loop_seconds(deployment, replace(draft, counts=counts), sizes, keys, plain)
    return next((int(size) for size, drafts in zip(sizes, best, strict=True) if drafts == 0), None)
