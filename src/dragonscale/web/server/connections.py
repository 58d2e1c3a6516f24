"""Connections: how many there may be, and what becomes of those that send or read too slowly.

uvicorn waits for ever for a reader that does not read. Here that has a time, as headers have (`prompt_http`). Where
there are too many connections, the one that has been without a request for longest is closed for a new one, of the
address that has the most: whoever holds thousands open takes them from itself.
"""

import asyncio
import socket
import time
from typing import Any

from dragonscale.prompt_http import PromptProtocol, address_key
from dragonscale.web.server.settings import PageSettings


class OpenConnections:
    """All connections, by address."""

    def __init__(self, settings: PageSettings, most: int) -> None:
        self.settings, self.most = settings, min(settings.connections, most)
        self.by_address: dict[str, set[PageProtocol]] = {}
        self.count = 0

    def enter(self, one: "PageProtocol") -> bool:
        """Whether there is room for it, once another was closed where that is needed."""
        mine = self.by_address.setdefault(one.address, set())
        mine.add(one)
        self.count += 1
        if len(mine) > self.settings.connections_per_address:
            return self._make_room(mine, one)
        if self.count > self.most:
            return self._make_room(max(self.by_address.values(), key=len), one)
        return True

    def leave(self, one: "PageProtocol") -> None:
        """It is closed."""
        mine = self.by_address.get(one.address, set())
        if one in mine:
            mine.discard(one)
            self.count -= 1
        if not mine:
            self.by_address.pop(one.address, None)

    def _make_room(self, among: "set[PageProtocol]", newest: "PageProtocol") -> bool:
        idle = [one for one in among if one is not newest and not one.busy]
        if not idle:
            return False
        min(idle, key=lambda one: one.idle_since).give_up()
        return True


class PageProtocol(PromptProtocol):
    """HTTP/1.1 with a time for readers too, and a place among all connections."""

    room: OpenConnections
    address = ""
    idle_since = 0.0
    _full: asyncio.TimerHandle | None = None

    @property
    def headers_s(self) -> float:
        return self.room.settings.headers_s

    @property
    def busy(self) -> bool:
        """Whether a request is under way."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=256 << 10)
        # asyncio does this only for sockets that say TCP by their number: without it every answer waits 40 ms for an
        # acknowledgement
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.address, self.idle_since = address_key(self.client[0] if self.client else ""), time.monotonic()
        if not self.room.enter(self):
            self.give_up()

    def connection_lost(self, exc: Exception | None) -> None:
        self.room.leave(self)
        if self._full is not None:
            self._full.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self.idle_since = time.monotonic()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._full = self.loop.call_later(self.room.settings.write_s, self.give_up)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._full is not None:
            self._full.cancel()
            self._full = None


def protocol_of(settings: PageSettings) -> type[PageProtocol]:
    """The protocol of one server, with its own count of connections."""
    return type("PageProtocol", (PageProtocol,), {"room": OpenConnections(settings, _descriptors() - 128)})


def _descriptors() -> int:
    """Files that this process may have open, after it asked for as many as it can have."""
    try:
        import resource
    except ImportError:
        return 1 << 16
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 4096) if hard != resource.RLIM_INFINITY else 4096
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(soft, wanted, 256)
