"""A worker: a process that answers one question after another, started by the pool (`python -m …worker FD`).

It speaks frames over a socket: a kind of one letter, a length, and JSON. It is sent its order, then questions (`a`), and
`d` where nobody waits for the present one; it sends `r` when it is ready, `m` for each message of an answer, `e` at
its end. A thread reads, so that `d` is heard while the planner works: the next message then raises `Unwanted`. Where the
other end closes, the process is of no use and ends at once.
"""

import contextlib
import os
import queue
import signal
import socket
import struct
import sys
import threading
from importlib import import_module
from typing import Any

import msgspec

HEAD = struct.Struct(">cI")
WARM = (
    {"view": "train", "fields": {"model": "llama3-8b", "on": "h100:8", "batch": "64seq", "seq": 4096, "plan": "fsdp8",
                                 "alone": True}, "panels": ["answer", "time", "memory", "mesh"], "brief": True},
    {"view": "serve", "fields": {"model": "llama3-8b", "on": "h100:1", "plan": "tp1", "batch": 16}, "panels": ["record"]},
)  # fmt: skip
"""Asked before a worker counts as ready: most of the first answer's time is imports and tables."""


class WorkerStart(msgspec.Struct):
    """What a worker is started with."""

    folder: str
    readable: list[str]
    writable: list[str]
    network: bool
    warm: bool
    memory_bytes: int


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    """A frame as it is sent.

    >>> frame(b"e")
    b'e\\x00\\x00\\x00\\x00'
    """
    return HEAD.pack(kind, len(payload)) + payload


class Wire:
    """The worker's end of the socket."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.file = end.makefile("rb")
        self.asked: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.unwanted = False

    def read(self) -> tuple[bytes, bytes]:
        head = self.file.read(HEAD.size)
        if len(head) < HEAD.size:
            raise EOFError
        kind, size = HEAD.unpack(head)
        return kind, self.file.read(size)

    def listen(self) -> None:
        """Read until the other end closes; frames come in order, so a `d` is always about the present question."""
        with contextlib.suppress(OSError, EOFError):
            while True:
                kind, payload = self.read()
                if kind == b"d":
                    self.unwanted = True
                else:
                    self.unwanted = False
                    self.asked.put(payload)
        os._exit(0)

    def send(self, kind: bytes, payload: bytes = b"") -> None:
        try:
            self.end.sendall(frame(kind, payload))
        except OSError:
            os._exit(0)


def main() -> None:
    """Be told, get ready, answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wire = Wire(socket.socket(fileno=int(sys.argv[1])))
    start = msgspec.json.decode(wire.read()[1], type=WorkerStart)
    _limit_memory(start.memory_bytes)
    answer, unwanted, slow = _loaded()
    from dragonscale.web.server.locked import lock

    lock(start.folder, start.readable, start.writable, start.network)
    for request in WARM if start.warm else ():
        answer(request, lambda _: None)
    threading.Thread(target=wire.listen, daemon=True).start()
    wire.send(b"r", msgspec.json.encode(slow))

    def send(message: dict[str, Any]) -> None:
        if wire.unwanted:
            raise unwanted
        wire.send(b"m", msgspec.json.encode(message) + b"\n")

    while True:
        body = wire.asked.get()
        with contextlib.suppress(unwanted):
            answer(msgspec.json.decode(body), send)
        wire.send(b"e")


def _loaded() -> tuple[Any, Any, dict[str, list[str]]]:
    """Load the planner while files may still be read; which panels of which view are slow."""
    from dragonscale.web.answers import Unwanted, answer, view_names
    from dragonscale.web.views import panels_of

    slow: dict[str, list[str]] = {}
    for view in view_names():
        panels_of(view)
        with contextlib.suppress(ImportError):
            slow[view] = sorted(getattr(import_module(f"dragonscale.web.views.{view}"), "SLOW", ()))
    return answer, Unwanted, {view: names for view, names in slow.items() if names}


def _limit_memory(most: int) -> None:
    """A wall behind the pool's own watch: address space, of which a process reserves far more than it uses."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (most + (6 << 30), resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()
