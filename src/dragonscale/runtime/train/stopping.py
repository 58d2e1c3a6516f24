"""Being told to end: a signal is noted, and obeyed after the step."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Whether somebody asked the run to end."""

    def __init__(self) -> None:
        self.asked = ""

    def note(self, number: int, frame: FrameType | None) -> None:
        """A signal came; a second one of the keyboard ends at once."""
        del frame
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = signal.Signals(number).name

    @contextmanager
    def listening(self) -> Iterator["Stop"]:
        """Until the end of the block, signals to end are noted instead of obeyed."""
        signals = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, self.note) for number in signals}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
