"""Which sequences the next step computes: continuous batching with chunked prefill over a paged cache.

Every sequence that decodes has its row in every step; what is left of the step's token budget goes to prompts, first come first served, in
chunks where they do not fit. A step has one of a few compiled shapes, and all data ranks run the same one, so the shape is chosen that
computes least padding (`choose`). When a sequence needs a page and there is none, the youngest one of its rank loses its place: its pages
go to the prefix tree, it waits in front of the queue and is computed again. The oldest one therefore always goes on, and since a request that
does not fit into the cache alone is refused on arrival, every request ends.

The scheduler runs ahead of the device: `flying` counts tokens of a sequence that are being sampled and that nobody has seen yet. Positions,
page tables and tokens to feed are kept in arrays by slot (a sequence's place in the sampler's state), with one slot more for padding,
so that a step's arrays are gathered rather than built.
"""

from collections import deque
from dataclasses import dataclass, field
from functools import lru_cache

import numpy

from dragonscale.errors import InputError
from dragonscale.runtime.serve.pages import PagePool
from dragonscale.runtime.serve.requests import HandedOver, ServeRequest
from dragonscale.runtime.serve.steps import EngineLimits, StepBatch, StepShape, empty_batch

KNEE = 256
"""Tokens below which a step takes as long as reading the weights: fewer are no cheaper."""


class EngineFull(RuntimeError):
    """The waiting queue has no room: ask again later."""


@dataclass(slots=True, eq=False)
class LiveSequence:
    """A request on its way. `tokens[:known]` are its prompt and output so far, `flying` more are being sampled, `limit` is where it ends;
    keys of `computed` tokens are in `pages` (or will be when the steps under way have run), of which the first `shared` are in the
    prefix tree. It decodes when `computed` has reached `target`, what was known when it got its slot."""

    request: ServeRequest
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
    pages: list[int] = field(default_factory=list)
    ended: bool = False

    @property
    def output(self) -> list[int]:
        return self.tokens[len(self.request.prompt) : self.known].tolist()


@dataclass
class ScheduledStep:
    """A step's arrays and whose they are: `rows` are (rank, row, sequence) of those that get a token from it."""

    batch: StepBatch
    rows: list[tuple[int, int, LiveSequence]]
    prompts: list[LiveSequence]
    computed: int

    @property
    def sequences(self) -> list[LiveSequence]:
        return list({id(s): s for s in (*self.prompts, *(s for _, _, s in self.rows))}.values())


class BatchScheduler:
    """The sequences of all data ranks: those that wait and those that have a slot."""

    def __init__(self, limits: EngineLimits, shapes: list[StepShape], prefixes: bool = True, queue: int = 1024) -> None:
        self.limits, self.shapes, self.queue = limits, sorted(shapes), queue
        ranks, slots = limits.ranks, limits.sequences
        self.pools = [PagePool(limits.pages, limits.page, prefixes) for _ in range(ranks)]
        self.waiting: list[deque[LiveSequence]] = [deque() for _ in range(ranks)]
        self.running: list[dict[int, LiveSequence]] = [{} for _ in range(ranks)]  # oldest first
        self.slots = [list(range(slots))[::-1] for _ in range(ranks)]
        self.tables = numpy.zeros((ranks, slots + 1, limits.width), numpy.int32)
        self.positions = numpy.zeros((ranks, slots + 1), numpy.int32)
        self.given = numpy.full((ranks, slots + 1), -1, numpy.int32)
        self.entered: list[LiveSequence] = []
        self.arrivals = self.preemptions = self.hits = self.asked = 0
        self.prompts = max(shape.prompts for shape in shapes)
        self.budget = max(shape.tokens for shape in shapes)
        self.chosen = lru_cache(maxsize=4096)(self.choose)

    def refuse(self, request: ServeRequest) -> None:
        """Raises if this request can never be served."""
        length, limits = 0 if request.embed else request.length, self.limits
        if not request.prompt or (length < 1 and not request.embed):
            raise InputError("a prompt has at least one token, and at least one is generated")
        if (total := len(request.prompt) + length + limits.draft) > limits.length:
            raise InputError(
                f"{len(request.prompt)} tokens of prompt and {length} to generate are more than the {limits.length - limits.draft} of a sequence"
            )
        if -(-total // limits.page) > limits.pages - 1:
            raise InputError(
                f"{total} tokens do not fit into the cache of {limits.pages - 1} pages of {limits.page} tokens; ask for fewer"
            )

    def add(self, request: ServeRequest, handed: HandedOver | None = None, once: bool = False) -> LiveSequence:
        """Queues a request on the rank with the least to do, what it has cached of the prompt taken off; `once` ends it after a token."""
        self.refuse(request)
        if sum(map(len, self.waiting)) >= self.queue:
            raise EngineFull(f"{self.queue} requests wait already")
        so_far = request.prompt + (handed.tokens if handed else [])
        tokens = numpy.zeros(len(request.prompt) + (1 if request.embed else request.length), numpy.int32)
        tokens[: len(so_far)] = so_far
        rank = 0
        if self.limits.ranks > 1:
            todo = [
                sum(s.limit - s.computed for s in (*self.waiting[r], *self.running[r].values()))
                - len(pool.match(tokens[: len(so_far)])) * self.limits.page
                for r, pool in enumerate(self.pools)
            ]
            rank = todo.index(min(todo))
        self.arrivals += 1
        limit = len(so_far) + 1 if once else len(tokens)
        sequence = LiveSequence(request, rank, self.arrivals, tokens, len(so_far), limit, handed)
        self.waiting[rank].append(sequence)
        return sequence

    def enter(self, sequence: LiveSequence) -> bool:
        """Gives a sequence its slot and pages for all that is known of it, leaving a page to each that runs: False if it has to wait."""
        rank, page = sequence.rank, self.limits.page
        pool, running = self.pools[rank], self.running[rank]
        known = sequence.tokens[: sequence.known]
        found = [] if sequence.handed else pool.match(known)
        ahead = (len(found) + 1) * page
        if pool.prefixes and not sequence.handed and ahead < sequence.known:
            for other in running.values():  # its next page is being computed: next time it will be in the tree
                if other.computed < ahead <= other.target and (other.tokens[:ahead] == known[:ahead]).all():
                    return False
        pool.hold(found)
        need = -(-sequence.known // page) - len(found)
        taken = pool.take(need) if pool.available >= need + len(running) else None
        if taken is None:
            pool.release(found)
            return False
        sequence.pages, sequence.shared, sequence.computed = found + taken, len(found), len(found) * page
        sequence.target = sequence.known
        slot = sequence.slot = self.slots[rank].pop()
        if sequence.handed:
            sequence.computed = sequence.target = sequence.handed.computed
            self.given[rank, slot] = sequence.tokens[sequence.known - 1]
        if sequence.cached < 0:
            sequence.cached = sequence.computed
            self.hits += sequence.computed
            self.asked += sequence.known
        running[slot] = sequence
        self.tables[rank, slot, : len(sequence.pages)] = sequence.pages
        self.positions[rank, slot] = sequence.computed
        self.entered.append(sequence)
        return True

    def leave(self, sequence: LiveSequence, keep: bool = True, hold: bool = False) -> list[int]:
        """Takes slot and pages away; `keep` leaves what was computed in the prefix tree, `hold` leaves the pages to the caller."""
        if sequence.slot < 0:
            return []
        rank, slot = sequence.rank, sequence.slot
        if keep:
            whole = min(sequence.known, sequence.computed) // self.limits.page
            self.pools[rank].share(sequence.tokens, sequence.pages, sequence.shared, whole)
        pages = sequence.pages
        if not hold:
            self.pools[rank].release(pages)
        del self.running[rank][slot]
        self.slots[rank].append(slot)
        self.tables[rank, slot] = 0
        self.positions[rank, slot], self.given[rank, slot] = 0, -1
        sequence.pages, sequence.shared, sequence.computed, sequence.slot, sequence.handed = [], 0, 0, -1, None
        return pages

    def end(self, sequence: LiveSequence, keep: bool = True, hold: bool = False) -> list[int]:
        """A sequence is over, wherever it is; tokens of it that are still flying will be dropped."""
        if sequence.slot < 0 and not sequence.ended:
            self.waiting[sequence.rank].remove(sequence)
        sequence.ended = True
        return self.leave(sequence, keep, hold)

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
            self.positions[sequence.rank, sequence.slot] += count - 1

    def decoding(self, rank: int, queries: int) -> list[LiveSequence]:
        """The rows of a rank that decode, with pages for what they write; the youngest make room where there is none."""
        rows, page, pool, running = [], self.limits.page, self.pools[rank], self.running[rank]
        for sequence in list(running.values()):
            if (
                sequence.slot < 0
                or sequence.computed < sequence.target
                or sequence.known + sequence.flying >= sequence.limit
            ):
                continue
            while sequence.slot >= 0 and sequence.computed + queries > len(sequence.pages) * page:
                if (taken := pool.take(1)) is not None:
                    self.tables[rank, sequence.slot, len(sequence.pages)] = taken[0]
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
            sequence = waiting[0]
            if sequence.flying or not self.enter(sequence):
                break
            waiting.popleft()
            if sequence.computed < sequence.target:
                prompts.append(sequence)
                left -= sequence.target - sequence.computed
        return prompts[: self.prompts]

    def choose(self, decodes: int, queries: int, todo: tuple[tuple[int, ...], ...], fresh: bool) -> StepShape:
        """The shape that gets most done for what it computes, counting what it leaves as computed in the next best one. `todo` are
        the tokens left of the prompts of every rank."""
        sizes = sorted({shape.tokens for shape in self.shapes})

        def cost(shape: StepShape) -> tuple[int, int, bool]:
            done = [min(shape.tokens, sum(prompts[: shape.prompts])) for prompts in todo]
            rest = max((sum(prompts) - d for prompts, d in zip(todo, done, strict=True)), default=0)
            later = next((size for size in sizes if size >= rest), rest)
            spent = max(shape.packed, KNEE) + (max(later, KNEE) if rest else 0)
            return spent, -sum(done), not shape.fresh

        wanted = any(map(sum, todo))
        able = [
            shape
            for shape in self.shapes
            if shape.decodes >= decodes and (shape.queries == queries or not decodes)
            if (shape.tokens > 0) == wanted and (fresh or not shape.fresh)
        ]
        return min(able, key=lambda shape: (*cost(shape), shape.packed))

    def plan(self, queries: int = 1) -> ScheduledStep | None:
        """The next step, its sequences advanced as if it had run; None if there is nothing to compute."""
        decodes = [self.decoding(rank, queries) for rank in range(self.limits.ranks)]
        prompts = [self.prompting(rank) for rank in range(self.limits.ranks)]
        most = max(map(len, decodes))
        if not most and not any(prompts):
            return None
        todo = tuple(tuple(s.target - s.computed for s in rank) for rank in prompts)
        lone = all(len(rank) < 2 and all(s.computed == 0 for s in rank) for rank in prompts)
        shape = self.chosen(most, queries, todo, lone and not most)
        batch = empty_batch(shape, self.limits.ranks, self.limits.width, self.limits.sequences)
        step = ScheduledStep(batch, [], [], 0)
        if most:
            self.fill_decodes(step, decodes)
        for rank, rows in enumerate(prompts):
            self.fill_prompts(step, rank, rows)
        return step

    def fill_decodes(self, step: ScheduledStep, decodes: list[list[LiveSequence]]) -> None:
        batch, page = step.batch, self.limits.page
        d, q, ranks = batch.shape.decodes, batch.shape.queries, self.limits.ranks
        slots = batch.slots[:, :d]
        for rank, rows in enumerate(decodes):
            slots[rank, : len(rows)] = [sequence.slot for sequence in rows]
        at = numpy.arange(ranks)[:, None]
        first, real = self.positions[at, slots], slots < self.limits.sequences
        tables = self.tables[at, slots]
        positions = (first[..., None] + numpy.arange(q, dtype=numpy.int32)) * real[..., None]
        pages = numpy.take_along_axis(tables, positions // page, 2)
        batch.tables[:, :d] = tables
        batch.lengths[:, :d] = numpy.where(real, first + q, 0)
        batch.positions[:, : d * q] = positions.reshape(ranks, -1)
        batch.writes[:, : d * q] = (pages * page + positions % page).reshape(ranks, -1)
        given = self.given[at, slots]
        batch.from_last[:] = real & (given < 0)
        batch.tokens[:, : d * q : q] = numpy.maximum(given, 0)
        self.given[at, slots] = -1
        self.positions[at, slots] += real
        for rank, rows in enumerate(decodes):
            for row, sequence in enumerate(rows):
                sequence.computed += 1
                sequence.flying += 1
                step.rows.append((rank, row, sequence))
        step.computed += len(step.rows) * q

    def fill_prompts(self, step: ScheduledStep, rank: int, prompts: list[LiveSequence]) -> None:
        batch, shape, page = step.batch, step.batch.shape, self.limits.page
        at, room = shape.decodes * shape.queries, shape.tokens
        for number, sequence in enumerate(prompts[: shape.prompts]):
            start, count = sequence.computed, min(sequence.target - sequence.computed, room)
            if not count:
                break
            row, end = shape.decodes + number, start + count
            places = numpy.arange(start, end, dtype=numpy.int32)
            table = self.tables[rank, sequence.slot]
            batch.tokens[rank, at : at + count] = sequence.tokens[start:end]
            batch.positions[rank, at : at + count] = places
            batch.writes[rank, at : at + count] = table[places // page] * page + places % page
            batch.tables[rank, row], batch.lengths[rank, row] = table, end
            at, room = at + count, room - count
            batch.starts[rank, number + 1 :] = at
            batch.reads[rank, shape.decodes * shape.queries + number] = at - 1
            sequence.computed = self.positions[rank, sequence.slot] = end
            if end == sequence.target:
                batch.slots[rank, row] = sequence.slot
                sequence.flying += 1
                step.rows.append((rank, row, sequence))
            done = self.pools[rank].share(sequence.tokens, sequence.pages, sequence.shared, end // page)
            self.tables[rank, sequence.slot, sequence.shared : done] = sequence.pages[sequence.shared : done]
            sequence.shared = done
            step.prompts.append(sequence)
            step.computed += count

    def check(self, others: list[list[list[int]]]) -> None:
        """Asserts the invariants of all ranks; `others` are page lists of each rank that are held beside the running sequences'."""
        for rank, running in enumerate(self.running):
            self.pools[rank].check([*(s.pages for s in running.values()), *others[rank]])
            assert sorted([*self.slots[rank], *running]) == list(range(self.limits.sequences)), (
                "a slot is lost or given twice"
            )
            tables = numpy.zeros_like(self.tables[rank])
            for slot, s in running.items():
                tables[slot, : len(s.pages)] = s.pages
                assert (s.slot, s.rank, s.ended) == (slot, rank, False), f"slot {slot} is not its sequence's"
                assert s.computed <= len(s.pages) * self.limits.page, f"slot {slot} writes beyond its pages"
                assert s.computed < s.target or s.computed == s.known + s.flying - 1, f"slot {slot} lost a token"
            assert (tables == self.tables[rank]).all(), "tables of slots are not the pages of their sequences"
            positions = [running[slot].computed if slot in running else 0 for slot in range(self.limits.sequences + 1)]
            assert self.positions[rank].tolist() == positions, "positions of slots are not those of their sequences"
            orders = [s.order for s in (*running.values(), *self.waiting[rank])]
            assert orders == sorted(orders), "a younger sequence went before an older one"
            assert not any(s.slot >= 0 or s.pages or s.ended for s in self.waiting[rank]), (
                "a waiting sequence holds something"
            )
