"""A worker: a process that answers one question after another, started by the pool (`python -m …worker FD`).

What is said on the socket stands in `processes.py`. A thread reads, so that a question that nobody waits for is heard
of while the planner works: its next message then raises `Unwanted`, and where none comes soon, a signal does, between
two of its steps. So a search that is given up costs no process. Where the other end closes, the process is of no use
and ends at once.
"""

import contextlib
import os
import queue
import signal
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from dragonscale.web.answers import Unwanted, answer
from dragonscale.web.page_request import KEPT
from dragonscale.web.server.locked import lock
from dragonscale.web.server.processes import DROPPED, ENDED, MESSAGE, READY, WorkerStart
from dragonscale.web.view_names import view_names
from dragonscale.web.views.registry import panels_of

SOON = 0.05
"""Seconds that an unwanted answer has to send something, before it is interrupted."""
WARM = msgspec.toml.decode(Path(__file__).with_name("warm.toml").read_bytes())["requests"]
"""Asked before a worker counts as ready: most of the first answer's time is imports and tables."""


class WorkerWire:
    """The worker's end of the socket."""

    def __init__(self, end: Connection) -> None:
        self.end = end
        self.asked: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.unwanted = self.working = self.sending = False

    def listen(self) -> None:
        """Read until the other end closes; frames come in order, so a `d` is always about the present question."""
        with contextlib.suppress(OSError, EOFError):
            while True:
                body = self.end.recv_bytes()
                if body == DROPPED:
                    self.unwanted = True
                    threading.Timer(SOON, self._interrupt).start()
                else:
                    self.unwanted = False
                    self.asked.put(body[1:])
        os._exit(0)

    def _interrupt(self) -> None:
        if self.unwanted and self.working:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def interrupted(self, *_: object) -> None:
        """The signal's handler: it runs in the main thread, never inside of a frame, which would be left half sent."""
        if self.unwanted and self.working and not self.sending:
            raise Unwanted

    def send(self, kind: bytes, payload: bytes = b"") -> None:
        self.sending = True
        try:
            self.end.send_bytes(kind + payload)
        except OSError:
            os._exit(0)
        finally:
            self.sending = False


def main() -> None:
    """Be told, get ready, answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wire = WorkerWire(Connection(int(sys.argv[1])))
    start = msgspec.json.decode(wire.end.recv_bytes(), type=WorkerStart)
    _limit_memory(start.memory_bytes)
    for view in view_names() if start.warm else ():  # while its files may still be compiled and kept
        panels_of(view)
    lock(start.folder, start.readable, start.writable, start.network)
    for request in WARM if start.warm else ():
        answer(request, lambda _: None)
    signal.signal(signal.SIGUSR1, wire.interrupted)
    threading.Thread(target=wire.listen, daemon=True).start()
    wire.send(READY)
    while True:
        _answer_one(wire, msgspec.json.decode(wire.asked.get()))
        wire.send(ENDED, msgspec.json.encode(KEPT.keys()))


def _answer_one(wire: WorkerWire, request: dict[str, Any]) -> None:
    def send(message: dict[str, Any]) -> None:
        if wire.unwanted:
            raise Unwanted
        if message:
            wire.send(MESSAGE, msgspec.json.encode(message) + b"\n")

    with contextlib.suppress(Unwanted):
        try:
            wire.working = True
            answer(request, send)
        finally:  # inside of `suppress`: the signal may come until here
            wire.working = False


def _limit_memory(max_bytes: int) -> None:
    """A wall behind the pool's own watch: address space, of which a process reserves far more than it uses."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (max_bytes + (6 << 30), resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()
