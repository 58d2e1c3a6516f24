"""A worker as the front sees it: its process, started again where it dies, the socket to it, and the requests that it
has.

What a worker says goes to the front, which decides; here is only how to reach it and what becomes of its process.
"""

import asyncio
import os
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from dragonscale.runtime.serve.requests import Emitted, GenerateRequest
from dragonscale.runtime.server import wire
from dragonscale.workers import WAITS, Worker

if TYPE_CHECKING:
    from dragonscale.runtime.server.front import ServingFront

STEADY = 60.0
"""Seconds after which a worker counts as well."""


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Flight:
    """A request under way: what of it is not read yet, who has it, what was measured. As an iterator it gives what is
    new; closing it before its end cancels it."""

    def __init__(self, front: "ServingFront", request: GenerateRequest, name: str, blocks: Sequence[int]) -> None:
        self.front, self.request, self.name = front, request, name
        self.blocks, self.block_tokens = blocks, front.block_tokens
        self.unread: deque[Emitted] = deque()
        self.reader: asyncio.Future[None] | None = None
        self.worker: WorkerProcess | None = None
        self.first: list[int] = []  # tokens of the prefill worker, once its pages are there
        self.retried = self.over = False
        self.arrived = request.arrived or time.time()
        self.first_s = self.last_s = 0.0
        self.tokens = self.cached = 0

    def __aiter__(self) -> "Flight":
        return self

    async def __anext__(self) -> Emitted:
        while not self.unread:
            if self.over:
                raise StopAsyncIteration
            self.reader = asyncio.get_running_loop().create_future()
            await self.reader
        return self.unread.popleft()

    async def aclose(self) -> None:
        task = asyncio.current_task()  # one that is not cancelled has read enough: a stop string
        self.front.leave(self, "cancelled" if task is None or task.cancelling() else "stop")

    def take(self, emitted: Emitted) -> None:
        """Something new from a worker, or the end of it."""
        if emitted.tokens:
            self.last_s = time.time()
            self.first_s = self.first_s or self.last_s
            self.tokens += len(emitted.tokens)
        self.cached = max(self.cached, emitted.cached)
        self.unread.append(emitted)
        self.wake()

    def wake(self) -> None:
        if self.reader is not None and not self.reader.done():
            self.reader.set_result(None)


class WorkerProcess(Worker):
    """One worker: what it runs, the requests that it has."""

    def __init__(self, front: "ServingFront", index: int, order: wire.WorkerOrder, environment: dict[str, str]) -> None:
        super().__init__(index, front.module)
        self.front, self.runs, self.environment = front, order, environment
        self.flights: dict[str, Flight] = {}
        self.facts: wire.WorkerReady | None = None
        self.stats: dict[str, float] = {}
        self.failed: wire.WorkerFailed | None = None
        self.since = 0.0
        self._decode = msgspec.msgpack.Decoder(wire.FromWorker).decode

    @property
    def load(self) -> float:
        return len(self.flights)

    @property
    def unprefilled(self) -> int:
        return sum(len(flight.request.prompt) for flight in self.flights.values() if not flight.tokens)

    def predict(self, tokens: int, now: float) -> float:  # noqa: ARG002  every worker is as fast, so tokens stand for seconds
        return tokens + self.unprefilled

    def order(self) -> bytes:
        return wire.encode(self.runs)

    def surroundings(self) -> dict[str, Any]:
        return {"env": {**os.environ, **self.environment}}

    def died(self) -> float | None:
        self.front.died(self)
        if self.state == "stopped" or (self.failed is not None and self.failed.wrong and self.facts is None):
            return None  # one that ran before may run again: a device's memory is not free at once
        if time.monotonic() - self.since > STEADY and self.since:
            self.wait = WAITS[0]
        self.since, wait = 0.0, self.longer()
        if self.facts is not None and self.process is not None:
            code = self.process.returncode
            how = f"of signal {-code}" if code < 0 else f"with exit code {code}"
            _tell(f"Worker {self.index} (process {self.process.pid}) died {how}; it is started again in {wait:g} s.")
        return wait

    def heard(self, body: bytes) -> None:
        message = self._decode(body)
        if isinstance(message, wire.StepOutput):
            self.stats = message.stats or self.stats
            self.front.heard(self, message)
        elif isinstance(message, wire.WorkerReady):
            if self.facts is not None:
                _tell(f"Worker {self.index} is ready again.")
            self.state, self.facts, self.since, self.failed = "ready", message, time.monotonic(), None
            self.front.changed.set()
            self.front.pump()
        elif isinstance(message, wire.WorkerFailed):
            self.failed = message
        else:
            self.front.say(self.index, message)

    def tell(self, message: wire.ToWorker) -> None:
        """Send it a request, or that somebody left."""
        self.send(wire.encode(message))

    def stop(self) -> None:
        """End it for good."""
        self.state = "stopped"
        if self.writer is not None:
            self.writer.close()
