"""The app: `POST /api/ask`, whose answer is a message a line, jobs, `GET /health`, and the page's files for the rest.

Nothing is worked out here: this is one event loop that reads requests within bounds, queues them for the workers, and
hands their lines on as they come.
"""

import asyncio
import contextlib
import zlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route

from dragonscale.web.kept import key_of
from dragonscale.web.server.files import PageFiles, accepts_gzip
from dragonscale.web.server.gate import PageGate, Refusal, tab_of, too_fast
from dragonscale.web.server.jobs import JobDesk
from dragonscale.web.server.lanes import has_slow_panel, lane_of
from dragonscale.web.server.pool import WorkerPool
from dragonscale.web.server.settings import PageSettings
from dragonscale.web.server.turns import Crowded, Turn

READ = 8
"""Times the largest body that are read and thrown away, so that whoever sends too much is told so."""
LINES = b"application/x-ndjson"


class RawRoute:
    """A route that is given the request as it is: answers are streams, and bodies are read within bounds."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.answer(scope, receive, send)


class PageApp:
    """The routes."""

    def __init__(self, settings: PageSettings, pool: WorkerPool, jobs: JobDesk, files: PageFiles | None = None) -> None:
        self.settings, self.pool, self.jobs = settings, pool, jobs
        self.files = files or PageFiles()

    def routes(self) -> list[BaseRoute]:
        """Every path; what is none of the first is a file of the page, or nothing."""
        return [
            Route("/api/ask", RawRoute(self._ask), methods=["POST"]),
            Route("/api/jobs", RawRoute(self._begin_job), methods=["POST"]),
            Route("/api/jobs/{id}", RawRoute(self._job), methods=["GET", "DELETE"]),
            Route("/health", RawRoute(self._health), methods=["GET"]),
            Mount("/", self.files),
        ]

    async def _health(self, _scope: Any, _receive: Any, send: Any) -> None:
        await send_json(send, 200, {"status": "ok", **self.pool.stats(), "jobs": self.jobs.stats()})

    async def _ask(self, scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope["headers"])
        body, request = await self._body(scope, headers, receive)
        lane, key = lane_of(request), _key(request)
        turn = Turn(body, scope["state"]["address"], tab_of(headers), lane, key)
        try:
            self.pool.submit(turn)
        except Crowded as error:
            raise _busy(error) from None
        try:
            await send_lines(lines_of(turn), headers, receive, send)
        finally:
            self.pool.leave(turn)

    async def _begin_job(self, scope: Any, receive: Any, send: Any) -> None:
        _, request = await self._body(scope, dict(scope["headers"]), receive)
        try:
            id = self.jobs.begin(request, scope["state"]["address"])
        except Crowded as error:
            raise _busy(error) from None
        await send_json(send, 202, {"id": id})

    async def _job(self, scope: Any, receive: Any, send: Any) -> None:
        id = scope["path_params"]["id"]
        job = self.jobs.jobs.get(id)
        if job is None:
            raise Refusal(404, "There is no such job here, or its result is no longer kept.")
        if scope["method"] == "DELETE":
            self.jobs.cancel(job)
            await send_json(send, 200, {"id": id, "state": "cancelled"})
        else:
            await send_lines(job.lines(), dict(scope["headers"]), receive, send)

    async def _body(self, scope: Any, headers: dict[bytes, bytes], receive: Any) -> tuple[bytes, dict[str, Any]]:
        """The body of a request, read within its time and size, and the object in it."""
        if headers.get(b"content-type", b"").split(b";")[0].strip().lower() != b"application/json":
            raise Refusal(415, "The body of a request is JSON, with the header `content-type: application/json`.")
        most, said = self.settings.body_bytes, headers.get(b"content-length", b"0")
        if not said.isdigit() or int(said) > READ * most:
            raise _too_large(most)
        body, more, size = bytearray(), True, 0
        try:
            async with asyncio.timeout(self.settings.body_s):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refusal(400, "The client has gone.")
                    part, more = message.get("body", b""), message.get("more_body", False)
                    size += len(part)
                    body += part if size <= most else b""
                    if size > READ * most:
                        raise _too_large(most)
        except TimeoutError:
            raise Refusal(408, f"The body was not sent within {self.settings.body_s:g} s.") from None
        if not scope["state"]["large"].take(scope["state"]["address"], float(size)):
            raise too_fast()
        if size > most:  # read to its end, because a client hears nothing before it has sent all
            raise _too_large(most)
        return bytes(body), _object(bytes(body))


def _key(request: dict[str, Any]) -> str:
    """A name for the record that a question needs; none where it is more than the record that takes the time."""
    return "" if has_slow_panel(str(request.get("view")), request.get("panels")) else key_of(request)


def _object(body: bytes) -> dict[str, Any]:
    try:
        request = msgspec.json.decode(body)
    except RecursionError:
        raise Refusal(400, "The request is nested too deeply to be read.", "input") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Refusal(400, "The body of the request is not JSON.", "input") from None
    if not isinstance(request, dict):
        raise Refusal(400, "The body of the request is JSON, but no object with a `view` and `fields`.", "input")
    return request


async def lines_of(turn: Turn) -> AsyncIterator[bytes]:
    """The lines of an answer, those that are there together."""
    while (line := await turn.next_line()) is not None:
        while turn.unread:
            line += await turn.next_line() or b""
        yield line


async def send_lines(lines: AsyncIterator[bytes], headers: dict[bytes, bytes], receive: Any, send: Any) -> None:
    """Stream lines, compressed where that is taken, until they end or the client is gone."""
    packed = accepts_gzip(headers)
    more = [(b"content-encoding", b"gzip"), (b"vary", b"accept-encoding")] if packed else []
    fixed = [(b"content-type", LINES), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no"), *more]
    gone = asyncio.ensure_future(_disconnected(receive))
    sending = asyncio.ensure_future(_stream(lines, fixed, zlib.compressobj(1, wbits=31) if packed else None, send))
    try:
        await asyncio.wait((gone, sending), return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            sending.result()
    finally:
        for task in (gone, sending):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task


async def _stream(lines: AsyncIterator[bytes], headers: list[tuple[bytes, bytes]], packer: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    async for line in lines:
        # flushed after every line: a stream that waits for a full block would hold progress back
        data = packer.compress(line) + packer.flush(zlib.Z_SYNC_FLUSH) if packer else line
        await send({"type": "http.response.body", "body": data, "more_body": True})
    await send({"type": "http.response.body", "body": packer.flush() if packer else b""})


async def _disconnected(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_json(send: Any, status: int, value: Any) -> None:
    """A small answer."""
    body = msgspec.json.encode(value) + b"\n"
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _busy(error: Crowded) -> Refusal:
    return Refusal(429, str(error), "busy", ((b"retry-after", b"%d" % error.retry_after),))


def _too_large(most: int) -> Refusal:
    return Refusal(413, f"The request is larger than {most / 1e6:.1f} MB, the most that is read.", "limit")


async def _told(_request: Request, error: Exception) -> Response:
    """Whatever was refused, in a sentence; so are a path or a method that are not there."""
    if isinstance(error, HTTPException):
        known = {404: "There is no such path here.", 405: "This path does not take this method."}
        allow = tuple((name.lower().encode(), value.encode()) for name, value in (error.headers or {}).items())
        error = Refusal(error.status_code, known.get(error.status_code, error.detail), headers=allow)
    if not isinstance(error, Refusal):
        error = Refusal(500, "The server failed at this request, which is a fault of its own.", "fault")
    answer = Response(error.body, error.status)
    answer.raw_headers = error.all_headers()
    return answer


def make_app(settings: PageSettings, pool: WorkerPool, jobs: JobDesk, log: Any = None) -> PageGate:
    """The app behind its gate."""
    handlers: Any = dict.fromkeys((HTTPException, Refusal, Exception), _told)
    app = Starlette(routes=PageApp(settings, pool, jobs).routes(), exception_handlers=handlers)
    app.router.redirect_slashes = False
    return PageGate(app, settings, log)
