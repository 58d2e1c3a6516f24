"""What the page's server is told at its start, and the limits that keep it alive.

Every limit is here, with the reason for its size, so that `docs/web.md` and the tests can name them. The server is one
reader's own; many readers need a proxy before it, which limits each of them.
"""

import os
from dataclasses import dataclass

from dragonscale.prompt_http import read_address

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class PageSettings:
    """The address, who may speak to it, and what may be asked of it. Times are in seconds."""

    host: str = "127.0.0.1"
    port: int = 0
    names: tuple[str, ...] = ()
    """Host names that are allowed beside the address itself."""
    proxy: str = ""
    """The address of a reverse proxy whose `x-forwarded-for` is believed, for the log."""
    offline: bool = False
    workers: int = 2
    warm: bool = True
    """Whether workers answer a question of each kind before they count as ready."""
    log: bool = False

    quick_s: float = 10.0
    slow_s: float = 120.0
    grace_s: float = 3.0
    """How long work goes on that nobody waits for, before its worker is killed."""
    memory_bytes: int = 2 << 30
    """Of one worker. A planner that remembers 48 records takes a tenth of it."""
    answer_bytes: int = 16 << 20
    """Of one answer: it is kept until its reader has taken it."""

    body_bytes: int = 1 << 20
    body_s: float = 10.0
    idle_s: float = 15.0
    """How long a connection may be without a request, and how long its headers may take."""
    connections: int = 640
    waiting: int = 240
    """Questions: a page asks for a dozen at once, and a few tabs may."""

    jobs: int = 1
    jobs_waiting: int = 2
    job_s: float = 900.0
    job_memory: str = "8GB"
    job_kept_s: float = 900.0
    """How long the result of a job can be asked for."""
    jobs_kept: int = 16

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)

    @property
    def hub(self) -> bool:
        """Whether workers may ask the Hugging Face Hub for the config of `org/name`: for the user of
        this machine only."""
        return self.loopback and not self.offline


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    address = read_address(host)
    return host in LOOPBACK_NAMES or (address is not None and address.is_loopback)


def default_workers() -> int:
    """A worker for each core that this process may use, two at least: one stays free of slow work."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(cores, 2)
