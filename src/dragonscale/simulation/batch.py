"""The decoding batch of a replica, as a function of steps.

A counter of decode steps is the batch's clock. A member says when it joined and how many steps it will take, and is not
touched in between: the tokens of the whole batch are a line in the clock, `offset + pace * step`, a heap holds the step
at which each member ends, and `EvenGrowth` or `UnevenGrowth` knows when members need pages. So any number of equal
steps costs the same.

When decoding sequences need their next pages.

A sequence that gains one token a step needs a page every `page` steps, so the batch is summed up by the remainder of
the steps at which its members do: pages over any number of steps cost no look at a single sequence. With speculation
each sequence has its own pace, and a heap holds the step of everyone's next page.

How many verify steps a sequence takes when drafts are accepted token by token with given probabilities.

A step that verifies `draft` proposals yields one token for sure and another for each proposal up to the first that is
rejected (`dragonscale.serving.steady.speculation.tokens_per_loop` has the mean). The draws depend on the seed and the
request alone, not on when or where it runs.
"""

import heapq
import math
import random
from bisect import bisect_right

from dragonscale.serving.iteration.step_times import StepTimes
from dragonscale.serving.steady.speculation import Acceptance, reached
from dragonscale.simulation.fleet import Scheduler
from dragonscale.simulation.request import Sequence
from dragonscale.simulation.result import Tally


class EvenGrowth:
    """One token a step for everyone.

    >>> from dragonscale.simulation.request import SimulatedRequest
    >>> growth, sequence = EvenGrowth(16), Sequence(SimulatedRequest(0, 0.0, 30, 100))
    >>> sequence.base, sequence.joined = 30, 100
    >>> growth.add(sequence)
    >>> growth.pages(100, 2), growth.pages(100, 3), growth.pages(100, 19)
    (0, 1, 2)
    >>> growth.steps(100, room=1, limit=50)
    18
    """

    def __init__(self, page: int) -> None:
        self.page = page
        self.counts = [0] * page
        self.members = 0

    def add(self, sequence: Sequence) -> None:
        """A sequence joins."""
        self.counts[(sequence.joined + 1 - sequence.base) % self.page] += 1
        self.members += 1

    def remove(self, sequence: Sequence) -> None:
        """A sequence leaves."""
        self.counts[(sequence.joined + 1 - sequence.base) % self.page] -= 1
        self.members -= 1

    def pages(self, step: int, steps: int) -> int:
        """Pages taken in the `steps` steps after `step`."""
        page, counts = self.page, self.counts
        if steps == 1:  # as nearly always
            return counts[(step + 1) % page]
        total, rest = steps // page * self.members, steps % page
        if rest:
            start = (step + 1) % page
            stop = start + rest
            if stop <= page:
                total += sum(counts[start:stop])
            else:  # all but those between
                total += self.members - sum(counts[stop - page : start])
        return total

    advance = pages  # steps that are over leave nothing behind

    def steps(self, step: int, room: int, limit: int) -> int:
        """The most steps, up to `limit`, whose pages fit into `room`."""
        if self.members * (limit // self.page + 1) <= room or self.pages(step, limit) <= room:
            return limit
        done = room // self.members * self.page
        room -= room // self.members * self.members
        while True:
            need = self.counts[(step + done + 1) % self.page]
            if need > room:
                return done
            room -= need
            done += 1


class UnevenGrowth:
    """Everyone at a pace of their own."""

    def __init__(self, page: int) -> None:
        self.page = page
        self.heap: list[tuple[int, int, int]] = []  # step of the next page, order, tokens that fill the pages before it
        self.members: dict[int, Sequence] = {}
        self.pace = 0.0  # tokens a step of all together

    def _next(self, sequence: Sequence, full: int) -> int:
        """The first step at which a sequence holds more than `full` tokens."""
        return sequence.joined - (-(full + 1 - sequence.base) * sequence.steps // sequence.left)

    def add(self, sequence: Sequence) -> None:
        self.members[sequence.order] = sequence
        self.pace += sequence.left / sequence.steps
        full = -(-sequence.base // self.page) * self.page
        heapq.heappush(self.heap, (self._next(sequence, full), sequence.order, full))

    def remove(self, sequence: Sequence) -> None:
        del self.members[sequence.order]
        self.pace -= sequence.left / sequence.steps
        if len(self.heap) > 64 + 4 * len(self.members):
            self.heap = [item for item in self.heap if item[1] in self.members]
            heapq.heapify(self.heap)

    def _take(self, heap: list[tuple[int, int, int]], until: int, room: int | None) -> tuple[int, int]:
        """Walk a heap up to a step, or to the page that finds no room: pages taken, and the last step that is whole."""
        taken = 0
        while heap and heap[0][0] <= until:
            step, order, full = heap[0]
            sequence = self.members.get(order)
            if sequence is None:
                heapq.heappop(heap)
                continue
            if room is not None and taken == room:
                return taken, step - 1
            taken += 1
            heapq.heapreplace(heap, (self._next(sequence, full + self.page), order, full + self.page))
        return taken, until

    def pages(self, step: int, steps: int) -> int:
        return self._take(self.heap.copy(), step + steps, None)[0]

    def advance(self, step: int, steps: int) -> int:
        return self._take(self.heap, step + steps, None)[0]

    def steps(self, step: int, room: int, limit: int) -> int:
        if self.pace * limit / self.page + 2 * len(self.members) <= room:  # more than they can take
            return limit
        return self._take(self.heap.copy(), step + limit, room)[1] - step


class Batch:
    """Sequences that decode together. `grows` says whether they take pages as they go, or have all they need."""

    def __init__(self, scheduler: Scheduler, times: StepTimes, grows: bool, seed: int, tally: Tally) -> None:
        self.scheduler, self.times, self.grows, self.seed, self.tally = scheduler, times, grows, seed, tally
        self.draft, self.run = scheduler.draft, times.run
        self.growth = UnevenGrowth(scheduler.page_tokens) if scheduler.draft else EvenGrowth(scheduler.page_tokens)
        self.members: dict[int, Sequence] = {}  # by number of admission, in order of joining
        self.padding: list[Sequence] = []  # ended members of a static batch, which keep their places
        self.ends: list[tuple[int, int]] = []  # last step and number of each member, and of some who left early
        self.step = 0
        self.offset: float = 0
        self.pace: float = 0
        self.joiners: dict[int, float] = {}  # who joined since the last step, with the time of their latest token
        self.last_s = 0.0  # end of the last step

    @property
    def live(self) -> int:
        """Members that still produce."""
        return len(self.members) - len(self.padding)

    @property
    def cached(self) -> float:
        """Tokens in the members' caches."""
        return self.offset + self.pace * self.step

    def seconds(self, steps: int) -> float:
        """Time of the next steps. With speculation a member grows by more than a token, so the steps are priced at
        their mean cache, which is exact as long as a step's time is linear in it."""
        if not self.draft:
            return self.run(len(self.members), self.offset + self.pace * self.step, steps)
        decodes = len(self.members)
        cached = self.cached + self.pace * (steps - 1) / 2
        verify = self.times.step(decodes, cached, (), self.draft + 1)
        return steps * (verify + self.times.draft(decodes, cached, self.draft))

    def steps_within(self, seconds: float, limit: int) -> int:
        """The most whole steps within a time, up to a limit."""
        if not self.draft:
            steps = self.times.steps_within(len(self.members), self.offset + self.pace * self.step, seconds)
            return steps if steps < limit else limit
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.seconds(middle) <= seconds else (low, middle - 1)
        return low

    def steps_to_end(self, count: int = 1) -> int:
        """Steps until so many members have ended, or all."""
        ends, members = self.ends, self.members
        while (first := ends[0])[1] not in members:
            heapq.heappop(ends)
        if count == 1:
            return first[0] - self.step
        return heapq.nsmallest(count, (end for end in ends if end[1] in members))[-1][0] - self.step

    def next_pages(self) -> int:
        """Pages the next step takes."""
        return self.growth.pages(self.step, 1) if self.grows else 0

    def join(self, sequence: Sequence) -> None:
        """A sequence whose context is in the cache begins to decode."""
        request, order, step = sequence.request, sequence.order, self.step
        sequence.joined = step
        base = sequence.base = sequence.context
        steps = left = sequence.left = request.output_tokens - sequence.produced
        growth: float = 1
        if self.draft:
            steps, tokens = verify_steps(left, self.draft, self.scheduler.acceptance, self.seed, request.number)
            growth = left / steps
            self.tally.verify_steps += steps
            self.tally.verify_tokens += tokens
        sequence.steps, sequence.growth = steps, growth
        self.offset += base - growth * step
        self.pace += growth
        self.joiners[order] = sequence.last_s
        self.members[order] = sequence
        if self.grows:
            self.growth.add(sequence)
        heapq.heappush(self.ends, (step + steps, order))

    def leave(self, sequence: Sequence) -> int:
        """A member leaves; the pages it has taken since it joined."""
        members, base = self.members, sequence.base
        del members[sequence.order]
        if self.joiners:
            self.joiners.pop(sequence.order, None)
        if members:
            growth = sequence.growth
            self.offset -= base - growth * sequence.joined
            self.pace -= growth
        else:
            self.offset = self.pace = 0
        if not self.grows:
            return 0
        of_pages = self.growth
        of_pages.remove(sequence)
        page = of_pages.page
        return -(-(base + sequence.grown(self.step)) // page) - -(-base // page)

    def first_gaps(self, first_s: float) -> int:
        """Count the gap between tokens of those who joined before steps of which the first ended then; how many."""
        joiners, gap = self.joiners, self.tally.gap
        joined = len(joiners)
        for token_s in joiners.values():
            gap(first_s - token_s, 1)
        joiners.clear()
        return joined


def verify_steps(tokens: int, draft: int, acceptance: Acceptance, seed: int, number: int) -> tuple[int, int]:
    """Steps until at least `tokens` tokens are out, and the tokens those steps yield (the last may overshoot)."""
    if isinstance(acceptance, tuple) and len(acceptance) == 1:
        acceptance = acceptance[0]
    if draft == 0 or acceptance == 0:
        return tokens, tokens
    if acceptance == 1:
        steps = -(-tokens // (draft + 1))
        return steps, steps * (draft + 1)
    draw = random.Random((seed << 40) ^ (number << 8) ^ (tokens & 0xFF)).random
    steps = done = 0
    if isinstance(acceptance, tuple):
        wrong = [1.0 - float(part) for part in reached(acceptance, draft)]
        while done < tokens:
            done += 1 + bisect_right(wrong, draw())
            steps += 1
        return steps, done
    scale = 1 / math.log(acceptance)
    while done < tokens:
        done += 1 + min(draft, int(math.log(1.0 - draw()) * scale))
        steps += 1
    return steps, done
