"""What stands between a server and whoever reads its stderr, so that no line can hold it up.

A pipe that nobody reads is full after 64 kB, and whoever writes to it then waits. A server writes from its event loop
and its engine's loop, and so do libraries and worker processes that it cannot ask to wait elsewhere. So the file
descriptor itself is replaced by a pipe of our own that one thread always empties; another writes on what came. Lines
that find no room between the two are lost, and their number is told in their place.
"""

import os
import sys
import threading
import time
from collections import deque
from types import TracebackType

ROOM = 1 << 20
"""Bytes that wait to be written on."""
CHUNK = 1 << 16
"""Bytes that are read at once; a line that is longer is cut."""
LAST_S = 1.0
"""Seconds that the last lines have to be written at the end."""
STDERR = 2


class StderrRelay:
    """While it is open, stderr of this process and of those that it starts never blocks. A terminal is left alone:
    there somebody reads, and its width and colours are asked of the descriptor."""

    def __init__(self) -> None:
        self._real = -1
        self._waiting: deque[bytes] = deque()
        self._bytes = self._lost = 0
        self._ended = False
        self._changed = threading.Condition()
        self._reader: threading.Thread | None = None
        self._writer: threading.Thread | None = None

    def __enter__(self) -> "StderrRelay":
        try:
            if os.isatty(STDERR):
                return self
            self._real = os.dup(STDERR)
        except OSError:  # a process without one
            return self
        source, sink = os.pipe()
        os.dup2(sink, STDERR)
        os.close(sink)
        self._reader = threading.Thread(target=self._read, args=(source,), daemon=True)
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._reader.start()
        self._writer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reader is None or self._writer is None:
            return
        sys.stderr.flush()
        os.dup2(self._real, STDERR)  # with the last process that writes to it, our own pipe ends
        until = time.monotonic() + LAST_S
        self._reader.join(LAST_S)
        self._writer.join(max(until - time.monotonic(), 0.1))
        if self._writer.is_alive():  # nobody reads; what this process says from now on must not block either
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, STDERR)
            os.close(nowhere)
        else:
            os.close(self._real)

    def _read(self, source: int) -> None:
        """Empty the pipe, line by line."""
        rest = b""
        while data := os.read(source, CHUNK):
            lines, newline, rest = (rest + data).rpartition(b"\n")
            if len(rest) > CHUNK:
                lines, newline, rest = lines + newline + rest, b"\n", b""
            self._keep(lines + newline)
        self._keep(rest)
        os.close(source)
        with self._changed:
            self._ended = True
            self._changed.notify()

    def _keep(self, lines: bytes) -> None:
        """Lines to be written on, or to be counted where there is no room."""
        with self._changed:
            if self._bytes + len(lines) > ROOM:
                self._lost += lines.count(b"\n")
                return
            if lines:
                lines = self._remark() + lines
                self._waiting.append(lines)
                self._bytes += len(lines)
                self._changed.notify()

    def _remark(self) -> bytes:
        """What is said in the place of lines that were lost."""
        lost, self._lost = self._lost, 0
        if not lost:
            return b""
        return f"{lost:,} lines of this log were lost here, because nobody read it.\n".encode()

    def _write(self) -> None:
        """Write on what came, however long that takes."""
        while True:
            with self._changed:
                while not self._waiting and not self._ended:
                    self._changed.wait()
                lines = self._waiting.popleft() if self._waiting else self._remark()
            if not lines:
                return
            try:
                sent = 0
                while sent < len(lines):
                    sent += os.write(self._real, lines[sent:])
            except OSError:  # nobody will ever read it
                pass
            with self._changed:
                self._bytes = max(self._bytes - len(lines), 0)
