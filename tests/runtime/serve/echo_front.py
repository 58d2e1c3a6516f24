"""A front whose model says its prompt again and again, and a server around it on a port of this machine."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

from dragonscale.errors import InputError
from dragonscale.runtime.serve.requests import Emitted, GenerateRequest, TokenLogprob
from dragonscale.runtime.server.front import Overfull
from dragonscale.runtime.server.http import build_app, serve_http
from dragonscale.runtime.server.routes import HttpSettings
from dragonscale.runtime.server.text import plain_text


class EchoFront:
    """Emits the prompt's tokens in a circle, one every `pace` seconds. `open` counts those not closed yet, `cancelled`
    those that were closed before their end."""

    def __init__(self, pace: float = 0.0, most: int = 10_000) -> None:
        self.pace, self.most, self.why, self.hopeless = pace, most, "", ""
        self.open, self.cancelled, self.seen = 0, 0, []

    def check_room(self, count: int, client: str = "") -> None:  # noqa: ARG002
        if count > self.most:
            raise InputError(f"{count} are more than {self.most}.")
        if self.open + count > self.most:
            raise Overfull(2.5)

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Emitted]:
        if self.open >= self.most:
            raise Overfull(2.5)
        self.open += 1
        self.seen.append(request)
        ended = False
        try:
            if request.embed:
                ended = True
                yield Emitted(id=request.id, finish="length", embedding=[0.5, -1.25])
                return
            wanted = request.prompt_logprobs
            rows = [None, *[TokenLogprob(one, -0.5, [(one, -0.5)]) for one in request.prompt[1:]]]
            for at in range(request.length):
                await asyncio.sleep(self.pace)
                token, left = request.prompt[at % len(request.prompt)], request.length - at - 1
                top = request.sampling.logprobs
                told = [] if top is None else [TokenLogprob(token, -0.25, [(token, -0.25), (65, -2.0)][:top])]
                before = rows if wanted is not None and at == 0 else []
                ended = not left or token in request.ends
                finish = "stop" if token in request.ends else "" if left else "length"
                yield Emitted(
                    id=request.id, tokens=[token], logprobs=told, finish=finish, cached=at == 0, prompt_logprobs=before
                )
                if ended:
                    return
        finally:
            self.open -= 1
            self.cancelled += not ended

    def stats(self) -> dict[str, Any]:
        numbers = {
            "running": self.open,
            "waiting": 0,
            "pages_used": 1,
            "pages_free": 3,
            "prefix_hits": 2,
            "prefix_queries": 8,
        }
        return {"workers": [{"index": 0, "restarts": 0, "stats": numbers}]}


def settings(**more: Any) -> HttpSettings:
    known: dict[str, Any] = {"model": "echo", "length": 512, "vocabulary": 300, "log": lambda _: None}
    return HttpSettings(**(known | more))


@contextmanager
def served(front: Any, said: HttpSettings, text: Any = None) -> Iterator[str]:
    """The address of a server in a thread of its own. Its sockets hold little, so that who does not read is soon
    noticed."""
    if text is None:
        text = plain_text(300)
        text.ends = [299]  # without an end, output cannot be held to a grammar
    app = build_app(front, text, said)
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    thread = threading.Thread(target=lambda: asyncio.run(serve_http(app, listener)), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        app.state.server.should_exit = True
        thread.join(60)
        assert not thread.is_alive(), "the server goes on"
