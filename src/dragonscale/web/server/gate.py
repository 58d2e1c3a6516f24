"""The gate: who may speak to the server, and what every response says to the browser.

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

from dragonscale.prompt_http import read_address
from dragonscale.web.server.settings import LOOPBACK_NAMES, PageSettings
from dragonscale.web.server.turns import error_line

_TABLE: dict[str, str] = tomllib.loads(Path(__file__).with_name("headers.toml").read_text(encoding="utf-8"))
HEADERS = tuple((name.encode(), value.encode()) for name, value in _TABLE.items())
"""Sent with every response."""


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
            self._check(scope, dict(scope["headers"]))
            await self.app(scope, receive, say)
        except Refusal as refusal:
            if not status:
                await refusal.answer(scope, receive, say)
        except Exception:  # a fault of ours: the client was told by the app
            traceback.print_exc()
        finally:
            if self.log is not None:
                client, took_ms = (scope.get("client") or ("",))[0], 1000 * (time.monotonic() - begun)
                self.log(f"{client} {scope['method']} {scope['path']!r} {status} {took_ms:.0f} ms")

    def _check(self, scope: Any, headers: dict[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1")
        if not self.allows_host(host):
            raise Refusal(421, "The header `host` names none of this server's hosts; start it with --allow-host NAME.")
        changes = scope["method"] not in ("GET", "HEAD")
        if changes or scope["path"].startswith("/api/"):
            self._check_origin(headers, host, changes)

    def allows_host(self, header: str) -> bool:
        """Whether a `host` header names this server. A number cannot be rebound, so where others are let in, any will
        do."""
        name, settings = host_name(header), self.settings
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
            named = parts.netloc == host or host_name(parts.netloc) in self.settings.names
            same = named and parts.scheme in ("http", "https")
        except ValueError:
            same = False
        if not same:
            raise Refusal(403, "This request comes from another site; open the page itself.")


def host_name(header: str) -> str:
    """The name in a `host` header, without its port; empty where it is none.

    >>> host_name("localhost:8642"), host_name("[::1]:80"), host_name("Example.org."), host_name("a b")
    ('localhost', '::1', 'example.org', '')
    """
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::\d{1,5})?", header)
    return (match[1] or match[2]).lower().rstrip(".") if match else ""
