"""A progress bar with one total, on stderr, only on a terminal and only for what takes longer than a moment."""

import contextlib
import shutil
import sys
import time
from typing import Any

from dragonscale.blocks.terminal import width_of, wrapped
from dragonscale.errors import printable
from dragonscale.listener import Listener

PATIENCE = 0.7
"""Seconds before a bar shows: what is quicker needs none."""
OFTEN = 0.1
WIDTH = 30


class Terminal(Listener):
    """Prints notes on stderr and draws how far an answer is; the line is gone when it is over."""

    def __init__(self, what: str = "", stream: Any = None) -> None:
        super().__init__()
        self.what = what
        self.stream = stream or sys.stderr
        self.start = self.last = time.monotonic()
        self.reached = 0.0
        self.shown = False
        self.wanted = self.stream.isatty()

    def __enter__(self) -> "Terminal":
        return self

    def note(self, text: str) -> None:
        super().note(text)
        self.clear()
        say_aside(text, self.stream)

    def log(self, text: str) -> None:
        self.clear()
        say_aside(text, self.stream)

    def wait(self, text: str) -> None:
        if self.wanted:
            self.clear()
            say_aside(text, self.stream)

    def step(self, done: int, total: int) -> None:
        """Show how far it is; what counts its parts anew never takes the bar back."""
        now = time.monotonic()
        if not self.wanted or now - self.start < PATIENCE or now - self.last < OFTEN or total <= 0:
            return
        self.last, self.reached = now, max(self.reached, min(1.0, done / total))
        full = round(self.reached * WIDTH)
        left = (now - self.start) * (1 / self.reached - 1) if self.reached > 0.02 else None
        told = f" {self.reached:4.0%}" + (f"  {left:,.0f} s left" if left is not None and left >= 1 else "")
        line = f"{self.what} {'━' * full}{'─' * (WIDTH - full)}{told}"
        self.stream.write("\r\x1b[2K" + line[: shutil.get_terminal_size((80, 24)).columns - 1])
        self.stream.flush()
        self.shown = True

    def clear(self) -> None:
        if self.shown:
            self.stream.write("\r\x1b[2K")
            self.stream.flush()
            self.shown = False

    def __exit__(self, *_: object) -> None:
        self.clear()


def say_aside(text: str, stream: Any = None) -> None:
    """A note for the user on stderr, wrapped where someone reads it."""
    out = stream or sys.stderr
    with contextlib.suppress(OSError):  # one that nobody listens to is no reason to withhold the answer
        print(wrapped(text, width_of(out)) if out.isatty() else printable(text, keep="\n"), file=out, flush=True)
