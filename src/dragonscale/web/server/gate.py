"""The gate: who may speak to the server, how fast, and what every response says to the browser.

A page elsewhere on the web can make a browser send requests to this machine, in two ways. It can send them across
sites, which `origin` and `sec-fetch-site` show; or it can let its own name point to this address (DNS rebinding), which
`host` shows, because a browser sends the name. Both are refused here, before anything is read.
"""

import re
import time
import tomllib
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.responses import Response

from dragonscale.prompt_http import address_key, read_address
from dragonscale.web.kept import Remembered
from dragonscale.web.server.settings import LOOPBACK_NAMES, PageSettings
from dragonscale.web.server.turns import error_line

_TABLE: dict[str, str] = tomllib.loads(Path(__file__).with_name("headers.toml").read_text(encoding="utf-8"))
HEADERS = tuple((name.encode(), value.encode()) for name, value in _TABLE.items())
"""Sent with every response."""
_TAB = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ADDRESSES = 4096
"""Addresses whose pace is remembered."""


class Pace:
    """A bucket for each address: so much at once, and so much a second comes back.

    >>> pace = Pace(10.0, 2.0)
    >>> pace.take("a", 1.0, 0.0), pace.take("a", 1.0, 0.0), pace.take("a", 1.0, 0.0), pace.take("a", 1.0, 0.2)
    (True, True, False, True)
    """

    def __init__(self, per_s: float, at_once: float) -> None:
        self.per_s, self.at_once = per_s, at_once
        self.left = Remembered[str, tuple[float, float]](_ADDRESSES)

    def take(self, address: str, amount: float, now: float | None = None) -> bool:
        """Whether the address may; if so, it has so much less."""
        now = time.monotonic() if now is None else now
        left, then = self.left.get(address) or (self.at_once, now)
        left = min(self.at_once, left + (now - then) * self.per_s)
        allowed = left >= amount
        self.left.put(address, (left - amount if allowed else left, now))
        return allowed


class Refusal(Exception):
    """A request that is not answered: its status, a sentence, and headers."""

    def __init__(
        self, status: int, sentence: str, kind: str = "refused", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.kind = status, sentence, kind
        # what is left of a body is not read
        unread = {"connection": "close"} if status in (408, 413, 429, 431) else {}
        self.headers = {"cache-control": "no-store", **(headers or {}), **unread}

    @property
    def answer(self) -> Response:
        """The sentence as the page reads it."""
        return Response(error_line(self.kind, self.sentence), self.status, self.headers, "application/json")


class PageGate:
    """Middleware around every request."""

    def __init__(self, app: Any, settings: PageSettings, log: Any = None) -> None:
        self.app, self.settings, self.log = app, settings, log
        self.pace = Pace(settings.requests_per_s, settings.requests_at_once)
        self.large = Pace(settings.large_bytes_per_s, settings.large_bytes_at_once)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        status, begun = 0, time.monotonic()

        async def say(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        try:
            state = scope.setdefault("state", {})
            state["address"] = address = self.address_of(scope)
            state["large"] = self.large
            self._check(scope, dict(scope["headers"]), address)
            await self.app(scope, receive, say)
        except Refusal as refusal:
            if not status:
                await refusal.answer(scope, receive, say)
        except Exception:  # a fault of ours: the client was told by the app
            traceback.print_exc()
        finally:
            if self.log is not None:
                self.log(f"{scope['method']} {scope['path']!r} {status} {1000 * (time.monotonic() - begun):.0f} ms")

    def address_of(self, scope: Any) -> str:
        """Who asks: the other end of the connection, or whom the proxy names. A network of IPv6 counts as one."""
        given = (scope.get("client") or ("",))[0]
        if self.settings.proxy and given == self.settings.proxy:
            named = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
            given = named[-1].decode("latin-1").rpartition(",")[2].strip() if named else given
        return address_key(given)

    def _check(self, scope: Any, headers: dict[bytes, bytes], address: str) -> None:
        host = headers.get(b"host", b"").decode("latin-1")
        if not self.allows_host(host):
            raise Refusal(421, "The header `host` names none of this server's hosts; start it with --allow-host NAME.")
        path, method = scope["path"], scope["method"]
        changes = method not in ("GET", "HEAD")
        if changes or path.startswith("/api/"):
            self._check_origin(headers, host, changes)
        if path.startswith("/api/") and not self.pace.take(address, 1.0):
            raise too_fast()

    def allows_host(self, given: str) -> bool:
        """Whether a `host` header names this server. A number cannot be rebound, so where others are let in, any will
        do."""
        name, settings = host_name(given), self.settings
        if not name:
            return False
        if name in settings.names or name == settings.host.lower():
            return True
        return name in LOOPBACK_NAMES or (not settings.loopback and read_address(name) is not None)

    def _check_origin(self, headers: dict[bytes, bytes], host: str, changes: bool) -> None:
        site = headers.get(b"sec-fetch-site", b"").decode("latin-1")
        if site not in ("", "same-origin") and (changes or site != "none"):
            raise Refusal(403, "This request comes from another site; open the page itself.")
        origin = headers.get(b"origin", b"").decode("latin-1")
        if not origin:
            return
        try:
            parts = urlsplit(origin)
            same = parts.scheme in ("http", "https") and (
                parts.netloc == host or host_name(parts.netloc) in self.settings.names
            )
        except ValueError:
            same = False
        if not same:
            raise Refusal(403, "This request comes from another site; open the page itself.")


def too_fast() -> Refusal:
    """Too many requests in a row."""
    said = "You ask faster than this server answers; ask again in a second."
    return Refusal(429, said, "busy", {"retry-after": "1"})


def tab_of(headers: dict[bytes, bytes]) -> str:
    """The tab that asks, by the id that the page made up for it."""
    given = headers.get(b"x-dragonscale-tab", b"").decode("latin-1")
    return given if _TAB.fullmatch(given) else ""


def host_name(given: str) -> str:
    """The name in a `host` header, without its port; empty where it is none.

    >>> host_name("localhost:8642"), host_name("[::1]:80"), host_name("Example.org."), host_name("a b")
    ('localhost', '::1', 'example.org', '')
    """
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::\d{1,5})?", given)
    return (match[1] or match[2]).lower().rstrip(".") if match else ""
