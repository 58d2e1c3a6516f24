"""Questions that wait for a worker, by lane: what is quick, then what is slow, then what is searched behind a page.

>>> queue = TurnQueue(8)
>>> for name, lane in (("curve", "behind"), ("search", "slow"), ("slider", "quick")):
...     queue.put(Turn(name.encode(), lane))
>>> [queue.next(lambda _: True).body.decode() for _ in range(3)]
['slider', 'search', 'curve']
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from dragonscale.errors import InputError
from dragonscale.web.server.lanes import BEHIND, QUICK, SLOW
from dragonscale.workers import Mailbox


def error_line(kind: str, sentence: str) -> bytes:
    """The last line of an answer that failed."""
    return msgspec.json.encode({"error": {"kind": kind, "text": sentence}}) + b"\n"


class Crowded(InputError):
    """There is no room for a question now; `retry_after` seconds on there may be."""

    def __init__(self, sentence: str, retry_after: int = 2) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after


class Turn(Mailbox[bytes]):
    """A question on its way, and the lines of its answer that its reader has not taken yet. `key` names the record that
    it needs."""

    def __init__(self, body: bytes, lane: str, key: str = "") -> None:
        super().__init__()
        self.body, self.lane, self.key = body, lane, key
        self.remembered = False
        """Whether a worker that has the record could answer it at once."""
        self.begun = time.monotonic()
        self.bytes = 0
        self.again = False
        """Whether it was asked once more after its worker died."""
        self.left_at: float | None = None
        """When its reader went."""
        self.gave_way_at: float | None = None
        """When it was interrupted for another question, until it begins anew."""
        self.worker: Any = None

    def hear(self, line: bytes) -> None:
        """A line of the answer."""
        self.bytes += len(line)
        self.put(line)

    async def next_line(self) -> bytes | None:
        """The next line, or None at the end."""
        line = await self.next()
        self.bytes -= len(line or b"")
        return line


class TurnQueue:
    """Turns that wait, each lane in the order in which they came; at most `max_waiting` of them."""

    def __init__(self, max_waiting: int) -> None:
        self.max_waiting = max_waiting
        self.lanes: dict[str, deque[Turn]] = {lane: deque() for lane in (QUICK, SLOW, BEHIND)}

    @property
    def waiting(self) -> int:
        return sum(map(len, self.lanes.values()))

    def put(self, turn: Turn) -> None:
        """Take a turn in, or refuse it where too many wait."""
        if self.waiting >= self.max_waiting:
            raise Crowded(f"{self.waiting} questions wait already; ask again in a few seconds.")
        self.lanes[turn.lane].append(turn)

    def next(self, eligible: Callable[[Turn], bool]) -> Turn | None:
        """The turn to begin now, of those that a free worker may take."""
        for lane in self.lanes.values():
            for turn in lane:
                if eligible(turn):
                    lane.remove(turn)
                    turn.begun = time.monotonic()
                    return turn
        return None

    def drop(self, turn: Turn) -> bool:
        """Whether it still waited; it does no longer."""
        if turn not in self.lanes[turn.lane]:
            return False
        self.lanes[turn.lane].remove(turn)
        return True

    def backlog(self, *lanes: str) -> int:
        """How many wait in some lanes."""
        return sum(len(self.lanes[lane]) for lane in lanes)

    def all_waiting(self) -> list[Turn]:
        """Every turn that waits."""
        return [turn for lane in self.lanes.values() for turn in lane]
