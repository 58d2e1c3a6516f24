"""Which sequences the next step computes: continuous batching with chunked prefill over a paged cache.

Every sequence that decodes has its row in every step; what is left of the step's token budget goes to prompts, in the
order in which they got their slots, in chunks where they do not fit. Slots go in turn to the clients that wait for one,
and to the requests of a client first come first served (`ClientQueue`). When a sequence needs a page and there is none,
the one of its rank that got its slot last loses it: its pages go to the prefix tree, it waits in front of the queue and
is computed again. The oldest one therefore always goes on, and since a request that does not fit into the cache alone
is refused on arrival, every request ends. The scheduler runs ahead of the device: `flying` counts tokens of a sequence
that are being sampled and that nobody has seen yet.

A step's arrays are packed from the sequences that it computes (`StepPacker`). A step has one of a few compiled shapes,
and all data ranks run the same one: `choose` finds the one that computes least padding. Positions, page tables and
tokens to feed are kept in arrays by slot (a sequence's place in the sampler's state), with one slot more for padding,
so that the rows of a step are gathered rather than built. New arrays are made for every step: those of the last one may
still be on their way.
"""

import time
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy

from dragonscale.errors import InputError
from dragonscale.runtime.serve.client_queue import ClientQueue
from dragonscale.runtime.serve.pages import PagePool
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
        self.adapters = numpy.zeros(slots, numpy.int32)
        self.given = numpy.full(slots, -1, numpy.int32)  # tokens that the device has not sampled itself
        self.chosen = lru_cache(maxsize=4096)(self.choose)

    def clear(self, rank: int, slot: int) -> None:
        self.tables[rank, slot], self.positions[rank, slot], self.given[rank, slot] = 0, 0, -1
        self.adapters[rank, slot] = 0

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
        batch.adapters[:, : d * q] = self.adapters[at, slots].repeat(q, 1)
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
        batch.adapters[rank, at : at + count] = sequence.request.adapter
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


def client_of(sequence: LiveSequence) -> str:
    """Whose turn in the queue it takes."""
    return sequence.request.client


class BatchScheduler:
    """The sequences of all data ranks: those that wait and those that have a slot."""

    def __init__(self, limits: EngineLimits, shapes: list[StepShape], prefixes: bool = True) -> None:
        self.limits, self.packer = limits, StepPacker(limits, shapes)
        ranks, slots = limits.ranks, limits.sequences
        self.pools = [PagePool(limits.pages, limits.page, prefixes) for _ in range(ranks)]
        self.waiting: list[ClientQueue[LiveSequence]] = [ClientQueue(client_of) for _ in range(ranks)]
        self.running: list[dict[int, LiveSequence]] = [{} for _ in range(ranks)]  # oldest first
        self.slots = [list(range(slots))[::-1] for _ in range(ranks)]
        self.entered: list[LiveSequence] = []
        self.arrivals = self.preemptions = self.hits = self.asked = 0
        self.prompts, self.budget = max(s.prompts for s in shapes), max(s.tokens for s in shapes)
        self.turn = False

    def refuse(self, request: GenerateRequest) -> None:
        """Raises if this request can never be served."""
        prompt, length, limits = len(request.prompt), 0 if request.embed else request.length, self.limits
        if not prompt or (length < 1 and not request.embed):
            raise InputError("A prompt has at least one token, and at least one is generated.")
        if prompt + length > limits.length:
            both = f"{prompt} tokens of prompt and {length} to generate"
            raise InputError(f"{both} are more than the {limits.length} of a sequence.")
        total = prompt + length + limits.draft
        if -(-total // limits.page) > limits.pages - 1:
            room = f"{limits.pages - 1} pages of {limits.page} tokens"
            raise InputError(f"{total} tokens do not fit into the cache of {room}; ask for fewer.")

    def add(self, request: GenerateRequest, handed: HandedOver | None = None, once: bool = False) -> LiveSequence:
        """Queues a request on the rank with the least to do, what it has cached of the prompt taken off; `once` ends it
        after a token."""
        self.refuse(request)
        so_far = request.prompt + (handed.tokens if handed else [])
        tokens = numpy.zeros(len(request.prompt) + (1 if request.embed else request.length), numpy.int32)
        tokens[: len(so_far)] = so_far
        rank = 0
        if self.limits.ranks > 1:
            left = [
                sum(s.limit - s.computed for s in (*w, *r.values()))
                for w, r in zip(self.waiting, self.running, strict=True)
            ]
            known = tokens[: len(so_far)]
            found = [len(pool.match(known, request.adapter)) * self.limits.page for pool in self.pools]
            rank = min(range(self.limits.ranks), key=lambda r: left[r] - found[r])
        self.arrivals += 1
        limit = len(so_far) + 1 if once else len(tokens)
        sequence = LiveSequence(request, rank, self.arrivals, tokens, len(so_far), limit, handed)
        self.waiting[rank].append(sequence)
        return sequence

    def enter(self, sequence: LiveSequence) -> bool:
        """Gives a sequence its slot and pages for all that is known of it, leaving a page to each that runs: False if
        it has to wait."""
        rank, page = sequence.rank, self.limits.page
        pool, running, known = self.pools[rank], self.running[rank], sequence.tokens[: sequence.known]
        found = []
        if pool.prefixes and not sequence.handed and not sequence.scored:
            found, own = pool.match(known, sequence.request.adapter), sequence.request.adapter
            ahead = (len(found) + 1) * page
            for other in running.values() if ahead < sequence.known else ():
                # Another sequence computes the next page of this one: soon it will be in the tree.
                alike = other.request.adapter == own and other.computed < ahead <= other.target
                if alike and (other.tokens[:ahead] == known[:ahead]).all():
                    return False
        pool.hold(found)
        need = -(-sequence.known // page) - len(found)
        taken = pool.take(need) if pool.available >= need + len(running) else None
        if taken is None:
            pool.release(found)
            return False
        slot = sequence.slot = self.slots[rank].pop()
        sequence.pages, sequence.shared, sequence.computed = found + taken, len(found), len(found) * page
        sequence.target = sequence.known
        if sequence.handed:
            sequence.computed = sequence.target = sequence.handed.computed
            self.packer.given[rank, slot] = known[-1]
        if sequence.cached < 0:
            now = time.time()
            sequence.cached, sequence.waited = sequence.computed, now - (sequence.request.arrived or now)
            self.hits, self.asked = self.hits + sequence.computed, self.asked + sequence.known
        running[slot] = sequence
        self.packer.tables[rank, slot, : len(sequence.pages)] = sequence.pages
        self.packer.positions[rank, slot] = sequence.computed
        self.packer.adapters[rank, slot] = sequence.request.adapter
        self.entered.append(sequence)
        return True

    def leave(self, sequence: LiveSequence, keep: bool = True) -> None:
        """Takes slot and pages away; `keep` leaves what was computed in the prefix tree."""
        rank, slot, pages = sequence.rank, sequence.slot, sequence.pages
        if slot < 0:
            return
        if keep:
            whole = min(sequence.known, sequence.computed) // self.limits.page
            self.pools[rank].share(sequence.tokens, pages, sequence.shared, whole, sequence.request.adapter)
        self.pools[rank].release(pages)
        del self.running[rank][slot]
        self.slots[rank].append(slot)
        self.packer.clear(rank, slot)
        sequence.pages, sequence.shared, sequence.computed, sequence.slot, sequence.handed = [], 0, 0, -1, None

    def end(self, sequence: LiveSequence, keep: bool = True) -> None:
        """A sequence is over, wherever it is; tokens of it that are still flying will be dropped."""
        if sequence.slot < 0:
            self.waiting[sequence.rank].remove(sequence)
        sequence.ended = True
        self.leave(sequence, keep)

    def preempt(self, sequence: LiveSequence, keep: bool = True) -> None:
        self.leave(sequence, keep)
        self.waiting[sequence.rank].appendleft(sequence)
        self.preemptions += 1

    def landed(self, sequence: LiveSequence, count: int) -> None:
        """`count` tokens of a step have been seen and written to `tokens`; one was expected."""
        sequence.flying -= 1
        sequence.known += count
        if count > 1 and sequence.slot >= 0:
            sequence.computed += count - 1
            self.packer.positions[sequence.rank, sequence.slot] += count - 1

    def decoding(self, rank: int) -> list[LiveSequence]:
        """The rows of a rank that decode, with pages for what they write; the youngest make room where
        there is none."""
        rows, page, running = [], self.limits.page, self.running[rank]
        for sequence in list(running.values()):
            if (
                sequence.slot < 0
                or sequence.computed < sequence.target
                or sequence.known + sequence.flying >= sequence.limit
            ):
                continue
            while sequence.slot >= 0 and sequence.computed + self.limits.draft >= len(sequence.pages) * page:
                if (taken := self.pools[rank].take(1)) is not None:
                    self.packer.tables[rank, sequence.slot, len(sequence.pages)] = taken[0]
                    sequence.pages += taken
                else:
                    self.preempt(next(reversed(running.values())))
            if sequence.slot >= 0:
                rows.append(sequence)
        return rows

    def prompting(self, rank: int) -> list[LiveSequence]:
        """Prompts with tokens to compute, after letting in what fits, as far as a step could use them."""
        waiting = self.waiting[rank]
        prompts = [sequence for sequence in self.running[rank].values() if sequence.computed < sequence.target]
        left = self.budget - sum(sequence.target - sequence.computed for sequence in prompts)
        while waiting and left > 0 and len(prompts) < self.prompts and self.slots[rank]:
            sequence = waiting.first
            if sequence.flying or not self.enter(sequence):
                break
            waiting.popleft()
            if sequence.computed < sequence.target:
                prompts.append(sequence)
                left -= sequence.target - sequence.computed
        return prompts

    def plan(self, drafting: bool = False) -> ScheduledStep | None:
        """The next step, its sequences advanced as if it had run; None if there is nothing to compute. With `drafting`
        there are drafts for rows that decode (beside prompts there is always room for them)."""
        limits = self.limits
        decodes = [self.decoding(rank) for rank in range(limits.ranks)]
        asked = [self.prompting(rank) for rank in range(limits.ranks)]
        prompts = [[s for s in rank if not s.scored] for rank in asked]
        scored = [s for rank in asked for s in rank if s.scored]
        most, todo = max(map(len, decodes)), tuple(tuple(s.target - s.computed for s in rank) for rank in prompts)
        self.turn = bool(scored) and not self.turn
        if self.turn or (scored and not most and not any(todo)):  # every other step
            step = self.packer.score(scored[0])
            self.share(step)
            return step
        if not most and not any(todo):
            return None
        fresh = not most and all(len(rank) < 2 and all(s.computed == 0 for s in rank) for rank in prompts)
        shape = self.packer.chosen(most, 1 + limits.draft if drafting or any(todo) else 1, todo, fresh)
        step = self.packer.empty(shape)
        if most:
            self.packer.decodes(step, decodes)
        for rank, rows in enumerate(prompts):
            self.packer.prompts(step, rank, rows)
        self.share(step)
        return step

    def share(self, step: ScheduledStep) -> None:
        """Lets others read the pages of prompts that this step completes: it runs before theirs."""
        for s in step.chunks:
            whole, own = s.computed // self.limits.page, s.request.adapter
            done = self.pools[s.rank].share(s.tokens, s.pages, s.shared, whole, own)
            self.packer.tables[s.rank, s.slot, s.shared : done] = s.pages[s.shared : done]
            s.shared = done
