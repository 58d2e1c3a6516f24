"""The OpenAI-compatible server: routes, what is refused at the door, and how it stops.

One process, one event loop. A request is read within bounds (its size, its time), checked, turned into sequences of
tokens and handed to the front; `answers` makes its answer. Around every request, one piece of middleware gives it an
id, checks the key and the host, turns every error into OpenAI's envelope, counts it, and writes one line of JSON to the
log, which never has a word of what was asked or answered.

It listens on this machine only unless it is told otherwise. On SIGTERM it says that it is not ready, takes no new
request, lets those under way end within a time of grace, and ends the rest; the second signal does not wait.
"""

import asyncio
import hmac
import re
import socket
import time
import traceback
import uuid
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from dragonscale.errors import InputError
from dragonscale.prompt_http import QUIET, WRONG_PATH, PromptProtocol
from dragonscale.runtime.server.answers import overfull
from dragonscale.runtime.server.front import Overfull
from dragonscale.runtime.server.protocol import ENDPOINTS, ApiError
from dragonscale.runtime.server.routes import HttpSettings, OpenAIService
from dragonscale.runtime.server.text import ModelText

_OPEN = ("/health", "/ready", "/metrics", "/version", "/openapi.json")
"""What asks for no key: probes and scrapers have none."""


class RequestGate:
    """Middleware around every request: its id, the door, the log."""

    def __init__(self, app: Any, service: OpenAIService) -> None:
        self.app, self.service = app, service
        self.settings = service.settings

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(reversed(scope["headers"]))
        given = headers.get(b"x-request-id", b"").decode("latin-1")
        state = scope.setdefault("state", {})
        state["id"] = id = given if re.fullmatch(r"[\w.:-]{1,128}", given, re.ASCII) else uuid.uuid4().hex
        status, began = 0, time.perf_counter()

        async def say(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", id.encode())]
            await send(message)

        try:
            refused = self._refused(scope, headers)
            await (error_answer(refused) if refused else self.app)(scope, receive, say)
        except Exception:  # here and not above, so that the answer has its id and the log its status
            traceback.print_exc()
            if not status:
                await error_answer(ApiError(500, "The server failed; its log says more."))(scope, receive, say)
        finally:
            self._log(scope, state, status, time.perf_counter() - began)

    def _refused(self, scope: Any, headers: dict[bytes, bytes]) -> ApiError | None:
        hosts, key = self.settings.hosts, self.settings.api_key.encode()
        if hosts and _named(headers.get(b"host", b"")) not in hosts:
            return ApiError(400, "The header `host` names none of this server's hosts.")
        if key and scope["path"] not in _OPEN and scope["method"] != "OPTIONS":
            kind, _, offered = headers.get(b"authorization", b"").partition(b" ")
            if not (kind.lower() == b"bearer" and hmac.compare_digest(offered.strip(), key)):
                said = "The header `authorization: Bearer KEY` has no key, or a wrong one."
                return ApiError(401, said, code="invalid_api_key")
        return None

    def _log(self, scope: Any, state: dict[str, Any], status: int, seconds: float) -> None:
        """One line for each request, and what Prometheus is told; none of it has a word of what was asked."""
        route = getattr(scope.get("route"), "path", "none")
        self.service.metrics.answered(route, status)
        line = {"time": time.time(), "id": state["id"], "method": scope["method"], "route": route}
        line |= {"status": status, "seconds": seconds}
        if (generation := state.get("generation")) is not None:
            self.service.under_way.discard(generation)
            line |= generation.summary(seconds)
        self.settings.log(line)


def _named(host: bytes) -> str:
    """The name in a `host` header: without its port, and as names are compared."""
    return re.sub(r":\d+$", "", host.decode("latin-1")).rstrip(".").lower()


def error_answer(error: ApiError) -> Response:
    return Response(error.body, error.status, error.headers, media_type="application/json")


async def _told(_: Request, error: Exception) -> Response:
    """Any error as the client hears it."""
    if isinstance(error, HTTPException):
        answer = error_answer(ApiError(error.status_code, WRONG_PATH.get(error.status_code, error.detail)))
        answer.headers.update(error.headers or {})
        return answer
    if isinstance(error, InputError):
        error = ApiError(400, str(error))
    if isinstance(error, Overfull):
        error = overfull(error)
    return error_answer(error if isinstance(error, ApiError) else ApiError(499, "The client has gone."))


def build_app(front: Any, text: ModelText, settings: HttpSettings) -> Starlette:
    """The application: `app.state.service` is what it serves."""
    service = OpenAIService(front, text, settings)
    routes = [Route(one.path, getattr(service, one.handler), methods=[one.method]) for one in ENDPOINTS]
    layers = [Middleware(RequestGate, service)]
    known = (ApiError, HTTPException, InputError, Overfull, ClientDisconnect)
    app = Starlette(routes=routes, middleware=layers, exception_handlers=dict.fromkeys(known, _told))
    app.state.service = service
    app.router.redirect_slashes = False
    return app


class DrainingServer(uvicorn.Server):
    """A server that is asked to stop by a signal: it drains first. The second signal stops it at once."""

    def __init__(self, config: uvicorn.Config, service: OpenAIService) -> None:
        super().__init__(config)
        self.service = service
        self._drain: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: Any) -> None:
        if self._drain is not None:
            super().handle_exit(sig, frame)
        self.service.draining = True
        self._drain = self._drain or asyncio.get_running_loop().create_task(self._end())

    async def _end(self) -> None:
        under_way, until = self.service.under_way, time.monotonic() + self.service.settings.grace_s
        while under_way and time.monotonic() < until:
            await asyncio.sleep(0.02)
        for generation in under_way:
            generation.fail(ApiError(503, "The server is shutting down."))
        self.should_exit = True


async def serve_http(app: Starlette, listener: socket.socket) -> None:
    """Serve on a socket that listens until a signal, then drain."""
    service: OpenAIService = app.state.service
    settings = service.settings
    # asyncio sets this only on sockets it made itself; without it each small event waits for the client's delayed ACK
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # whoever takes no byte for so long is gone
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(settings.idle_s * 1000))
    waits = {"timeout_keep_alive": int(settings.idle_s), "timeout_graceful_shutdown": 5}
    limits = {"h11_max_incomplete_event_size": 64 << 10, **waits}
    config = uvicorn.Config(app, http=PromptProtocol, log_level="warning", **limits, **QUIET)
    app.state.server = DrainingServer(config, service)
    try:
        await app.state.server.serve(sockets=[listener])
    finally:
        await asyncio.to_thread(service.close)
