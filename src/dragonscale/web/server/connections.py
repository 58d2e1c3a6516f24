"""Connections: how many there may be, and what becomes of those that send or read too slowly.

uvicorn waits for ever for headers that have begun, and for a reader that does not read. Here both have a time. Where
there are too many connections, the one that has been without a request for longest is closed for a new one, of the
address that has the most: whoever holds thousands open takes them from itself.
"""

import asyncio
import socket
import time
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from dragonscale.web.server.gate import address_key
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


class PageProtocol(H11Protocol):
    """HTTP/1.1 with a time for headers and for readers."""

    room: OpenConnections
    address = ""
    idle_since = 0.0
    _late: asyncio.TimerHandle | None = None
    _full: asyncio.TimerHandle | None = None

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
        if self.room.enter(self):
            self._expect()
        else:
            self.give_up()

    def connection_lost(self, exc: Exception | None) -> None:
        self.room.leave(self)
        for timer in (self._late, self._full):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._expect()
        elif self._late is not None:
            self._late.cancel()
            self._late = None

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

    def _expect(self) -> None:
        """Headers are awaited from now on, if they were not before."""
        if self._late is None:
            self._late = self.loop.call_later(self.room.settings.headers_s, self.give_up)

    def give_up(self) -> None:
        """Close it without a word."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.abort()


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
