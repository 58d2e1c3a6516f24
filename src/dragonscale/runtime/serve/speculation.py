"""Drafts: tokens guessed cheaply that the model then checks in one step, several at once.

Two ways to guess. `NgramIndex` looks on the host for the longest piece of text (up to 4 tokens) that the sequence ends with and has had before,
and proposes what followed; it costs nothing and helps where output repeats the prompt. `DraftModel` runs a smaller model of the same
vocabulary ahead, a token at a time, on the device: it keeps its keys in a cache of its own under the same page numbers, so that the
prefix cache, the tables and the freeing of pages are the target's.

The target's step has Q = k + 1 tokens in a decoding row, the last sampled one and the drafts; the sampler says how many to keep
(`Sampled.counts`). Keys of rejected drafts lie beyond the sequence's length and are written over by the next step. Rows may have fewer drafts
(`StepBatch.drafted`), none where a grammar holds them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy

from dragonscale.runtime.serve import filters
from dragonscale.runtime.serve.sampling import FILTERED, GREEDY, Sampler, SlotState
from dragonscale.runtime.serve.steps import StepBatch, StepShape

LONGEST = 4


class NgramIndex:
    """The n-grams of one sequence, by hash (a collision is a bad guess, not an error), and where the text after the latest of each begins."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens: list[int] = []
        self._after: dict[int, int] = {}
        self.extend(tokens)

    def extend(self, tokens: Iterable[int]) -> None:
        """Add tokens. The n-grams that end before each are entered now that something follows them."""
        for token in tokens:
            place = len(self._tokens)
            for n in range(1, min(LONGEST, place) + 1):
                self._after[hash(tuple(self._tokens[-n:]))] = place
            self._tokens.append(token)

    def propose(self, count: int) -> list[int]:
        """Up to `count` tokens that may follow; none if not even the last token was there before."""
        for n in range(min(LONGEST, len(self._tokens)), 0, -1):
            place = self._after.get(hash(tuple(self._tokens[-n:])))
            if place is not None:
                # Where the earlier text runs into the end it repeats, so the guess goes on with its own tokens.
                period = len(self._tokens) - place
                return [self._tokens[place + i % period] for i in range(count)]
        return []


@dataclass(frozen=True)
class Drafts:
    """Tokens [R, D, k] on the device, and for each of the k what it was drawn from [R, D, v] (nothing where all rows are greedy)."""

    tokens: Any
    probs: tuple[Any, ...] = ()


def draft_shapes(shapes: Iterable[StepShape]) -> list[StepShape]:
    """The steps of a draft model beside a target's: each with two tokens in a decoding row, and the decoding rows alone with one."""
    shapes = list(shapes)
    first = {replace(s, queries=2 if s.decodes else 1) for s in shapes}
    return sorted(first | {StepShape(decodes=s.decodes) for s in shapes if s.decodes})


def first_batch(batch: StepBatch, previous: numpy.ndarray, page: int) -> StepBatch:
    """The draft model's first step beside a target's step: the prompts' chunks as they are, and of decoding rows the last two tokens. The one
    before the last is computed again because its key is missing if it was the last of drafts that were all accepted."""
    d, q = batch.shape.decodes, batch.shape.queries
    if not d:
        return replace(batch, shape=replace(batch.shape, queries=1))
    tokens, positions, writes = (
        a[:, : d * q].reshape(-1, d, q)[:, :, 0] for a in (batch.tokens, batch.positions, batch.writes)
    )
    back = numpy.maximum(positions - 1, 0)
    pages = numpy.take_along_axis(batch.tables[:, :d], (back // page)[:, :, None], 2)[:, :, 0]

    def packed(old: numpy.ndarray, *pair: numpy.ndarray) -> numpy.ndarray:
        return numpy.concatenate([numpy.stack(pair, 2).reshape(len(old), 2 * d), old[:, d * q :]], 1)

    lengths = batch.lengths.copy()
    lengths[:, :d] = numpy.where(lengths[:, :d] > 0, positions + 1, 0)
    fewer = d * (q - 2)
    reads = numpy.concatenate(
        [numpy.tile(numpy.arange(2 * d, dtype=numpy.int32), (len(lengths), 1)), batch.reads[:, d * q :] - fewer], 1
    )
    return replace(
        batch, shape=replace(batch.shape, queries=2), tokens=packed(batch.tokens, previous, tokens),
        positions=packed(batch.positions, back, positions), writes=packed(batch.writes, pages * page + back % page, writes),
        from_last=numpy.zeros_like(batch.from_last), lengths=lengths, starts=batch.starts - fewer, reads=reads,
    )  # fmt: skip


def next_batch(batch: StepBatch, ahead: int) -> StepBatch:
    """The draft model's step for the token that is `ahead` of the last one: it is what the step before drafted."""
    d, q = batch.shape.decodes, batch.shape.queries
    positions, writes = (a[:, : d * q].reshape(-1, d, q)[:, :, ahead] for a in (batch.positions, batch.writes))
    lengths = numpy.where(batch.lengths[:, :d] > 0, positions + 1, 0)
    ranks = len(lengths)
    return StepBatch(
        shape=StepShape(decodes=d), tokens=numpy.zeros_like(positions), from_last=numpy.ones((ranks, d), bool), positions=positions,
        writes=writes, tables=batch.tables[:, :d], lengths=lengths, slots=batch.slots[:, :d],
        starts=numpy.full((ranks, 1), d, numpy.int32), reads=numpy.tile(numpy.arange(d, dtype=numpy.int32), (ranks, 1)),
        drafted=numpy.zeros((ranks, d), numpy.int32),
    )  # fmt: skip


def _draft(level: int, queries: int, state: SlotState, last: Any, logits: Any, words: Any) -> Any:
    """One rank: a token for each of d rows from the logits of its last query, what it was drawn from, and `last` with it."""
    slots, positions = words
    d = slots.shape[0]
    x = logits[: d * queries].reshape(d, queries, -1)[:, -1]
    if level == GREEDY:
        token, probs = filters.largest(x), None
    else:
        settings = state.settings[slots]
        x = filters.tempered(x, settings)
        x = filters.filtered(x, settings) if level >= FILTERED else x
        probs = filters.distribution(x, settings)
        token = filters.largest(
            jnp.log(probs) + filters.gumbel(state.seeds[slots], positions, filters.DRAFT, x.shape[-1])
        )
    return token, probs, last.at[slots].set(token)


@dataclass
class DraftModel:
    """A smaller model that drafts. `runner` is its ModelRunner, built with the target's limits; `sampler` is the target's (its settings and
    seeds are read)."""

    runner: Any
    sampler: Sampler
    programs: dict[tuple[StepShape, int], Any] = field(default_factory=dict)

    def compile(self, shapes: Iterable[StepShape], listener: Callable[[int, int], None] | None = None) -> None:
        """Build the steps beside those of a target with these shapes."""
        wanted = draft_shapes(shapes)
        self.runner.compile(wanted, listener)
        for shape in wanted:
            for level in range(FILTERED + 1) if shape.decodes else ():
                self._build(shape, level)

    def propose(self, batch: StepBatch, previous: numpy.ndarray) -> Drafts:
        """Draft Q - 1 tokens for every decoding row of a target's step, and see its prompts' chunks. Its tokens must be on the host
        (`from_last` is not read); `previous` [R, D] are the tokens before the last ones."""
        shape, limits = batch.shape, self.sampler.limits
        first = first_batch(batch, previous, limits.page)
        logits = self.runner.run(first, self.sampler.last)
        if not shape.decodes:
            return Drafts(jnp.zeros((limits.ranks, 0, 0), jnp.int32))
        d, q = shape.decodes, shape.queries
        level = min(self.sampler.level(batch.slots[:, :d]), FILTERED)
        positions = batch.positions[:, : d * q].reshape(-1, d, q)
        tokens, probs, last, step = [], [], self.sampler.last, first.shape
        for ahead in range(q - 1):
            if ahead:
                following = next_batch(batch, ahead)
                logits, step = self.runner.run(following, last), following.shape
            program = self.programs.get((step, level)) or self._build(step, level)
            words = numpy.stack([batch.slots[:, :d], positions[:, :, ahead]], 1)
            token, prob, last = program(
                self.sampler.state(), last, jax.device_put(logits, self.sampler.sharding), words
            )
            tokens.append(token)
            probs.append(prob)
        return Drafts(jnp.stack(tokens, 2), tuple(probs) if level > GREEDY else ())

    def _build(self, step: StepShape, level: int) -> Any:
        s = self.sampler

        def array(kind: Any, *size: int) -> Any:
            return jax.ShapeDtypeStruct((s.limits.ranks, *size), kind, sharding=s.sharding)

        state = jax.tree.map(lambda a: array(a.dtype, *a.shape[1:]), s.state())
        shapes = (
            array(jnp.int32, s.limits.sequences + 1),
            array(jnp.float32, step.read, s.vocab),
            array(jnp.int32, 2, step.decodes),
        )
        program = s.over_ranks(partial(_draft, level, step.queries)).lower(state, *shapes).compile()
        self.programs[step, level] = program
        return program
