"""Ctrl-C that is never lost.

Python turns a signal into a `KeyboardInterrupt` wherever the main thread happens to be, and one that
is raised inside a callback (a finalizer, a weak reference) is printed and forgotten. So the signal
is also kept in a flag, which a long loop asks after every step. While the loop cleans up, further
signals change nothing. SIGTERM, as schedulers send it, counts as Ctrl-C; a signal that the process
was started to ignore (a background job of a script) stays ignored.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """Whether somebody has asked to stop."""

    def __init__(self) -> None:
        self.asked = False

    def ask(self, *_: Any) -> None:
        """Handle a signal: the first interrupts what is being done."""
        if not self.asked:
            self.asked = True
            raise KeyboardInterrupt

    def check(self) -> None:
        """Stop here if the exception went astray."""
        if self.asked:
            raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Listen to the signals; outside the main thread, where Python hears none, nothing changes."""
    interrupt, before = Interrupt(), {}
    if threading.current_thread() is threading.main_thread():
        handlers = {one: signal.getsignal(one) for one in SIGNALS}
        before = {one: handler for one, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}
    for one in before:
        signal.signal(one, interrupt.ask)
    try:
        yield interrupt
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
