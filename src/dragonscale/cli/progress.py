"""A progress bar that shows itself only when something takes longer than a moment, and only on a terminal."""

import sys
import time
from typing import Any

PATIENCE = 0.7


class Bar:
    """`with Bar("plans") as bar: bar.step(done, total)`; on stderr, gone when it is over."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.start = time.monotonic()
        self.bar: Any = None
        self.task: Any = None
        self.total = -1
        self.wanted = sys.stderr.isatty()

    def __enter__(self) -> "Bar":
        return self

    def step(self, done: int, total: int) -> None:
        """Say how far it is."""
        if not self.wanted or (self.bar is None and time.monotonic() - self.start < PATIENCE):
            return
        if self.bar is None:
            from rich.console import Console
            from rich.progress import Progress

            self.bar = Progress(console=Console(stderr=True), transient=True)
            self.bar.start()
        if self.task is None or total != self.total:
            if self.task is not None:
                self.bar.remove_task(self.task)
            self.task, self.total = self.bar.add_task(f"searching {self.what}", total=total), total
        self.bar.update(self.task, completed=done)

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()
