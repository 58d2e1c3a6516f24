"""The app: the page's files, and `POST /api/ask`, whose answer is a message a line."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from dragonscale.web.answers import answer

PAGE = Path(__file__).parents[1] / "page"


async def ask(request: Request) -> StreamingResponse:
    """Answer a question in a thread; each message is a line as soon as it is there."""
    asked = json.loads(await request.body())
    queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def work() -> None:
        answer(asked, lambda message: loop.call_soon_threadsafe(queue.put_nowait, message) and None)
        loop.call_soon_threadsafe(queue.put_nowait, None)

    async def lines() -> AsyncIterator[bytes]:
        threading.Thread(target=work, daemon=True).start()
        while (message := await queue.get()) is not None:
            yield json.dumps(message).encode() + b"\n"

    return StreamingResponse(lines(), media_type="application/x-ndjson")


def make_app() -> Starlette:
    """The app with the page at its root."""
    return Starlette(routes=[
        Route("/api/ask", ask, methods=["POST"]), Mount("/", StaticFiles(directory=PAGE, html=True)),
    ])  # fmt: skip
