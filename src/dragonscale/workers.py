"""A worker as a server sees it: a process that is started again where it dies, and the socket to it.

The page's server and the inference server both stand before such workers. A worker is given the number of its end of a
socket (`python -m MODULE FD`), is sent first what it is to run, and then speaks messages that are framed as
`multiprocessing.connection` does, so that its own end is a `Connection`. What a message means, and what becomes of the
work of a worker that dies, is its server's to say (`heard`, `died`).
"""

import asyncio
import socket
import struct
import subprocess
import sys
import traceback
from abc import ABC, abstractmethod
from collections import deque
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
LENGTH = struct.Struct("!i")
BUFFER = 4 << 20
"""Bytes that a socket holds on its way: a worker goes on while its server is busy with something else for a moment."""
WAITS = (0.5, 30.0)
"""Seconds before a worker that died is started again: the first time, and at most."""


def framed(body: bytes) -> bytes:
    """A message as it goes over the socket.

    >>> framed(b"ready")
    b'\\x00\\x00\\x00\\x05ready'
    """
    return LENGTH.pack(len(body)) + body


class Mailbox(Generic[Item]):
    """What came of a worker for one reader, who waits where there is nothing; `over` says that nothing more comes."""

    def __init__(self) -> None:
        self.unread: deque[Item] = deque()
        self.over = False
        self._reader: asyncio.Future[None] | None = None

    def put(self, item: Item) -> None:
        """One more."""
        self.unread.append(item)
        self.wake()

    def end(self) -> None:
        """Nothing more comes."""
        self.over = True
        self.wake()

    def wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def next(self) -> Item | None:
        """The next, or None at the end."""
        while not self.unread:
            if self.over:
                return None
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        return self.unread.popleft()


class Worker(ABC):
    """One worker. Its state is starting, ready, dead or stopped; a server may have others of its own."""

    def __init__(self, index: int, module: str) -> None:
        self.index, self.module = index, module
        self.state, self.restarts, self.wait = "starting", 0, WAITS[0]
        self.process: subprocess.Popen[Any] | None = None
        self.writer: asyncio.StreamWriter | None = None

    @abstractmethod
    def order(self) -> bytes:
        """The first message: what it is to run."""

    @abstractmethod
    def heard(self, body: bytes) -> None:
        """A message came."""

    @abstractmethod
    def died(self) -> float | None:
        """The process is gone: tell whoever waited; seconds until it is started again, None where it is given up."""

    def surroundings(self) -> dict[str, Any]:
        """How the process is started: its folder, variables, session."""
        return {}

    async def run(self) -> None:
        """Start it, again where it dies, until it is stopped or given up."""
        while self.state != "stopped":
            await self._once()
            wait = self.died()
            if wait is None or self.state == "stopped":
                return
            self.restarts += 1
            await asyncio.sleep(wait)
            if self.state != "stopped":
                self.state = "starting"

    def longer(self) -> float:
        """Seconds to wait this time; twice as many the next."""
        wait, self.wait = self.wait, min(2 * self.wait, WAITS[1])
        return wait

    async def _once(self) -> None:
        own = process = writer = None
        try:
            own, theirs = socket.socketpair()
            with theirs:
                theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
                command, end = [sys.executable, "-m", self.module, str(theirs.fileno())], theirs.fileno()
                how = {"stdin": subprocess.DEVNULL, "stdout": 2, **self.surroundings()}
                self.process = process = subprocess.Popen(command, pass_fds=(end,), **how)
            reader, self.writer = await asyncio.open_connection(sock=own)
            writer = self.writer
            writer.write(framed(self.order()))
            while True:
                (size,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
                self.heard(await reader.readexactly(size))
        except (OSError, asyncio.IncompleteReadError):
            pass  # it is gone, or the machine is short of something: tried again later
        except Exception:  # a fault of ours: told, and its work ends as that of a worker that died
            traceback.print_exc()
        finally:
            if own is not None:
                own.close() if writer is None else writer.close()
            self.writer = None
            if process is not None:
                process.kill()  # one that closed its socket is of no use any more
                await asyncio.to_thread(process.wait)

    def send(self, body: bytes) -> None:
        """Send it a message; one that is gone hears nothing."""
        if self.writer is not None and not self.writer.is_closing():
            self.writer.write(framed(body))
