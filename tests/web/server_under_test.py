"""The page's server for tests: real uvicorn on a free port, with real workers, in a thread of this process."""

import asyncio
import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

from dragonscale.web.server.page_serving import listen, serve_page
from dragonscale.web.server.settings import PageSettings

JSON = {"content-type": "application/json"}
Answer = tuple[int, dict[str, str], bytes]


class Served:
    """A server that runs, and how it is asked."""

    def __init__(self, settings: PageSettings, port: int) -> None:
        self.settings, self.port = settings, port

    def send(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Answer:
        """One request over a connection of its own: status, headers, body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()

    def ask(self, request: Any) -> list[dict[str, Any]]:
        """The messages of an answer."""
        _, _, body = self.send("POST", "/api/ask", json.dumps(request).encode(), JSON)
        return [json.loads(line) for line in body.splitlines()]

    def health(self) -> dict[str, Any]:
        """What `/health` says."""
        return json.loads(self.send("GET", "/health")[2])

    def open(self) -> socket.socket:
        """A bare connection."""
        return socket.create_connection(("127.0.0.1", self.port), 10)


@contextlib.contextmanager
def server_under_test(**changed: Any) -> Iterator[Served]:
    """A server with these settings, ready; stopped at the end."""
    settings = PageSettings(**{"warm": False, "offline": True, **changed})
    listener = listen(settings)
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    ready = threading.Event()
    failed: list[BaseException] = []

    def work() -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(serve_page(settings, listener, ready.set, stop))
        except BaseException as error:
            failed.append(error)
            ready.set()
        finally:
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        assert ready.wait(60), "the workers did not start"
        if failed:
            raise failed[0]
        yield Served(settings, listener.getsockname()[1])
    finally:
        if thread.is_alive():
            loop.call_soon_threadsafe(stop.set)
        thread.join(20)
        listener.close()
    assert not thread.is_alive(), "the server did not stop"
