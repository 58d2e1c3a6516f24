"""A process around an engine: reads requests between steps, and sends what each step brought in one message.

    python -m dragonscale.runtime.serve.worker FD

FD is the worker's end of a socket whose first message is what to run (`wire.py`). It ends when the other end is gone.
"""

import contextlib
import gc
import os
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from dragonscale.errors import Infeasible, InputError
from dragonscale.runtime.serve.handover import read_arrays, write_arrays
from dragonscale.runtime.serve.requests import Emitted, HandedOver
from dragonscale.runtime.serve.wire import (
    Drop,
    Pipe,
    Starting,
    StepOutput,
    Submit,
    WorkerFailed,
    WorkerOrder,
    WorkerReady,
)

Tell = Callable[[str, int, int], None]
Build = Callable[[WorkerOrder, Tell], tuple[Any, dict[str, Any]]]
TELL = 0.2
"""Seconds between two looks at the engine's own numbers."""


class WorkerLoop:
    """The engine, what comes over the pipe, and the files of those whose pages are handed over."""

    def __init__(self, pipe: Pipe, engine: Any) -> None:
        self.pipe, self.engine = pipe, engine
        self.into: dict[str, str] = {}
        self.handed: list[str] = []
        self.refused: list[Emitted] = []
        self.told = 0.0

    def run(self) -> None:
        """Until the front is gone, or the engine is dead, which the front sees by the end of the process."""
        engine, pipe = self.engine, self.pipe
        while True:
            idle = engine.idle and not self.refused
            if idle and self.told:  # the numbers at rest, before it sleeps
                self.told = 0.0
                pipe.send(StepOutput(stats=self._stats()))
                self.told = 0.0
            for message in pipe.drain(wait=idle):
                self._heard(message)
            if not pipe.open:
                return
            emitted = [self._handed_over(one) for one in engine.step()] + self.refused
            self.refused = []
            taken = [id for id in self.handed if (at := engine.live.get(id)) is None or at.handed is None]
            self.handed = [id for id in self.handed if id not in taken] if taken else self.handed
            if emitted or taken:
                pipe.send(StepOutput(emitted, taken, self._stats()))
            if engine.dead:
                raise RuntimeError(engine.dead)

    def _heard(self, message: Submit | Drop) -> None:
        if isinstance(message, Drop):
            self.into.pop(message.id, None)
            self.engine.cancel(message.id)
            return
        request, handed = message.request, None
        try:
            if message.out_of:
                contents = read_arrays(message.out_of)
                handed = HandedOver(tokens=message.first, computed=len(request.prompt), contents=contents)
                self.handed.append(request.id)
            self.engine.add(request, handed)
            if message.into:
                self.into[request.id] = message.into
        except (InputError, OSError) as error:
            self.refused.append(Emitted(id=request.id, finish="error", why=str(error)))

    def _handed_over(self, emitted: Emitted) -> Emitted:
        """Where a request goes on elsewhere, its pages are written first."""
        path = self.into.pop(emitted.id, "") if emitted.finish else ""
        if emitted.finish == "handover":
            handed = self.engine.export(emitted.id)
            if path:  # none where it was cancelled
                write_arrays(path, self.engine.runner.read_pages(handed.rank, handed.pages))
            self.engine.release(emitted.id)
        return emitted

    def _stats(self) -> dict[str, float]:
        now = time.monotonic()
        if now - self.told < TELL:
            return {}
        self.told = now
        return {name: value for name, value in self.engine.stats().items() if isinstance(value, int | float)}


def main(descriptor: int, build: Build | None = None) -> int:
    """Load, compile, serve; `build` makes the engine of an order, if it is not to be that of a model."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # the runtime's own remarks on start-up
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the front drains when a terminal interrupts both
    pipe = Pipe(socket.socket(fileno=descriptor))
    folder = ""
    try:
        order = pipe.order()
        folder = order.folder
        if build is None:
            from dragonscale.runtime.serve.building import build_engine as build

        engine, facts = build(order, lambda what, done, total: pipe.send(Starting(what, done, total)))
        gc.collect()
        gc.freeze()  # nothing of what was built is ever garbage: not to be looked through again
        pipe.send(WorkerReady(**facts))
        WorkerLoop(pipe, engine).run()
    except (BrokenPipeError, ConnectionResetError, EOFError):
        pass
    except Exception as error:
        wrong = isinstance(error, InputError | Infeasible)
        if not wrong:
            traceback.print_exc()
        with contextlib.suppress(OSError):
            pipe.send(WorkerFailed(str(error) or type(error).__name__, wrong))
        return 1
    if folder and os.getppid() == 1:  # the front fell: nobody else will
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
