"""HTTP/1.1 as both servers speak it, by uvicorn: whoever begins a request has to send its headers in time.

uvicorn itself waits for ever for headers that have begun. The page's server counts connections too and gives up on
readers that do not read (`web.server.connections`).
"""

import asyncio
import ipaddress
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

QUIET: dict[str, Any] = {"ws": "none", "lifespan": "off"}
QUIET |= dict.fromkeys(("access_log", "server_header", "proxy_headers"), False)
"""What both servers tell uvicorn: they log requests themselves, and believe no proxy unasked."""
WRONG_PATH = {404: "There is no such path here.", 405: "This path does not take this method."}


class PromptProtocol(H11Protocol):
    """A connection that is closed where headers are late."""

    late: asyncio.TimerHandle | None = None

    @property
    def headers_s(self) -> float:
        """Seconds that headers may take."""
        return self.config.timeout_keep_alive

    def connection_made(self, transport: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._expect()
        else:
            self._arrived()

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
        if self.transport is not None and not self.transport.is_closing():
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
