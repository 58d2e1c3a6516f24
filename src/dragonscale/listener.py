"""Who hears what an answer says beside itself: notes on how the question was read, and how far it is.

The library keeps the notes with the answer; the terminal prints them on stderr and draws a bar. What NumPy warns of is
for neither: a cost that is no number ends the answer (`plan.finite`).
"""

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def without_numeric_warnings() -> Iterator[None]:
    """Print no warning of an invalid value or an overflow, which a reader can do nothing about. Only printing is off:
    where warnings are errors (as in tests) they still are."""
    with warnings.catch_warnings():
        shown = warnings.showwarning

        def show(message: Any, category: type[Warning], *place: Any, **named: Any) -> None:
            if not issubclass(category, RuntimeWarning):
                shown(message, category, *place, **named)

        warnings.showwarning = show
        yield


class Listener:
    """Keeps notes, lets progress pass."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Something the asker should know that is not the answer."""
        self.notes.append(text)

    def step(self, done: int, total: int) -> None:
        """How far it is; once begun, an answer counts towards one total."""

    def wait(self, text: str) -> None:
        """A word to someone who watches and has to wait; nobody else needs it."""

    def log(self, text: str) -> None:
        """A line on how a long run goes: heard as it comes, not kept."""
