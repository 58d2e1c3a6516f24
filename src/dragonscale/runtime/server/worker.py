"""A process around an engine: reads requests between steps, and sends what each step brought in one message.

    python -m dragonscale.runtime.server.worker FD

FD is the worker's end of a socket whose first message is what to run (`wire.py`). It ends when the other end is gone.
"""

import contextlib
import gc
import os
import select
import shutil
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from dragonscale.errors import Infeasible, InputError
from dragonscale.runtime.serve.requests import Emitted, HandedOver
from dragonscale.runtime.server import wire
from dragonscale.runtime.server.handover import read_arrays, write_arrays

Build = Callable[[wire.WorkerOrder, wire.Tell], tuple[Any, dict[str, Any]]]
TELL = 0.2
"""Seconds between two looks at the engine's own numbers."""


PATIENCE = 0.5
"""Seconds in which a front that died is seen to be gone."""


class GrammarThread:
    """Builds grammars beside the engine's loop. A byte on the pipe `wakes` says that one is built."""

    def __init__(self, grammars: Any) -> None:
        self.grammars = grammars
        self.wakes, self._wake = os.pipe()
        self._thread = ThreadPoolExecutor(1, "grammars")
        self._waiting: dict[str, wire.Submit] = {}
        self._built: deque[tuple[wire.Submit, Any]] = deque()

    def start(self, message: wire.Submit) -> None:
        """Build the grammar of a request."""
        self._waiting[message.request.id] = message
        self._thread.submit(self._build, message)

    def drop(self, id: str) -> None:
        """Nobody waits for this request any more."""
        self._waiting.pop(id, None)

    def built(self) -> list[tuple[wire.Submit, Any]]:
        """Requests that are still wanted, with the start of their grammar, or with the `InputError` that it gave."""
        os.read(self.wakes, 4096)  # a byte for each; those of later ones wake the loop once for nothing
        ready = [self._built.popleft() for _ in range(len(self._built))]
        return [(message, start) for message, start in ready if self._waiting.pop(message.request.id, None)]

    def _build(self, message: wire.Submit) -> None:
        grammar = message.request.sampling.grammar
        try:
            start = self.grammars.begin(grammar) if message.request.id in self._waiting else None
        except InputError as error:
            start = error
        except Exception as error:  # whatever it is, the request ends and the others go on
            traceback.print_exception(error)
            start = OSError("its grammar could not be built; the server's log says why")
        self._built.append((message, start))
        os.write(self._wake, b"x")


class WorkerLoop:
    """The engine, what comes over the pipe, and the files of those whose pages are handed over."""

    def __init__(self, pipe: Connection, engine: Any) -> None:
        self.pipe, self.engine, self.arrived = pipe, engine, select.poll()
        self.grammars = GrammarThread(engine.grammars)
        self.decode = msgspec.msgpack.Decoder(wire.ToWorker).decode
        self.into: dict[str, str] = {}
        self.handed: list[str] = []
        self.refused: list[Emitted] = []
        self.told = 0.0

    def run(self) -> None:
        """Until the front is gone (an `EOFError`), or the engine is dead."""
        engine = self.engine
        self.arrived.register(self.pipe.fileno(), select.POLLIN)  # once: `pipe.poll` builds its selector at each call
        self.arrived.register(self.grammars.wakes, select.POLLIN)
        while not engine.dead:
            idle = engine.idle and not self.refused
            if idle and self.told:  # the numbers at rest, before it sleeps
                self._tell(wire.StepOutput(stats=self._stats(0.0)))
                self.told = 0.0
            while ready := self.arrived.poll(None if idle else 0):
                for source, _ in ready:
                    if source == self.grammars.wakes:
                        self._add_built()
                    else:
                        self._heard(self.decode(self.pipe.recv_bytes()))
                idle = False
            emitted = [self._handed_over(one) for one in engine.step()] + self.refused
            self.refused = []
            taken = [id for id in self.handed if (at := engine.live.get(id)) is None or at.handed is None]
            if emitted or taken:
                self.handed = [id for id in self.handed if id not in taken]
                self._tell(wire.StepOutput(emitted, taken, self._stats(TELL)))
        raise RuntimeError(engine.dead)

    def _tell(self, message: wire.FromWorker) -> None:
        self.pipe.send_bytes(wire.encode(message))

    def _heard(self, message: wire.ToWorker) -> None:
        if isinstance(message, wire.Drop):
            self.into.pop(message.id, None)
            self.grammars.drop(message.id)
            self.engine.cancel(message.id)
        elif message.request.sampling.grammar is not None and self.engine.grammars is not None:
            self.grammars.start(message)
        else:
            self._add(message)

    def _add_built(self) -> None:
        """Requests whose grammars are built."""
        for message, start in self.grammars.built():
            if isinstance(start, InputError | OSError):
                self._refuse(message, start)
            else:
                self._add(message, start)

    def _refuse(self, message: wire.Submit, error: Exception) -> None:
        finish = "refused" if isinstance(error, InputError) else "error"
        self.refused.append(Emitted(id=message.request.id, finish=finish, why=str(error)))

    def _add(self, message: wire.Submit, grammar: Any = None) -> None:
        request, handed = message.request, None
        try:
            if message.out_of:
                contents = read_arrays(message.out_of)
                handed = HandedOver(tokens=message.first, computed=len(request.prompt), contents=contents)
                self.handed.append(request.id)
            self.engine.add(request, handed, grammar)
            if message.into:
                self.into[request.id] = message.into
        except (InputError, OSError) as error:
            self._refuse(message, error)

    def _handed_over(self, emitted: Emitted) -> Emitted:
        """Where a request goes on elsewhere, its pages are written first."""
        path = self.into.pop(emitted.id, "") if emitted.finish else ""
        if emitted.handed is None:
            return emitted
        try:
            if path:  # none where it was cancelled
                write_arrays(path, emitted.handed.contents)
        except OSError as error:  # no room for the file
            return Emitted(id=emitted.id, finish="error", why=f"The pages could not be handed over: {error}")
        return msgspec.structs.replace(emitted, handed=None)

    def _stats(self, wait: float) -> dict[str, float]:
        now = time.monotonic()
        if now - self.told < wait:
            return {}
        self.told = now
        return {name: value for name, value in self.engine.stats().items() if isinstance(value, int | float)}


def main(descriptor: int, build: Build | None = None) -> int:
    """Load, compile, serve; `build` makes the engine of an order, if it is not to be that of a model."""
    for one in (signal.SIGINT, signal.SIGTERM):  # the front drains when a terminal or a supervisor signals both
        signal.signal(one, signal.SIG_IGN)
    pipe, folder, parent = Connection(descriptor), "", os.getppid()

    def tell(message: wire.FromWorker) -> None:
        pipe.send_bytes(wire.encode(message))

    try:
        order = msgspec.msgpack.decode(pipe.recv_bytes(), type=wire.WorkerOrder)
        folder = order.folder
        if build is None:
            from dragonscale.runtime.server.building import build_engine as build

        engine, facts = build(order, lambda *how: tell(wire.Starting(*how)))
        gc.collect()
        gc.freeze()  # nothing of what was built is ever garbage: not to be looked through again
        tell(wire.WorkerReady(**facts))
        WorkerLoop(pipe, engine).run()
    except (BrokenPipeError, ConnectionResetError, EOFError):
        pass
    except Exception as error:
        wrong = isinstance(error, InputError | Infeasible)
        if not wrong:
            traceback.print_exc()
        with contextlib.suppress(OSError):
            tell(wire.WorkerFailed(str(error) or type(error).__name__, wrong))
        return 1
    if folder and _fell(parent):  # nobody else will
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _fell(parent: int) -> bool:
    """Whether the front died, and did not just close its socket: the sockets of a process close a moment before it is
    seen to be gone."""
    until = time.monotonic() + PATIENCE
    while os.getppid() == parent and time.monotonic() < until:
        time.sleep(0.01)
    return os.getppid() != parent


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
