"""Sequences that wait for a slot, in turn between clients.

The next slot is that of the client who was served longest ago, so that one who sends a thousand requests waits for
itself and everybody else is next. Among a client's own, and where there is one client only, it is first come first
served. A sequence that lost its slot to another goes before everybody: it had its turn.

>>> queue = ClientQueue(client_of=lambda name: name[0])
>>> for name in ("a1", "a2", "a3", "b1"):
...     queue.append(name)
>>> queue.appendleft("a0")
>>> [queue.popleft() for _ in range(len(queue))]
['a0', 'a1', 'b1', 'a2', 'a3']
"""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Generic, TypeVar

Item = TypeVar("Item")


class ClientQueue(Generic[Item]):
    """As a deque, of which only the first can be read. Everything but `remove` takes the same time at any length."""

    def __init__(self, client_of: Callable[[Item], str]) -> None:
        self._client_of = client_of
        self._returned: deque[Item] = deque()
        self._by_client: dict[str, deque[Item]] = {}
        """By whose turn it is: clients move to the end when one of theirs was taken."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Item]:
        return chain(self._returned, *self._by_client.values())

    @property
    def first(self) -> Item:
        """The next to be taken."""
        return self._first_queue()[0]

    def append(self, item: Item) -> None:
        """Wait for the turn of its client."""
        self._by_client.setdefault(self._client_of(item), deque()).append(item)
        self._count += 1

    def appendleft(self, item: Item) -> None:
        """Go before everybody."""
        self._returned.appendleft(item)
        self._count += 1

    def popleft(self) -> Item:
        """Take the next out."""
        queue = self._first_queue()
        item = queue.popleft()
        self._count -= 1
        if queue is not self._returned:
            client = next(iter(self._by_client))
            del self._by_client[client]
            if queue:
                self._by_client[client] = queue
        return item

    def remove(self, item: Item) -> None:
        """Take one out wherever it is."""
        client = self._client_of(item)
        if item in self._returned:
            self._returned.remove(item)
        else:
            self._by_client[client].remove(item)
            if not self._by_client[client]:
                del self._by_client[client]
        self._count -= 1

    def _first_queue(self) -> deque[Item]:
        return self._returned or next(iter(self._by_client.values()))
