"""How long one calculation may take: whatever is written, it ends soon."""

import time
from dataclasses import dataclass, field

from dragonscale.errors import InputError

MOST_SECONDS = 1.0
cpu = getattr(time, "thread_time", time.process_time)
"""Seconds of work, not those in which others have the processor."""


@dataclass
class WorkLimit:
    """When a calculation has to end, in seconds of work."""

    until: float = field(default_factory=lambda: cpu() + MOST_SECONDS)

    def check(self) -> None:
        if cpu() > self.until:
            raise InputError("The calculation takes too long; ask for less at once.")

    def leave_out(self, started: float) -> None:
        """What was done since then (loading SymPy) does not count."""
        self.until += cpu() - started
