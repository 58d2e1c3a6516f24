"""The app: `POST /api/ask`, whose answer is a message a line, jobs, `GET /health`, and the page's files for the rest.

Nothing is worked out here: this is one event loop that reads requests within bounds, queues them for the workers, and
hands their lines on as they come.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route

from dragonscale.prompt_http import WRONG_PATH
from dragonscale.web.kept import key_of
from dragonscale.web.server.files import PageFiles, accepts_gzip
from dragonscale.web.server.gate import PageGate, Refusal
from dragonscale.web.server.jobs import JobDesk
from dragonscale.web.server.lanes import has_slow_panel, lane_of
from dragonscale.web.server.pool import WorkerPool
from dragonscale.web.server.settings import PageSettings
from dragonscale.web.server.turns import Crowded, Turn

READ = 8
"""Times the largest body that are read and thrown away, so that whoever sends too much is told so."""
LINES = "application/x-ndjson"


class PageApp:
    """The routes."""

    def __init__(self, settings: PageSettings, pool: WorkerPool, jobs: JobDesk, files: PageFiles | None = None) -> None:
        self.settings, self.pool, self.jobs = settings, pool, jobs
        self.files = files or PageFiles()

    def routes(self) -> list[BaseRoute]:
        """Every path; what is none of the first is a file of the page, or nothing."""
        return [
            Route("/api/ask", self._ask, methods=["POST"]),
            Route("/api/jobs", self._begin_job, methods=["POST"]),
            Route("/api/jobs/{id}", self._job, methods=["GET", "DELETE"]),
            Route("/health", self._health, methods=["GET"]),
            Mount("/", self.files),
        ]

    async def _health(self, _: Request) -> Response:
        return json_answer({"status": "ok", **self.pool.stats(), "jobs": self.jobs.stats()})

    async def _ask(self, request: Request) -> Response:
        body, question = await self._body(request)
        turn = Turn(body, lane_of(question), _key(question))
        try:
            self.pool.submit(turn)
        except Crowded as error:
            raise _busy(error) from None
        return LineStream(lines_of(turn), request, after=lambda: self.pool.leave(turn))

    async def _begin_job(self, request: Request) -> Response:
        _, question = await self._body(request)
        try:
            return json_answer({"id": self.jobs.begin(question)}, 202)
        except Crowded as error:
            raise _busy(error) from None

    async def _job(self, request: Request) -> Response:
        job = self.jobs.jobs.get(request.path_params["id"])
        if job is None:
            raise Refusal(404, "There is no such job here, or its result is no longer kept.")
        if request.method == "DELETE":
            self.jobs.cancel(job)
            return json_answer({"id": job.id, "state": "cancelled"})
        return LineStream(job.lines(), request)

    async def _body(self, request: Request) -> tuple[bytes, dict[str, Any]]:
        """The body of a request, read within its time and size, and the object in it."""
        if request.headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
            raise Refusal(415, "The body of a request is JSON, with the header `content-type: application/json`.")
        max_bytes, stated_length = self.settings.body_bytes, request.headers.get("content-length", "0")
        if not stated_length.isdigit() or int(stated_length) > READ * max_bytes:
            raise _too_large(max_bytes)
        body, size = bytearray(), 0
        try:
            async with asyncio.timeout(self.settings.body_s):
                async for part in request.stream():
                    size += len(part)
                    body += part if size <= max_bytes else b""
                    if size > READ * max_bytes:
                        raise _too_large(max_bytes)
        except ClientDisconnect:
            raise Refusal(400, "The client has gone.") from None
        except TimeoutError:
            raise Refusal(408, f"The body was not sent within {self.settings.body_s:g} s.") from None
        if size > max_bytes:  # read to its end, because a client hears nothing before it has sent all
            raise _too_large(max_bytes)
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


class LineStream(StreamingResponse):
    """Lines as they come, compressed where that is taken, until they end or the client is gone; then `after`."""

    def __init__(self, lines: AsyncIterator[bytes], request: Request, after: Callable[[], None] = lambda: None) -> None:
        packed = accepts_gzip(dict(request.scope["headers"]))
        more = {"content-encoding": "gzip", "vary": "accept-encoding"} if packed else {}
        fixed = {"cache-control": "no-store", "x-accel-buffering": "no", **more}
        super().__init__(_packed(lines) if packed else lines, headers=fixed, media_type=LINES)
        self.after = after

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.after()


async def _packed(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    packer = zlib.compressobj(1, wbits=31)
    async for line in lines:
        # flushed after every line: a stream that waits for a full block would hold progress back
        yield packer.compress(line) + packer.flush(zlib.Z_SYNC_FLUSH)
    yield packer.flush()


def json_answer(value: Any, status: int = 200) -> Response:
    """A small answer."""
    fixed = {"cache-control": "no-store"}
    return Response(msgspec.json.encode(value) + b"\n", status, fixed, "application/json")


def _busy(error: Crowded) -> Refusal:
    return Refusal(429, str(error), "busy", {"retry-after": str(error.retry_after)})


def _too_large(max_bytes: int) -> Refusal:
    return Refusal(413, f"The request is larger than {max_bytes / 1e6:.1f} MB, the most that is read.", "limit")


async def _told(_request: Request, error: Exception) -> Response:
    """Whatever was refused, in a sentence; so are a path or a method that are not there."""
    if isinstance(error, HTTPException):
        error = Refusal(error.status_code, WRONG_PATH.get(error.status_code, error.detail), headers=error.headers)
    if not isinstance(error, Refusal):
        error = Refusal(500, "The server failed at this request, which is a fault of its own.", "fault")
    return error.answer


def make_app(settings: PageSettings, pool: WorkerPool, jobs: JobDesk, log: Any = None) -> PageGate:
    """The app behind its gate."""
    handlers: Any = dict.fromkeys((HTTPException, Refusal, Exception), _told)
    app = Starlette(routes=PageApp(settings, pool, jobs).routes(), exception_handlers=handlers)
    app.router.redirect_slashes = False
    return PageGate(app, settings, log)
