"""The front: requests to workers, tokens back, and what happens when a worker dies.

Workers are processes with an engine each: replicas behind the router of the simulator, or pools that prefill and
decode. A request goes to one of them as soon as there is one; the engines have the queues. What is under way is
bounded: beyond that a request is refused with the time after which to come again.

A worker that dies is started again, after longer and longer waits. A request that it had is given to another one if no
token was sent yet, once; or ends with an error. Nothing here blocks: all of it runs in one event loop.
"""

import asyncio
import contextlib
import itertools
import os
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from dragonscale.errors import InputError
from dragonscale.runtime.serve.requests import Emitted, GenerateRequest
from dragonscale.runtime.server import wire
from dragonscale.runtime.server.handover import HandoverRoom
from dragonscale.simulation.router import Router
from dragonscale.workers import WAITS, Mailbox, Worker

STEADY = 60.0
"""Seconds after which a worker counts as well."""
TRIES = 3
"""How often a worker may die before it is ready: at the start the server gives up, later its `/health` fails."""
MASK = (1 << 53) - 1
"""Names of blocks are whole numbers that every reader of JSON keeps."""
RESERVED = 8
"""The part of the room that is kept, beyond it, for clients that have less than that themselves: 1 in so many."""
DIED = "The worker that had the request died."
Say = Callable[[int, wire.Starting], None]


def block_names(prompt: Sequence[int], size: int, adapter: int = 0) -> list[int]:
    """Names of a prompt's whole blocks, each of it, everything before it and the adapter that computes it.

    >>> a, b = block_names([1, 2, 3, 4, 5], 2), block_names([1, 2, 9, 9], 2)
    >>> len(a), a[0] == b[0], a[1] == b[1]
    (2, True, False)
    """
    name, found = adapter, []
    for start, end in itertools.pairwise(range(0, len(prompt) + 1, size)):
        name = hash((name, *prompt[start:end])) & MASK
        found.append(name)
    return found


class Overfull(Exception):
    """No room for a request: `retry_after` seconds from now there may be."""

    def __init__(self, retry_after: float) -> None:
        super().__init__("the queue is full")
        self.retry_after = retry_after


class Flight(Mailbox[Emitted]):
    """A request under way: what of it is not read yet, who has it, what was measured. As an iterator it gives what is
    new; closing it before its end cancels it."""

    def __init__(self, front: "ServingFront", request: GenerateRequest, name: str, blocks: Sequence[int]) -> None:
        super().__init__()
        self.front, self.request, self.name = front, request, name
        self.blocks, self.block_tokens = blocks, front.block_tokens
        self.worker: WorkerProcess | None = None
        self.first: list[int] = []  # tokens of the prefill worker, once its pages are there
        self.retried = False
        self.arrived = request.arrived or time.time()
        self.first_s = self.last_s = 0.0
        self.tokens = self.cached = 0

    def __aiter__(self) -> "Flight":
        return self

    async def __anext__(self) -> Emitted:
        if (emitted := await self.next()) is None:
            raise StopAsyncIteration
        return emitted

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
        self.put(emitted)


class WorkerProcess(Worker):
    """One worker: what it runs, the requests that it has."""

    def __init__(self, front: "ServingFront", index: int, order: wire.WorkerOrder, environment: dict[str, str]) -> None:
        super().__init__(index, front.module)
        self.front, self.runs, self.environment = front, order, environment
        self.flights: dict[str, Flight] = {}
        self.facts: wire.WorkerReady | None = None
        self.stats: dict[str, float] = {}
        self.failed: wire.WorkerFailed | None = None
        self.starting: wire.Starting | None = None
        self.since, self.deaths = 0.0, 0  # when it was ready, and how often it died since
        self._decode = msgspec.msgpack.Decoder(wire.FromWorker).decode

    full = False  # how many it takes at once is for the worker to know

    @property
    def load(self) -> float:
        return len(self.flights)

    @property
    def unprefilled(self) -> int:
        return sum(len(flight.request.prompt) for flight in self.flights.values() if not flight.tokens)

    def predict(self, tokens: int, now: float) -> float:  # noqa: ARG002  every worker is as fast, so tokens stand for seconds
        return tokens + self.unprefilled

    @property
    def how(self) -> str:
        """Why it takes no requests."""
        told = self.starting
        does = f"is {told.what} ({told.done:,} of {told.total:,})" if told else "is starting"
        does = does if self.state != "dead" else "died and is started again"
        times = f" after it died {self.deaths} times in a row" if self.deaths > 1 else ""
        why = f": {self.failed.why.rstrip('.')}" if self.deaths and self.failed is not None else ""
        return f"worker {self.index} {does}{times}{why}"

    def order(self) -> bytes:
        return wire.encode(self.runs)

    def surroundings(self) -> dict[str, Any]:
        return {"env": {**os.environ, **self.environment}}

    def died(self) -> float | None:
        self.front.died(self)
        self.deaths += 1
        if self.state == "stopped" or (self.failed is not None and self.failed.wrong and self.facts is None):
            return None  # one that ran before may run again: a device's memory is not free at once
        if time.monotonic() - self.since > STEADY and self.since:
            self.wait = WAITS[0]
        self.since, wait = 0.0, self.longer()
        if self.facts is not None and self.process is not None:
            code = self.process.returncode
            how = f"of signal {-code}" if code < 0 else f"with exit code {code}"
            what = f"Worker {self.index} (process {self.process.pid}) died {how}; it is started again in {wait:g} s."
            print(what, file=sys.stderr, flush=True)
        return wait

    def heard(self, body: bytes) -> None:
        message = self._decode(body)
        if isinstance(message, wire.StepOutput):
            self.stats = message.stats or self.stats
            self.front.heard(self, message)
        elif isinstance(message, wire.WorkerReady):
            if self.facts is not None:
                print(f"Worker {self.index} is ready again.", file=sys.stderr, flush=True)
            self.state, self.facts, self.since, self.failed = "ready", message, time.monotonic(), None
            self.deaths = 0
            self.front.changed.set()
            self.front.pump()
        elif isinstance(message, wire.WorkerFailed):
            self.failed = message
        else:
            self.starting = message
            self.front.say(self.index, message)

    def tell(self, message: wire.ToWorker) -> None:
        """Send it a request, or that somebody left."""
        self.send(wire.encode(message))

    def stop(self) -> None:
        """End it for good."""
        self.state = "stopped"
        if self.writer is not None:
            self.writer.close()


class ServingFront:
    """The workers and what is under way. `queue` requests may wait beyond those that the engines run at once; `record`
    is told of every flight that came and ended, `say` how far workers are at their start."""

    def __init__(
        self,
        orders: Sequence[wire.WorkerOrder],
        environments: Sequence[dict[str, str]] = (),
        *,
        router: str = "least_loaded",
        queue: int = 1024,
        record: Any = None,
        say: Say = lambda _index, _message: None,
        module: str = "dragonscale.runtime.server.worker",
    ) -> None:
        self.module = module
        self.room = HandoverRoom() if any(one.role == "prefill" for one in orders) else None
        if self.room is not None:
            orders = [msgspec.structs.replace(one, folder=self.room.folder) for one in orders]
        given = environments or [{}] * len(orders)
        places = enumerate(zip(orders, given, strict=True))
        self.workers = [WorkerProcess(self, index, *place) for index, place in places]
        self.routers = {role: Router(router) for role in {one.role for one in orders}}
        self.entry = "prefill" if self.room is not None else "both"
        self.block_tokens = orders[0].page
        self.most = queue + sum(one.sequences for one in orders if one.role != "prefill")
        self.reserve = self.most // RESERVED
        self.flights: dict[str, Flight] = {}
        self.by_client: Counter[str] = Counter()
        self.waiting: deque[Flight] = deque()
        self.record, self.say = record, say
        self.changed = asyncio.Event()
        self.ends: deque[float] = deque(maxlen=64)
        self.numbers = itertools.count()
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start all workers and wait until they take requests; what cannot be run is told in a sentence."""
        self.tasks = [asyncio.create_task(one.run()) for one in self.workers]
        while not all(one.state == "ready" for one in self.workers):
            self.changed.clear()
            await self.changed.wait()
            bad = [one.failed.why for one in self.workers if one.failed is not None]
            if bad or any(one.restarts >= TRIES for one in self.workers):
                await self.close()
                raise InputError((bad or [f"A worker died {TRIES} times before it was ready."])[0])

    @property
    def why(self) -> str:
        """Why no requests are taken; empty where every role has a worker that takes them."""
        return "; ".join(one.how for one in self._missing())

    @property
    def hopeless(self) -> str:
        """Why nothing is to be expected of this process any more: all workers of a role died again and again."""
        missing = self._missing()
        roles = {one.runs.role for one in missing} - {one.runs.role for one in missing if one.deaths < TRIES}
        return "; ".join(one.how for one in missing if one.runs.role in roles)

    def _missing(self) -> list[WorkerProcess]:
        """The workers of roles that nobody has now."""
        alive = {one.runs.role for one in self.workers if one.state == "ready"}
        return [one for one in self.workers if one.runs.role not in alive]

    def check_room(self, count: int, client: str = "") -> None:
        """Refuse so many requests that come at once: those that can never be taken together, or not now. When the room
        is full, clients that have little of it may still use the reserve."""
        if count > self.most:
            raise InputError(
                f"{count} prompts times choices in a request are more than the {self.most} that this server runs and "
                "queues at once; send fewer, or start it with a larger --queue-limit."
            )
        room = self.most
        if self.by_client[client] + count <= self.reserve:
            room += self.reserve
        if len(self.flights) + count > room:
            raise Overfull(self._retry_after())

    def generate(self, request: GenerateRequest) -> Flight:
        """Take a request, or refuse it: what comes of it is read from the flight, which must be closed."""
        self.check_room(1, request.client)
        named = any(one.kind in ("prefix_affinity", "slo_aware") for one in self.routers.values())
        blocks = block_names(request.prompt, self.block_tokens, request.adapter) if named else ()
        flight = Flight(self, request, str(next(self.numbers)), blocks)
        self.flights[request.id] = flight
        self.by_client[request.client] += 1
        if self.record is not None:
            self.record.came(flight)
        self.waiting.append(flight)
        self.pump()
        return flight

    def pump(self) -> None:
        """Give those who wait to workers, in their order."""
        while self.waiting and self._give(self.waiting[0]):
            self.waiting.popleft()

    def _give(self, flight: Flight) -> bool:
        """Whether a worker takes it: one that has room for its pages to pass, where they are handed over."""
        request, room = flight.request, self.room
        role = "decode" if flight.first else self.entry
        if request.embed and room is not None:
            role = "prefill"
        alive = [one for one in self.workers if one.state == "ready" and one.runs.role == role]
        if not alive:
            return False
        handing = role == "prefill" and not request.embed and request.length > 1
        if handing and room is not None and not room.take(flight.name, self._page_bytes(request)):
            return False
        worker = self.routers[role].choose(alive, flight, len(request.prompt), time.monotonic())
        flight.worker = worker
        worker.flights[request.id] = flight
        path = room.path(flight.name) if room is not None else ""
        out_of = path if flight.first else ""
        worker.tell(wire.Submit(request, into=path if handing else "", out_of=out_of, first=flight.first))
        return True

    def _page_bytes(self, request: GenerateRequest) -> int:
        facts = next(one.facts for one in self.workers if one.facts is not None)
        return (len(request.prompt) // facts.page + 2) * facts.page_bytes * facts.devices // facts.ranks

    def heard(self, worker: WorkerProcess, output: wire.StepOutput) -> None:
        """What a worker's step brought."""
        for emitted in output.emitted:
            flight = worker.flights.get(emitted.id)
            if flight is None:  # it left
                continue
            if emitted.finish == "handover":  # on to a decode worker
                emitted = msgspec.structs.replace(emitted, finish="")
                flight.first, flight.worker = emitted.tokens, None
                del worker.flights[emitted.id]
                self.waiting.appendleft(flight)
            flight.take(emitted)
            if emitted.finish:
                self._over(flight, emitted.finish)
        if self.room is not None:
            for id in output.taken:
                if id in self.flights:
                    self.room.free(self.flights[id].name)
            if any(one.finish == "handover" for one in output.emitted):
                self.room.sweep()  # of those who left meanwhile
            self.pump()

    def died(self, worker: WorkerProcess) -> None:
        """A worker is gone: its requests go to others where nothing was sent of them, or end."""
        worker.state = "dead" if worker.state != "stopped" else "stopped"
        worker.starting = None
        had, worker.flights, worker.stats = list(worker.flights.values()), {}, {}
        for flight in reversed(had):
            flight.worker = None
            whole = bool(flight.first) and self.room is not None and flight.name in self.room.taken
            if (flight.tokens and not (whole and flight.tokens == len(flight.first))) or flight.retried:
                self._end(flight, "error", DIED)
                continue
            flight.retried = True
            self.waiting.appendleft(flight)
        if self.room is not None:
            self.room.sweep()
        self.changed.set()
        self.pump()

    def _end(self, flight: Flight, finish: str, why: str) -> None:
        flight.take(Emitted(id=flight.request.id, finish=finish, why=why))
        self._over(flight, finish)

    def _over(self, flight: Flight, finish: str) -> None:
        """Forget a request that has ended, wherever it was."""
        id = flight.request.id
        flight.end()
        del self.flights[id]
        client = flight.request.client
        self.by_client[client] -= 1
        if not self.by_client[client]:
            del self.by_client[client]
        if flight.worker is not None:
            flight.worker.flights.pop(id, None)
        elif flight in self.waiting:
            self.waiting.remove(flight)
        if self.room is not None:
            self.room.free(flight.name)
        self.ends.append(time.monotonic())
        if self.record is not None:
            self.record.ended(flight, finish)
        if self.waiting:
            self.pump()

    def leave(self, flight: Flight, finish: str = "cancelled") -> None:
        """Whoever asked is gone, or has enough."""
        if not flight.over:
            if flight.worker is not None:
                flight.worker.tell(wire.Drop(flight.request.id))
            self._over(flight, finish)

    def _retry_after(self) -> float:
        """Seconds until one of those under way ends, at the pace of the last ones."""
        span = time.monotonic() - self.ends[0] if len(self.ends) > 1 else 0.0
        return min(max(span / max(len(self.ends) - 1, 1), 1.0), 60.0)

    def stats(self) -> dict[str, Any]:
        """How the workers are, for `/metrics`."""
        known = ("index", "state", "restarts", "load", "stats")
        return {"workers": [{name: getattr(one, name) for name in known} for one in self.workers]}

    async def close(self) -> None:
        """End what is under way, and stop all workers, whatever they do."""
        for flight in list(self.flights.values()):
            self._end(flight, "error", "The server is shutting down.")
        for one in self.workers:
            one.stop()
        for one in self.workers:
            if one.process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    await asyncio.to_thread(one.process.wait, 3)
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        if self.room is not None:
            self.room.close()
