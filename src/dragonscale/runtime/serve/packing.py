"""A step's arrays, packed from the sequences that it computes.

A step has one of a few compiled shapes, and all data ranks run the same one: `choose` finds the one that computes least
padding. Positions, page tables and tokens to feed are kept in arrays by slot (a sequence's place in the sampler's
state), with one slot more for padding, so that the rows of a step are gathered rather than built. New arrays are made
for every step: those of the last one may still be on their way.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy

from dragonscale.runtime.serve.requests import GenerateRequest, HandedOver, TokenLogprob
from dragonscale.runtime.serve.steps import EngineLimits, StepBatch, StepShape, empty_batch

KNEE = 256
"""Tokens below which a step takes as long as reading the weights: fewer are no cheaper."""


@dataclass(slots=True, eq=False)
class LiveSequence:
    """A request on its way. `tokens[:known]` are its prompt and output so far, `flying` more are being sampled, `limit`
    is where it ends; keys of `computed` tokens are in `pages` (or will be when the steps under way have run), of which
    the first `shared` are in the prefix tree. It decodes when `computed` has reached `target`, what was known when it
    got its slot. A prompt that is `scored` needs the logits of all its tokens; they come in `scores`. `grammar` and
    `ngrams` are where its output is in its grammar, and its drafts."""

    request: GenerateRequest
    rank: int
    order: int
    tokens: numpy.ndarray
    known: int
    limit: int
    handed: HandedOver | None = None
    slot: int = -1
    target: int = 0
    computed: int = 0
    flying: int = 0
    shared: int = 0
    cached: int = -1
    waited: float = 0.0
    pages: list[int] = field(default_factory=list)
    ended: bool = False
    grammar: Any = None
    ngrams: Any = None
    scores: list[TokenLogprob | None] = field(default_factory=list)

    @property
    def scored(self) -> bool:
        request = self.request
        return request.prompt_logprobs is not None and self.known == len(request.prompt) and not request.embed

    @property
    def output(self) -> list[int]:
        return self.tokens[len(self.request.prompt) : self.known].tolist()


@dataclass
class ScheduledStep:
    """A step's arrays and whose they are: `rows` are (rank, row, sequence) of those that get a token from it, `chunks`
    the sequences whose known tokens it computes, `computed` all its tokens that are not padding. `scored` is set in a
    step of a single prompt with its tokens from there on in rows of their own."""

    batch: StepBatch
    rows: list[tuple[int, int, LiveSequence]] = field(default_factory=list)
    chunks: list[LiveSequence] = field(default_factory=list)
    computed: int = 0
    scored: int = -1

    @property
    def sequences(self) -> list[LiveSequence]:
        return list({id(s): s for s in (*self.chunks, *(s for _, _, s in self.rows))}.values())


class StepPacker:
    """What is known of every slot, and how steps are made of it."""

    def __init__(self, limits: EngineLimits, shapes: list[StepShape]) -> None:
        self.limits, self.shapes = limits, sorted(shapes)
        slots = limits.ranks, limits.sequences + 1
        self.tables = numpy.zeros((*slots, limits.width), numpy.int32)
        self.positions = numpy.zeros(slots, numpy.int32)
        self.given = numpy.full(slots, -1, numpy.int32)  # tokens that the device has not sampled itself
        self.chosen = lru_cache(maxsize=4096)(self.choose)

    def clear(self, rank: int, slot: int) -> None:
        self.tables[rank, slot], self.positions[rank, slot], self.given[rank, slot] = 0, 0, -1

    def empty(self, shape: StepShape, scored: int = -1) -> ScheduledStep:
        limits = self.limits
        return ScheduledStep(empty_batch(shape, limits.ranks, limits.width, limits.sequences), scored=scored)

    def choose(self, decodes: int, queries: int, todo: tuple[tuple[int, ...], ...], fresh: bool) -> StepShape:
        """The shape that gets most done for what it computes, what it leaves counted as computed in the smallest shape
        that holds it. `todo` are the tokens left of the prompts of every rank."""
        sizes, wanted = sorted({shape.tokens for shape in self.shapes}), any(map(sum, todo))

        def cost(shape: StepShape) -> tuple[int, int, bool, int]:
            done = [min(shape.tokens, sum(prompts[: shape.prompts])) for prompts in todo]
            rest = max(sum(prompts) - d for prompts, d in zip(todo, done, strict=True))
            later = next((size for size in sizes if size >= rest), rest)
            spent = max(shape.packed, KNEE) + (max(later, KNEE) if rest else 0)
            return spent, -sum(done), not shape.fresh, shape.packed

        rows = [s for s in self.shapes if s.decodes >= decodes and (s.queries == queries or not decodes)]
        return min((s for s in rows if (s.tokens > 0) == wanted and (fresh or not s.fresh)), key=cost)

    def decodes(self, step: ScheduledStep, decodes: list[list[LiveSequence]]) -> None:
        batch, page = step.batch, self.limits.page
        d, q, ranks = batch.shape.decodes, batch.shape.queries, self.limits.ranks
        at, slots = numpy.arange(ranks)[:, None], batch.slots[:, :d]
        for rank, rows in enumerate(decodes):
            slots[rank, : len(rows)] = [sequence.slot for sequence in rows]
            step.rows += [(rank, row, sequence) for row, sequence in enumerate(rows)]
        first, given, tables = self.positions[at, slots], self.given[at, slots], self.tables[at, slots]
        real = slots < self.limits.sequences
        positions = (first[..., None] + numpy.arange(q, dtype=numpy.int32)) * real[..., None]
        pages = numpy.take_along_axis(tables, positions // page, 2)
        batch.tables[:, :d], batch.lengths[:, :d] = tables, numpy.where(real, first + q, 0)
        batch.positions[:, : d * q] = positions.reshape(ranks, -1)
        batch.writes[:, : d * q] = (pages * page + positions % page).reshape(ranks, -1)
        batch.from_last[:] = real & (given < 0)
        batch.tokens[:, : d * q : q] = numpy.maximum(given, 0)
        self.given[at, slots] = -1
        self.positions[at, slots] += real
        for _, _, sequence in step.rows:
            sequence.computed += 1
            sequence.flying += 1
        step.computed += len(step.rows) * q

    def chunk(self, step: ScheduledStep, sequence: LiveSequence, at: int, count: int) -> numpy.ndarray:
        """Puts the next known tokens of a sequence at a place of a step's tokens; returns their positions."""
        batch, rank, page, slot = step.batch, sequence.rank, self.limits.page, sequence.slot
        start, end = sequence.computed, sequence.computed + count
        places = numpy.arange(start, end, dtype=numpy.int32)
        batch.tokens[rank, at : at + count] = sequence.tokens[start:end]
        batch.positions[rank, at : at + count] = places
        batch.writes[rank, at : at + count] = self.tables[rank, slot, places // page] * page + places % page
        sequence.computed = self.positions[rank, slot] = end
        sequence.flying += end == sequence.target
        step.chunks.append(sequence)
        step.computed += count
        return places

    def prompts(self, step: ScheduledStep, rank: int, prompts: list[LiveSequence]) -> None:
        batch, shape = step.batch, step.batch.shape
        decoded = at = shape.decodes * shape.queries
        for number, sequence in enumerate(prompts[: shape.prompts]):
            count, row = min(sequence.target - sequence.computed, shape.packed - at), shape.decodes + number
            if not count:
                break
            self.chunk(step, sequence, at, count)
            at += count
            batch.tables[rank, row], batch.lengths[rank, row] = self.tables[rank, sequence.slot], sequence.computed
            batch.starts[rank, number + 1 :] = at
            batch.reads[rank, decoded + number] = at - 1
            if sequence.computed == sequence.target:
                batch.slots[rank, row] = sequence.slot
                step.rows.append((rank, row, sequence))

    def score(self, sequence: LiveSequence) -> ScheduledStep:
        """A step of a prompt whose logits are all wanted: as logits are read of decoding rows, each of its tokens is
        one."""
        left, rank = sequence.target - sequence.computed, sequence.rank
        shapes = sorted(s for s in self.shapes if s.queries == 1 and not s.tokens)
        shape = next((s for s in shapes if s.decodes >= left), shapes[-1])
        count = min(left, shape.decodes)
        step = self.empty(shape, scored=sequence.computed)
        batch = step.batch
        batch.tables[rank, :count] = self.tables[rank, sequence.slot]
        batch.lengths[rank, :count] = self.chunk(step, sequence, 0, count) + 1
        if count == left:
            batch.slots[rank, count - 1] = sequence.slot
            step.rows.append((rank, count - 1, sequence))
        return step
