"""When decoding sequences need their next pages.

A sequence that gains one token a step needs a page every `page` steps, so the batch is summed up by the remainder of
the steps at which its members do: pages over any number of steps cost no look at a single sequence. With speculation
each sequence has its own pace, and a heap holds the step of everyone's next page.
"""

import heapq

from dragonscale.simulation.request import Sequence


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
        if steps == 1:  # as nearly always
            return self.counts[(step + 1) % self.page]
        rounds, rest = divmod(steps, self.page)
        total = rounds * self.members
        if rest:
            page, counts = self.page, self.counts
            start = (step + 1) % page
            stop = start + rest
            total += sum(counts[start:stop]) if stop <= page else sum(counts[start:]) + sum(counts[: stop - page])
        return total

    def advance(self, step: int, steps: int) -> int:
        """Pages taken in the `steps` steps after `step`, which are over."""
        return self.pages(step, steps)

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
