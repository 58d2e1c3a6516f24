"""One replica: a queue, a batch, a paged cache, and an engine that decides what the next iteration does.

Time passes in *activities*: one iteration with pieces of prompts in it, or a run of iterations that only decode. Within
such a run nothing can change but by an arrival that could be admitted, so it is one event however many steps it has: it
ends where the first sequence ends or pages run out, and an arrival cuts it at the end of the iteration it falls into.
Sequences are not touched meanwhile. A counter of decode steps is the replica's clock; the tokens of the whole batch are
a line in it, `offset + pace * step`, and a heap holds the step at which each sequence ends.
"""

import heapq
from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any

from dragonscale.simulation.events import END, WAKE
from dragonscale.simulation.fleet import Pool
from dragonscale.simulation.growth import EvenGrowth, UnevenGrowth
from dragonscale.simulation.pages import Pages
from dragonscale.simulation.request import Sequence
from dragonscale.simulation.scheduling import admit, can_admit
from dragonscale.simulation.series import Series
from dragonscale.simulation.speculation import verify_steps
from dragonscale.simulation.tally import Tally

Leave = Callable[[Sequence, "Replica", float], None]


class Shared:
    """What all replicas of a run have in common: the calendar of events, the books, and two ways out of a replica."""

    def __init__(self, tally: Tally, series: Series, seed: int, leap: bool, finish: Leave, send: Leave) -> None:
        self.heap: list[tuple[Any, ...]] = []
        self.tally, self.series = tally, series
        self.seed, self.leap = seed, leap
        self.finish, self.send = finish, send
        self.recorder: Any = None


class Replica:
    """The state of one replica. `prefills` marks one of a prefill pool, which sends its sequences on."""

    def __init__(self, index: int, pool: Pool, shared: Shared, prefills: bool = False) -> None:
        engine = pool.engine
        self.index, self.pool, self.shared, self.prefills = index, pool, shared, prefills
        self.times, self.engine = pool.times, engine
        self.static, self.beside, self.queries = engine.kind == "static", engine.beside, engine.queries
        self.whole = (engine.reserve == "whole" or self.static) and not prefills
        self.spare = int(engine.watermark * pool.pages)
        self.waiting: deque[Sequence] = deque()
        self.queued = 0  # tokens of the prompts that wait
        self.queue_from = 0.0
        self.version = self.orders = 0
        self.alive, self.draining = True, False
        self.since = 0.0  # up since, for the books
        self.busy_s = self.decode_steps = self.iterations = self.batched = self.emitted = self.prefilled = 0.0
        self.epoch = 0
        self._clear()

    def _clear(self) -> None:
        pool, page = self.pool, self.engine.page_tokens
        self.pages = Pages(pool.pages, page, pool.share_prefixes, pool.host_tokens // page)
        self.growth = UnevenGrowth(page) if self.engine.draft else EvenGrowth(page)
        self.decoding: dict[int, Sequence] = {}  # by order of joining
        self.prefilling: list[Sequence] = []
        self.sending: dict[int, Sequence] = {}
        self.padding: list[Sequence] = []  # ended members of a static batch
        self.ends: list[tuple[int, int]] = []  # last step and order of who decodes
        self.step = 0
        self.offset: float = 0
        self.pace: float = 0
        self.joiners: dict[int, float] = {}  # joined since the last decode step, with the time of their latest token
        self.last_s = 0.0  # end of the last decode step
        self.busy = False
        self.woken = inf  # when it will look for work
        self.began = self.due = 0.0
        self.steps = 0
        self.pieces: list[tuple[Sequence, int]] = []
        self.taken = 0  # pages that the decode steps of this activity have taken
        self.loading = 0  # tokens to load from the host in the next iteration

    # --- what a router may ask

    @property
    def load(self) -> int:
        """Requests it has."""
        return len(self.waiting) + len(self.prefilling) + len(self.decoding) - len(self.padding)

    @property
    def cached(self) -> float:
        """Tokens in the caches of those who decode."""
        return self.offset + self.pace * self.step

    def predict(self, tokens: int, now: float) -> float:
        """Seconds until a new prompt's first token, if nothing else comes: the iteration in progress, then the prompts
        ahead at the budget's pace, beside those who decode; without a free place, also the wait for one."""
        decodes, budget = len(self.decoding), self.engine.tokens
        passed, rest = self._in_progress(now)
        ahead = self.queued + tokens + sum(sequence.todo for sequence in self.prefilling)
        cached = self.offset + self.pace * (self.step + passed)
        one = self.times.step(decodes, cached, ((min(ahead, budget), 0),), self.queries)
        full = decodes + len(self.prefilling) + len(self.waiting) - self.engine.sequences + 1
        if full > 0 and self.ends:
            last = heapq.nsmallest(full, self.ends)[-1][0]
            more = self.decode_seconds(max(last - self.step, 1))
            rest = rest + more if self.pieces else self.began + more - now
        return rest + -(-ahead // budget) * one

    def _in_progress(self, now: float) -> tuple[int, float]:
        """Decode steps of this activity that are over, and the seconds left of the iteration in progress."""
        if not self.busy:
            return 0, 0.0
        passed = self.decode_steps_within(now - self.began, self.steps - 1) if self.steps > 1 else 0
        if passed and self.began + self.decode_seconds(passed) >= now:
            passed -= 1
        return passed, (self.began + self.decode_seconds(passed + 1) if self.steps > 1 else self.due) - now

    # --- what comes in

    def submit(self, sequence: Sequence, now: float) -> None:
        """A request is routed here."""
        self.count_queue(now)
        self.waiting.append(sequence)
        self.queued += sequence.context
        sequence.seen = 0.0
        if not self.busy:
            self.wake(now)
            return
        engine = self.engine
        if self.steps > 1 and len(self.waiting) == 1 and can_admit(self, sequence):
            sequence.seen = self._first_look(now)
            self._cut(int(sequence.seen - self.iterations))
        elif engine.ahead or engine.poll > 1:
            sequence.seen = self._first_look(now)

    def _first_look(self, now: float) -> float:
        """The number of the first iteration that may take a request which comes now."""
        passed = self._in_progress(now)[0]
        first = self.iterations + passed + 1 + self.engine.ahead
        return -(-first // self.engine.poll) * self.engine.poll

    def wake(self, now: float) -> None:
        """Look for work once everything that comes at this moment has come."""
        if not self.busy and self.alive and now < self.woken:
            self.woken = now
            heapq.heappush(self.shared.heap, (now, WAKE, self.index, self.version))

    def count_queue(self, now: float) -> None:
        """The queue is about to change: book its length until now."""
        self.shared.series.add("waiting", self.queue_from, now, len(self.waiting))
        self.queue_from = now

    # --- activities

    def decode_seconds(self, steps: int) -> float:
        """Time of so many decode steps from the current one. With speculation a sequence grows by more than a token, so
        the steps are priced at their mean cache, which is exact as long as a step's time is linear in it."""
        if not self.engine.draft:
            return self.times.run(len(self.decoding), self.cached, steps)
        decodes, cached = len(self.decoding), self.cached + self.pace * (steps - 1) / 2
        verify = self.times.step(decodes, cached, (), self.queries)
        return steps * (verify + self.times.draft(decodes, cached, self.engine.draft))

    def decode_steps_within(self, seconds: float, limit: int) -> int:
        """The most whole decode steps within a time."""
        if not self.engine.draft:
            return min(self.times.steps_within(len(self.decoding), self.cached, seconds), limit)
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.decode_seconds(middle) <= seconds else (low, middle - 1)
        return low

    def plan(self, now: float) -> None:
        """Decide on the next activity and start it."""
        self.busy = False
        need, preempted = 0, False
        if self.decoding and not self.whole:
            need = self.growth.pages(self.step, 1)
            while need > self.pages.room:
                self._preempt(now)
                preempted = True
                need = self.growth.pages(self.step, 1)
        pieces = self.pieces = admit(self, now, need, preempted)
        decodes, queries = len(self.decoding), self.queries
        if pieces:
            parts = [(tokens, sequence.context - sequence.todo) for sequence, tokens in pieces]
            if self.beside and decodes:
                self.steps = 1
                seconds = self.times.step(decodes, self.cached, parts, queries)
                if queries > 1:
                    seconds += self.times.draft(decodes, self.cached, queries - 1)
            else:
                self.steps = 0
                seconds = self.times.step(0, 0.0, parts)
            if self.loading:
                seconds = max(seconds, self.loading / self.pool.host_tokens_per_s)
                self.loading = 0
        elif decodes:
            self.steps = self._stretch(1 if preempted or not self.shared.leap else None)
            seconds = self.decode_seconds(self.steps)
        else:
            return
        self.busy = True
        self.began, self.due = now, now + seconds
        self.version += 1
        heapq.heappush(self.shared.heap, (self.due, END, self.index, self.version))

    def _stretch(self, limit: int | None) -> int:
        """Decode steps until something happens: a sequence ends, pages run out or a request is looked at."""
        ends, decoding = self.ends, self.decoding
        while ends[0][1] not in decoding:
            heapq.heappop(ends)
        steps = ends[0][0] - self.step if limit is None else limit
        if self.waiting and self.waiting[0].seen > self.iterations:
            steps = min(steps, int(self.waiting[0].seen - self.iterations))
        return steps if self.whole else self.growth.steps(self.step, self.pages.room, steps)

    def _cut(self, steps: int) -> None:
        """End a run of decode steps after so many of them."""
        if steps < self.steps:
            self.steps = steps
            self.due = self.began + self.decode_seconds(steps)
            self.version += 1
            heapq.heappush(self.shared.heap, (self.due, END, self.index, self.version))

    def look(self, now: float) -> None:
        """Wake up."""
        self.woken = inf
        if self.alive and not self.busy:
            self.plan(now)

    def end(self, now: float) -> None:
        """The activity is over: tokens come out, sequences end, prompts begin to decode; then the next one."""
        steps, pieces = self.steps, self.pieces
        if steps and not self.whole:
            self.taken = self.growth.advance(self.step, steps)
        self._book(now, steps)
        if steps:
            self._advance(steps, now)
            self._finish_ended(now)
        pages = self.pages
        for sequence, tokens in pieces:
            sequence.todo -= tokens
            self.prefilled += tokens
            if pages.sharing:
                pages.publish(sequence, sequence.context - sequence.todo)
            if sequence.todo == 0:
                self._prefilled(sequence, now)
        self.plan(now)

    def _book(self, now: float, steps: int) -> None:
        """Enter an activity into the books."""
        pages, began = self.pages, self.began
        decodes = len(self.decoding)
        running = decodes + len(self.prefilling) - len(self.padding)
        used = (pages.private + pages.shared + self.taken / 2) / pages.capacity
        self.busy_s += now - began
        self.iterations += steps or 1
        self.batched += steps * running if steps else len(self.pieces)
        self.shared.series.add_all(began, now, {"busy": 1, "running": running, "pages": used})
        if self.shared.recorder is not None:
            self.shared.recorder.activity(self, now, running, used)

    def _advance(self, steps: int, now: float) -> None:
        """Decode steps have passed: gaps between tokens, pages taken, the clock."""
        tally, joiners, began = self.shared.tally, self.joiners, self.began
        live = len(self.decoding) - len(self.padding)
        gap = (now - began) / steps
        if joiners or self.last_s != began:
            tally.gap(began - self.last_s + gap, live - len(joiners))
            for token_s in joiners.values():
                tally.gap(began - token_s + gap, 1)
            joiners.clear()
            tally.gap(gap, live * (steps - 1))
        else:
            tally.gap(gap, live * steps)
        self.emitted += (self.pace - len(self.padding)) * steps
        self.decode_steps += steps
        if self.taken:
            self.pages.take(self.taken)
            self.taken = 0
        self.step += steps
        self.last_s = now

    def _finish_ended(self, now: float) -> None:
        ends, decoding, step = self.ends, self.decoding, self.step
        while ends and ends[0][0] <= step:
            sequence = decoding.get(heapq.heappop(ends)[1])
            if sequence is None:
                continue
            sequence.produced = sequence.request.output_tokens
            if self.static:
                self.padding.append(sequence)
            else:
                self._leave(sequence)
            self.shared.finish(sequence, self, now)
        if self.static and self.padding and len(self.padding) == len(decoding):
            for sequence in self.padding:
                self._leave(sequence)
            self.padding.clear()

    def _prefilled(self, sequence: Sequence, now: float) -> None:
        """A prompt is in the cache, and its next token is out."""
        self.prefilling.remove(sequence)
        sequence.produced += 1
        self.emitted += 1
        more = sequence.produced < sequence.request.output_tokens
        if self.prefills and more:
            self.sending[sequence.order] = sequence
            self.shared.send(sequence, self, now)
            return
        if sequence.first_s < 0:
            sequence.first_s = now
        else:
            self.shared.tally.gap(now - sequence.last_s, 1)
        sequence.last_s = now
        if more:
            self.join(sequence)
        else:
            self.pages.release(sequence, 0)
            self.shared.finish(sequence, self, now)

    def join(self, sequence: Sequence) -> None:
        """A sequence whose context is in the cache begins to decode."""
        engine, request = self.engine, sequence.request
        sequence.joined = self.step
        sequence.base = sequence.context
        sequence.left = sequence.steps = request.output_tokens - sequence.produced
        sequence.growth = 1
        if engine.draft:
            tally = self.shared.tally
            sequence.steps, tokens = verify_steps(
                sequence.left, engine.draft, engine.acceptance, self.shared.seed, request.number
            )
            sequence.growth = sequence.left / sequence.steps
            tally.verify_steps += sequence.steps
            tally.verify_tokens += tokens
        self.offset += sequence.base - sequence.growth * sequence.joined
        self.pace += sequence.growth
        self.joiners[sequence.order] = sequence.last_s
        self.decoding[sequence.order] = sequence
        if not self.whole:
            self.growth.add(sequence)
        heapq.heappush(self.ends, (self.step + sequence.steps, sequence.order))

    def _leave(self, sequence: Sequence) -> None:
        """A sequence stops decoding and gives its pages back."""
        del self.decoding[sequence.order]
        self.joiners.pop(sequence.order, None)
        if self.decoding:
            self.offset -= sequence.base - sequence.growth * sequence.joined
            self.pace -= sequence.growth
        else:
            self.offset = self.pace = 0
        grown = 0
        if not self.whole:
            page, base = self.engine.page_tokens, sequence.base
            self.growth.remove(sequence)
            grown = -(-(base + sequence.grown(self.step)) // page) - -(-base // page)
        self.pages.release(sequence, grown)

    def _evict(self, sequence: Sequence) -> None:
        """Take a sequence out of the batch with what it has produced so far; its cache is lost."""
        if sequence.order in self.decoding:
            sequence.last_s = max(sequence.last_s, self.last_s)
            sequence.produced += sequence.grown(self.step)
            self._leave(sequence)
        else:
            self.prefilling.remove(sequence)
            self.pages.release(sequence, 0)
        sequence.reset()

    def _preempt(self, now: float) -> None:
        """Pages have run out: the newest sequence gives way and will be recomputed."""
        victim = self.prefilling[-1] if self.prefilling else self.decoding[next(reversed(self.decoding))]
        self._evict(victim)
        victim.preemptions += 1
        self.shared.tally.preempted += 1
        self.count_queue(now)
        self.waiting.appendleft(victim)
        self.queued += victim.context

    def delivered(self, sequence: Sequence, now: float) -> None:
        """A sequence that was sent on has arrived: its pages here are free."""
        del self.sending[sequence.order]
        self.pages.release(sequence, 0)
        self.wake(now)

    def flow(self, now: float) -> float:
        """Tokens that came out by now."""
        return self.emitted + self._in_progress(now)[0] * (self.pace - len(self.padding))

    def settle(self, now: float) -> None:
        """Break off the activity: what is done by now is done, an iteration in progress is lost."""
        steps = self._in_progress(now)[0]
        if steps and not self.whole:
            self.taken = self.growth.advance(self.step, steps)
        self._book(now, steps)
        if steps:
            self._advance(steps, self.began + self.decode_seconds(steps))
            self.iterations += 1  # the one that is lost
        self.busy = False

    def fail(self, now: float) -> list[Sequence]:
        """Die. The sequences it had, with the tokens that were out by now, are handed back in order of age."""
        if self.busy:
            self.settle(now)
        ended = set(map(id, self.padding))
        inside = [*self.decoding.values(), *self.prefilling, *self.sending.values()]
        inside = sorted((each for each in inside if id(each) not in ended), key=lambda each: each.order)
        for sequence in inside:
            if sequence.order in self.sending:
                sequence.produced -= 1  # its token travels with the cache
                self.emitted -= 1
                sequence.reset()
            else:
                self._evict(sequence)
        self.count_queue(now)
        lost = inside + list(self.waiting)
        self.waiting.clear()
        self.queued = 0
        self.version += 1
        self.epoch += 1
        self.alive = False
        self._clear()
        return lost
