"""HTTP/1.1 as both servers speak it, by uvicorn: whoever begins a request has to send its headers in time, and whoever
sends too much is told so.

uvicorn itself waits for ever for headers that have begun. And it closes a connection as soon as it has answered: where
the client still sends, the system then resets the connection, and the answer is lost on its way. Here what comes after
the answer is read and thrown away for a while. The page's server counts connections too and gives up on readers that do
not read (`web.server.connections`).
"""

import asyncio
import ipaddress
import sys
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

QUIET: dict[str, Any] = {"ws": "none", "lifespan": "off"}
QUIET |= dict.fromkeys(("access_log", "server_header", "proxy_headers"), False)
"""What both servers tell uvicorn: they log requests themselves, and believe no proxy unasked."""
WRONG_PATH = {404: "There is no such path here.", 405: "This path does not take this method."}


LINGER_S, LINGER_BYTES = 5.0, 256 << 20
"""How long, and how much, is read of a request that was refused before its end."""


class LingeringTransport:
    """A transport whose `close` waits for the end of a request that is still being sent."""

    def __init__(self, transport: Any, protocol: "PromptProtocol") -> None:
        self._transport, self._protocol = transport, protocol

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Whether nothing more is to be written."""
        return self._protocol.thrown_away is not None or self._transport.is_closing()

    def close(self) -> None:
        """Close it, at once where nothing more is to come."""
        if not self._protocol.linger(self._transport):
            self._transport.close()


class PromptProtocol(H11Protocol):
    """A connection that is closed where headers are late, and after the client has sent what it began."""

    late: asyncio.TimerHandle | None = None
    thrown_away: int | None = None
    """Bytes read since the answer was sent; None before."""

    @property
    def headers_s(self) -> float:
        """Seconds that headers may take."""
        return self.config.timeout_keep_alive

    def connection_made(self, transport: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(LingeringTransport(transport, self))  # pyright: ignore[reportArgumentType]
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.thrown_away is not None:
            self.thrown_away += len(data)
            if self.thrown_away > LINGER_BYTES:
                self.give_up()
            return
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._expect()
        else:
            self._arrived()

    def linger(self, transport: Any) -> bool:
        """Whether the client is in the middle of a request: the answer's end is told, and the rest is read."""
        unfinished = self.conn.their_state in (h11.SEND_BODY, h11.ERROR)
        if self.thrown_away is not None or not unfinished or transport.is_closing() or not transport.can_write_eof():
            return False
        self.thrown_away = 0
        transport.write_eof()
        transport.resume_reading()
        self._arrived()
        self.late = self.loop.call_later(LINGER_S, self.give_up)
        return True

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, and headers that are too long by their own status."""
        if getattr(sys.exc_info()[1], "error_status_hint", 400) != 431:
            super().send_400_response(msg)
            return
        limit = self.config.h11_max_incomplete_event_size or 0
        said = f"The headers of the request are longer than {limit >> 10} kB.\n".encode()
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
        for event in (
            h11.Response(status_code=431, headers=headers, reason=b"Request Header Fields Too Large"),
            h11.Data(data=said),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _expect(self) -> None:
        """Headers are awaited from now on, if they were not before."""
        if self.late is None:
            self.late = self.loop.call_later(self.headers_s, self.give_up)

    def _arrived(self) -> None:
        if self.late is not None:
            self.late.cancel()
            self.late = None

    def give_up(self) -> None:
        """Close it without a word."""
        if self.transport is not None:
            self.transport.abort()


def read_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The number of an address; None of a name."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def address_key(given: str) -> str:
    """An address as a client is counted by it: a network of IPv6 counts as one.

    >>> address_key("10.0.0.7"), address_key("2001:db8::1"), address_key("::ffff:10.0.0.7")
    ('10.0.0.7', '2001:db8::/64', '10.0.0.7')
    """
    address = read_address(given)
    if address is None:
        return given[:64]
    if address.version == 6 and not address.ipv4_mapped and not address.is_loopback:
        return str(ipaddress.ip_network(f"{address}/64", strict=False))
    return str((address.version == 6 and address.ipv4_mapped) or address)
