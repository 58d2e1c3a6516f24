"""How many events a second the HTTP server sends on one core: 64 streams from a front that emits tokens without a
model.

    python -m benchmarks.server_streams [--streams 64] [--tokens 400]

The server runs in a process of its own; what counts is its CPU time per event, since an engine's tokens come at their
own pace.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

from dragonscale.runtime.serve.requests import Emitted, GenerateRequest
from dragonscale.runtime.server.http import build_app, serve_http
from dragonscale.runtime.server.routes import HttpSettings
from dragonscale.runtime.server.text import plain_text


class SteppingFront:
    """All streams get a token at each step, as from an engine; steps follow as fast as they are read."""

    ready = True

    def __init__(self, pace: float) -> None:
        self.pace = pace
        self.streams: list[asyncio.Queue[Emitted]] = []
        self.stepping: asyncio.Task[None] | None = None

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Emitted]:
        queue: asyncio.Queue[Emitted] = asyncio.Queue()
        self.streams.append(queue)
        self.stepping = self.stepping or asyncio.create_task(self.step())
        try:
            for at in range(request.length):
                await queue.get()
                yield Emitted(id=request.id, tokens=[97 + at % 26], finish="length" if at + 1 == request.length else "")
        finally:
            self.streams.remove(queue)

    async def step(self) -> None:
        while True:
            for queue in self.streams:
                queue.put_nowait(Emitted(id=""))
            await asyncio.sleep(self.pace)
            while any(queue.qsize() > 1 for queue in self.streams):
                await asyncio.sleep(0)

    def stats(self) -> dict[str, Any]:
        return {"workers": []}


def serve(listener: socket.socket, used: Any, pace: float, loop: str) -> None:
    said = HttpSettings("bench", 100_000, 300, log=lambda _: None)
    app = build_app(SteppingFront(pace), plain_text(300), said)

    async def main() -> None:
        task = asyncio.create_task(serve_http(app, listener))
        while used[1] == 0:
            await asyncio.sleep(0.05)
            used[0] = time.process_time()
        task.cancel()

    with asyncio.Runner(loop_factory=__import__(loop).new_event_loop) as runner:
        runner.run(main())
    os._exit(0)


async def read(port: int, tokens: int) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    asked = json.dumps({"messages": [{"role": "user", "content": "a"}], "max_tokens": tokens, "stream": True}).encode()
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/json\r\n"
    )
    writer.write(b"content-length: %d\r\n\r\n" % len(asked) + asked)
    events, tail = 0, b""
    while piece := await reader.read(1 << 16):
        events += (tail + piece).count(b"data: {") - tail.count(b"data: {")
        tail = piece[-6:]
    writer.close()
    return events


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--streams", type=int, default=64)
    options.add_argument("--tokens", type=int, default=400)
    options.add_argument("--pace", type=float, default=0.0, help="seconds between steps")
    options.add_argument("--loop", default="asyncio", help="or uvloop")
    given = options.parse_args()
    listener = socket.create_server(("127.0.0.1", 0))
    used = multiprocessing.Array("d", 2)
    process = multiprocessing.Process(target=serve, args=(listener, used, given.pace, given.loop))
    process.start()

    async def ask(tokens: int) -> int:
        return sum(await asyncio.gather(*[read(listener.getsockname()[1], tokens) for _ in range(given.streams)]))

    asyncio.run(ask(10))
    time.sleep(0.2)
    cpu, began = used[0], time.perf_counter()
    events = asyncio.run(ask(given.tokens))
    seconds = time.perf_counter() - began
    time.sleep(0.2)
    busy = used[0] - cpu
    used[1] = 1
    process.join(5)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(
        f"{events} events in {seconds:.2f} s: {events / seconds:,.0f} a second; {busy / events * 1e6:.0f} µs of "
        "CPU each, "
        f"{events / busy:,.0f} a second on one core; {peak:.0f} MB at most"
    )


if __name__ == "__main__":
    main()
