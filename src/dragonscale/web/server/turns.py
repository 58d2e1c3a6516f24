"""Whose turn it is: a queue that is fair between clients.

A client is an address, and behind it the tabs that ask from there. The next turn is that of the address with the least
work under way, the one that was served longest ago among equals; then the same between its tabs; then what is quick
before what is slow. What is searched behind a page comes after every question of any reader. Whoever sends a thousand
questions so waits for itself alone: everybody else is next after what runs now.

>>> queue = FairQueue(PageSettings())
>>> for name in ("flood 1", "flood 2", "flood 3"):
...     queue.put(Turn(name.encode(), "10.0.0.1", "a", "quick"))
>>> queue.put(Turn(b"honest", "10.0.0.2", "b", "quick"))
>>> [queue.next(lambda _: True).body.decode() for _ in range(4)]
['flood 1', 'honest', 'flood 2', 'flood 3']
"""

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from dragonscale.errors import InputError
from dragonscale.web.server.lanes import BEHIND, QUICK, SLOW
from dragonscale.web.server.settings import PageSettings
from dragonscale.workers import Mailbox

SWEPT = 10.0
"""Seconds between two sweeps of addresses."""


def error_line(kind: str, sentence: str) -> bytes:
    """The last line of an answer that failed."""
    return msgspec.json.encode({"error": {"kind": kind, "text": sentence}}) + b"\n"


class Crowded(InputError):
    """There is no room for a question now; `retry_after` seconds on there may be."""

    def __init__(self, sentence: str, retry_after: int = 2) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after


class Turn(Mailbox[bytes]):
    """A question on its way: who asked it, and the lines of its answer that its reader has not taken yet."""

    def __init__(self, body: bytes, address: str, tab: str, lane: str, key: str = "") -> None:
        super().__init__()
        self.body, self.address, self.tab, self.lane, self.key = body, address, tab, lane, key
        self.remembered = False
        """Whether a worker that has the record could answer it at once."""
        self.came = self.begun = time.monotonic()
        self.bytes = 0
        self.again = False
        self.left_at: float | None = None
        self.gave_way_at: float | None = None
        """When it was interrupted for another question of its asker, until it begins anew."""
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


class _Tab:
    def __init__(self) -> None:
        self.lanes: dict[str, deque[Turn]] = {lane: deque() for lane in (QUICK, SLOW, BEHIND)}
        self.running, self.served = 0, 0

    def __len__(self) -> int:
        return sum(map(len, self.lanes.values()))


class _Address:
    def __init__(self) -> None:
        self.tabs: dict[str, _Tab] = {}
        self.running, self.served, self.waiting = 0, 0, 0
        self.demoted_until = 0.0
        self._spent, self._spent_at = 0.0, 0.0

    def spent(self, half_s: float, more: float = 0.0) -> float:
        """Seconds of slow work that it has had lately, with `more` added."""
        now = time.monotonic()
        self._spent = self._spent * 0.5 ** ((now - self._spent_at) / half_s) + more
        self._spent_at = now
        return self._spent

    def many(self, lanes: Iterable[str]) -> int:
        """How many wait in some lanes."""
        return sum(len(tab.lanes[lane]) for tab in self.tabs.values() for lane in lanes)

    def idle(self, half_s: float) -> bool:
        """Whether nothing of it is here or remembered against it."""
        return not self.tabs and self.demoted_until < time.monotonic() and self.spent(half_s) < 1.0


class FairQueue:
    """Turns that wait, by address and tab."""

    def __init__(self, settings: PageSettings) -> None:
        self.settings = settings
        self.addresses: dict[str, _Address] = {}
        self.waiting = 0
        self._served = itertools.count(1)
        self._swept = time.monotonic()

    def put(self, turn: Turn) -> None:
        """Take a turn in, or refuse it where too many wait."""
        limits = self.settings
        self._sweep()
        address = self.addresses.setdefault(turn.address, _Address())
        tab = address.tabs.setdefault(turn.tab, _Tab())
        full = len(tab) >= limits.waiting_per_tab or address.waiting >= limits.waiting_per_address
        if full or self.waiting >= limits.waiting:
            whose = "you sent" if full else "others sent"
            count = address.waiting if full else self.waiting
            self._forget(turn)
            raise Crowded(f"{count} questions that {whose} wait already; ask again in a few seconds.")
        if address.demoted_until > time.monotonic():
            turn.lane = SLOW
        tab.lanes[turn.lane].append(turn)
        address.waiting += 1
        self.waiting += 1

    def next(self, eligible: Callable[[Turn], bool]) -> Turn | None:
        """The turn to begin now, of those that a free worker may take."""
        for lanes in ((QUICK, SLOW), (BEHIND,)):  # what gave way would else begin again before what it gave way to
            for address in sorted((one for one in self.addresses.values() if one.waiting), key=_order_of):
                for tab in sorted((one for one in address.tabs.values() if len(one)), key=_order_of):
                    for lane in (tab.lanes[name] for name in lanes):
                        if lane and eligible(lane[0]):
                            return self._begin(address, tab, lane.popleft())
        return None

    def drop(self, turn: Turn) -> bool:
        """Whether it still waited; it does no longer."""
        address = self.addresses.get(turn.address)
        tab = address.tabs.get(turn.tab) if address else None
        if address is None or tab is None or turn not in tab.lanes[turn.lane]:
            return False
        tab.lanes[turn.lane].remove(turn)
        self._left(address)
        self._forget(turn)
        return True

    def ended(self, turn: Turn) -> None:
        """A turn that had begun is over."""
        address = self.addresses[turn.address]
        address.running -= 1
        address.tabs[turn.tab].running -= 1
        self._forget(turn)

    def demote(self, turn: Turn) -> None:
        """Its question had to be stopped: what its address asks next does not count as quick for a while."""
        self.addresses[turn.address].demoted_until = time.monotonic() + self.settings.demoted_s

    def spend(self, turn: Turn, seconds: float) -> None:
        """Slow work was done for its address."""
        self.addresses[turn.address].spent(self.settings.spent_half_s, seconds)

    def spent(self, turn: Turn) -> float:
        """Seconds of slow work that its address has had lately, without this turn."""
        return self.addresses[turn.address].spent(self.settings.spent_half_s)

    def backlog(self, turn: Turn, *lanes: str) -> int:
        """How many more of its address wait."""
        return self.addresses[turn.address].many(lanes) if turn.address in self.addresses else 0

    def others_wait(self, turn: Turn, *lanes: str) -> bool:
        """Whether somebody at another address waits, with nothing under way, for what this turn holds."""
        waiting = ((name, one) for name, one in self.addresses.items() if one.waiting)
        return any(name != turn.address and not one.running and one.many(lanes) for name, one in waiting)

    def all_waiting(self) -> list[Turn]:
        """Every turn that waits."""
        tabs = (tab for one in self.addresses.values() for tab in one.tabs.values())
        return [turn for tab in tabs for lane in tab.lanes.values() for turn in lane]

    def _begin(self, address: _Address, tab: _Tab, turn: Turn) -> Turn:
        address.served = tab.served = next(self._served)
        address.running += 1
        tab.running += 1
        self._left(address)
        turn.begun = time.monotonic()
        return turn

    def _left(self, address: _Address) -> None:
        address.waiting -= 1
        self.waiting -= 1

    def _forget(self, turn: Turn) -> None:
        """Keep nothing of those who have nothing here, or a client could fill the memory with names of tabs."""
        address = self.addresses[turn.address]
        tab = address.tabs.get(turn.tab)
        if tab is not None and not tab.running and not len(tab):
            del address.tabs[turn.tab]
        if address.idle(self.settings.spent_half_s):
            del self.addresses[turn.address]

    def _sweep(self) -> None:
        """Forget, now and then, those whose past no longer counts and who have not come back."""
        now = time.monotonic()
        if now - self._swept > SWEPT:
            self._swept = now
            gone = [name for name, one in self.addresses.items() if one.idle(self.settings.spent_half_s)]
            for name in gone:
                del self.addresses[name]


def _order_of(one: _Address | _Tab) -> tuple[int, int]:
    return one.running, one.served
