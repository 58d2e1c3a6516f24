"""One replica at work: what its next iteration does, and what comes out of it.

Time passes in *activities*: one iteration with chunks of prompts, or a run of iterations that only decode. Within such
a run nothing changes except by an arrival that could be admitted, so it is one event however many steps it has: it ends
where the first sequence ends or pages run out, and an arrival cuts it at the end of the iteration it falls into.
Sequences are not touched meanwhile (see `batch.py`).

Each planned activity has a `version`; its end event is ignored if the version has changed since.
"""

from heapq import heappop, heappush
from math import inf, nextafter

from dragonscale.simulation.admission import Chunk, admit, can_admit
from dragonscale.simulation.replica_state import END, ReplicaState
from dragonscale.simulation.request import Sequence


class Replica(ReplicaState):
    """A replica that serves."""

    __slots__ = ()

    def predict(self, tokens: int, now: float) -> float:
        """Seconds until a new prompt's first token, if nothing else arrives.

        The rest of the iteration in progress, then the prompts ahead at the pace of the token budget, beside those who
        decode; with a full batch, also the wait until a place is free.
        """
        batch, budget = self.batch, self.scheduler.tokens
        decodes = len(batch.members)
        passed, rest = self._passed(now), 0.0
        if self.busy:
            rest = (self.began + batch.seconds(passed + 1) if self.steps > 1 else self.due) - now
        ahead = self.unprefilled + tokens
        cached = batch.cached + batch.pace * passed
        ranks = self.scheduler.ranks  # each computes its own prompts
        iteration_s = self.times.step(decodes, cached, ((-(-min(ahead, budget) // ranks), 0),) * ranks, self.queries)
        full = decodes + len(self.prefilling) + len(self.waiting) - self.scheduler.sequences + 1
        if full > 0 and decodes:
            more = batch.seconds(max(batch.steps_to_end(full), 1))
            rest = rest + more if self.chunks else self.began + more - now
        return rest + -(-ahead // budget) * iteration_s

    def _passed(self, now: float) -> int:
        """Decode steps of the current activity that were over before now."""
        if self.steps <= 1 or not self.busy:
            return 0
        return self.batch.steps_within(nextafter(now - self.began, 0.0), self.steps - 1)

    def in_use(self, now: float) -> tuple[int, int]:
        """Tokens of its cache that are in use, and its capacity in tokens."""
        pages, batch, passed = self.pages, self.batch, self._passed(now)
        grown = batch.growth.pages(batch.step, passed) if passed and batch.grows else 0
        return (pages.capacity - pages.room + grown) * pages.page, pages.capacity * pages.page

    def submit(self, sequence: Sequence, now: float) -> None:
        """A request is routed here."""
        if self.waiting:
            self.book_queue((self.queue_from, now, len(self.waiting)))
            first = self.enqueue(sequence)
        else:
            self.waiting.append(sequence)
            first = True
        self.queue_from = now
        self.load += 1
        if not sequence.ready:
            self.unprefilled += sequence.context
        sequence.seen = 0.0
        if not self.busy:
            self.wake(now)
        elif (first or self.extra) and self.steps > 1 and can_admit(self, sequence):
            sequence.seen = first_look = self._first_look(now)
            steps = int(first_look - self.iterations)
            if steps < self.steps:  # cut the run there; the new version invalidates its earlier end event
                self.steps = steps
                self.due = due = self.began + self.batch.seconds(steps)
                self.version = version = self.version + 1
                heappush(self.heap, (due, END, self.index, version, self))
        elif self.looks_late:
            sequence.seen = self._first_look(now)

    def _first_look(self, now: float) -> float:
        """The number of the first iteration that may admit a request which arrives now."""
        poll, first = self.poll, self.iterations + (self._passed(now) if self.steps > 1 else 0) + self.settled
        return first if poll == 1 else -(-first // poll) * poll

    def plan(self, now: float) -> None:
        """Decide on the next activity and start it."""
        self.busy = False
        need, preempted = 0, False
        batch, pages, waiting = self.batch, self.pages, self.waiting
        members = batch.members
        if members and batch.grows and (waiting or len(members) * self.queries > pages.room):
            # pages for the next step come first; the newest sequences give way until they fit
            need = batch.growth.pages(batch.step, 1)
            while need > pages.room:
                self._preempt(now)
                preempted = True
                need = batch.next_pages()
        chunks = self.chunks = admit(self, now, need, preempted) if waiting or self.prefilling else []
        if chunks:
            seconds = self._beside_prompts(chunks)
        elif members:
            first, order = batch.ends[0]
            steps_to_end = first - batch.step if order in members else batch.steps_to_end()
            steps = steps_to_end if self.leap and not preempted else 1
            if waiting:
                look = self._look() if self.extra else waiting[0].seen - self.iterations
                if 0 < look < steps:  # stop where a waiting request may be admitted
                    steps = int(look)
            if batch.grows:
                steps = batch.growth.steps(batch.step, pages.room, steps)
            self.steps = steps
            if batch.draft:
                seconds = batch.seconds(steps)
            else:
                seconds = batch.run(len(members), batch.offset + batch.pace * batch.step, steps)
        else:
            return
        self.busy, self.began = True, now
        self.due = due = now + seconds
        self.version = version = self.version + 1
        heappush(self.heap, (due, END, self.index, version, self))

    def _look(self) -> float:
        """Iterations until a waiting request may be admitted, which need not be the first if others may overtake it."""
        looks = (sequence.seen - self.iterations for sequence in self.waiting)
        return next((look for look in looks if look > 0), 0.0)

    def _beside_prompts(self, chunks: list[Chunk]) -> float:
        """Seconds of an iteration with these chunks of prompts, beside decoding sequences if the engine mixes them."""
        batch, times, queries = self.batch, self.times, self.queries
        if len(chunks) == 1:  # the usual case
            sequence, tokens = chunks[0]
            parts = [(tokens, sequence.context - sequence.todo)]
        else:
            parts = [(tokens, sequence.context - sequence.todo) for sequence, tokens in chunks]
        decodes = len(batch.members) if self.beside else 0
        self.steps = 1 if decodes else 0
        if decodes:
            cached = batch.offset + batch.pace * batch.step
            seconds = times.step(decodes, cached, parts, queries)
            if queries > 1:
                seconds += times.draft(decodes, cached, queries - 1)
        else:
            seconds = times.step(0, 0.0, parts)
        if self.loading or self.encoding:
            # loads of caches and adapters overlap with the iteration, images are encoded before it
            seconds = max(seconds, self.loading) + self.encoding
            self.loading = self.encoding = 0.0
        return seconds

    def look(self, now: float) -> None:
        """Look for work, after a wake-up."""
        self.woken = inf
        if self.alive and not self.busy:
            self.plan(now)

    def end(self, now: float) -> None:
        """The activity is over: tokens come out, sequences end, prompts begin to decode; then plan the next one."""
        steps, chunks = self.steps, self.chunks
        self._pass(steps, now)
        batch = self.batch
        if steps and batch.ends[0][0] <= batch.step:
            self._finish_ended(now)
        for sequence, tokens in chunks:
            sequence.todo = todo = sequence.todo - tokens
            self.unprefilled -= tokens
            self.prefilled += tokens
            if self.sharing:
                self.pages.publish(sequence, sequence.context - todo)
            if not todo:
                self._prefilled(sequence, now)
        self.plan(now)
        if self.watched and (now >= self.look_s or not self.busy):
            self.look_s = self.shared.watch.look(self, now)

    def _pass(self, steps: int, now: float) -> None:
        """Count an activity of so many decode steps that ends now."""
        batch, pages, began = self.batch, self.pages, self.began
        free_pages, since, joined, live = pages.room, batch.last_s, 0, len(batch.members)
        members = live
        if batch.padding:
            live -= len(batch.padding)
        if steps:
            self.iterations += steps
            self.emitted += (batch.pace + live - members) * steps
            if batch.joiners:
                joined = batch.first_gaps(began + (now - began) / steps)
            step, batch.last_s = batch.step, now
            batch.step = step + steps
            if batch.grows and (pages_grown := batch.growth.advance(step, steps)):
                pages.take(pages_grown)
                free_pages -= pages_grown / 2  # the mean over the activity
        else:
            self.iterations += 1
        running, used = live + len(self.prefilling), 1 - free_pages / pages.capacity
        self.book((self.index, began, now, steps, 1 if self.chunks else 0, live, running, used, since, joined))
        if self.recorder is not None:
            self.recorder.activity(self, now, running, used)

    def _finish_ended(self, now: float) -> None:
        batch, finish = self.batch, self.shared.finish
        ends, members, step = batch.ends, batch.members, batch.step
        while ends and ends[0][0] <= step:
            sequence = members.get(heappop(ends)[1])
            if sequence is None:  # it left early
                continue
            sequence.produced = sequence.request.output_tokens
            self.load -= 1
            if self.static:
                batch.padding.append(sequence)
            else:
                self.pages.release(sequence, batch.leave(sequence))
            finish(sequence, self, now)
        if batch.padding and not batch.live:
            for sequence in batch.padding:
                self.pages.release(sequence, batch.leave(sequence))
            batch.padding.clear()

    def _prefilled(self, sequence: Sequence, now: float) -> None:
        """A prompt is fully in the cache, and its next token is out."""
        self.prefilling.remove(sequence)
        sequence.produced += 1
        self.emitted += 1
        more = sequence.produced < sequence.request.output_tokens
        if self.prefills or not more:
            self.load -= 1
        if self.prefills and more:
            self.sending[sequence.order] = sequence
            self.shared.send(sequence, self, now)
            return
        self.shared.tally.token(sequence, now)
        if more:
            self.batch.join(sequence)
        else:
            self.pages.release(sequence, 0)
            self.shared.finish(sequence, self, now)

    def _evict(self, sequence: Sequence) -> None:
        """Remove a sequence with what it has produced so far; its cache is lost."""
        batch = self.batch
        if sequence.order in batch.members:
            sequence.last_s = max(sequence.last_s, batch.last_s)
            sequence.produced += sequence.grown(batch.step)
            self.pages.release(sequence, batch.leave(sequence))
        else:
            self.prefilling.remove(sequence)
            self.unprefilled -= sequence.todo
            self.pages.release(sequence, 0)
        sequence.reset()

    def _preempt(self, now: float) -> None:
        """Pages have run out: the newest sequence is preempted and will be recomputed."""
        members = self.batch.members
        victim = self.prefilling[-1] if self.prefilling else members[next(reversed(members))]
        self._evict(victim)
        victim.preemptions += 1
        self.shared.tally.preempted += 1
        self.count_queue(now)
        self.waiting.appendleft(victim)
        self.unprefilled += victim.unprefilled

    def delivered(self, sequence: Sequence, now: float) -> None:
        """The cache of a sequence has arrived elsewhere: its pages here are free."""
        del self.sending[sequence.order]
        self.pages.release(sequence, 0)
        self.wake(now)

    def flow(self, now: float) -> float:
        """Tokens that have come out by now."""
        return self.emitted + self._passed(now) * (self.batch.pace - len(self.batch.padding))

    def settle(self, now: float) -> None:
        """Break off the activity: completed steps count, the iteration in progress is lost."""
        steps = self._passed(now)
        if steps:
            last_s = self.began + self.batch.seconds(steps)
            self._pass(steps, last_s)
            self.began = last_s
        self._pass(0, now)  # the one that is lost
        self.busy = False

    def fail(self, now: float) -> list[Sequence]:
        """Fail. Returns the sequences it had, with the tokens that were out by now, in order of admission."""
        if self.busy:
            self.settle(now)
        ended = set(map(id, self.batch.padding))
        inside = [*self.batch.members.values(), *self.prefilling, *self.sending.values()]
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
        self.version += 1
        self.epoch += 1
        self.alive = False
        self.clear()
        if self.watched:
            self.look_s = self.shared.watch.look(self, now)
        return lost
