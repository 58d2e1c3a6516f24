"""The log: a line of JSON for each request, on stderr, written beside the event loop.

A pipe that nobody reads is full after 64 kB, and whoever writes to it then waits. Here that is a thread: streams go on,
lines wait up to a bound, and those beyond it are lost and counted in the next line that is written.
"""

import atexit
import queue
import sys
import threading
from typing import Any

import msgspec

LINES = 10_000
"""Lines that wait to be written."""
LAST = 1.0
"""Seconds that the last lines have at the end of the process."""


class LogWriter:
    """Called with a line. The thread begins with the first one."""

    def __init__(self) -> None:
        self.lines: queue.Queue[dict[str, Any] | None] = queue.Queue(LINES)
        self.thread: threading.Thread | None = None
        self.lost = 0

    def __call__(self, line: dict[str, Any]) -> None:
        if self.thread is None:
            self.thread = threading.Thread(target=self._write, daemon=True)
            self.thread.start()
            atexit.register(self.close)
        try:
            self.lines.put_nowait(line | {"lines_lost": self.lost} if self.lost else line)
            self.lost = 0
        except queue.Full:
            self.lost += 1

    def _write(self) -> None:
        try:
            while (line := self.lines.get()) is not None:
                sys.stderr.write(msgspec.json.encode(line).decode() + "\n")
                if self.lines.empty():
                    sys.stderr.flush()
        except (OSError, ValueError):  # nobody will ever read it: the server goes on without
            return

    def close(self) -> None:
        """Let the last lines be written, if somebody reads them."""
        if self.thread is not None and not self.lines.full():
            self.lines.put_nowait(None)
            self.thread.join(LAST)
