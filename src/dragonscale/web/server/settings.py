"""What the page's server is told at its start, and the limits that keep it alive.

Every limit is here, with the reason for its size, so that `docs/web.md` and the tests can name them.
"""

import os
from dataclasses import dataclass

from dragonscale.prompt_http import read_address

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class PageSettings:
    """The address, who may speak to it, and what one of them may ask for. Times are in seconds."""

    host: str = "127.0.0.1"
    port: int = 0
    names: tuple[str, ...] = ()
    """Host names that are allowed beside the address itself."""
    proxy: str = ""
    """The address of a reverse proxy whose `x-forwarded-for` is believed."""
    offline: bool = False
    workers: int = 2
    warm: bool = True
    """Whether workers answer a question of each kind before they count as ready."""
    log: bool = False

    quick_s: float = 10.0
    slow_s: float = 120.0
    contested_quick_s: float = 5.0
    contested_slow_s: float = 20.0
    """The same while somebody at another address waits: nobody holds a worker for long that others need."""
    contested_least_s: float = 3.0
    """What is left of it for an address that has had as much slow work lately, or that has many slow questions waiting.
    """
    greedy_waiting: int = 12
    """So many: a page of one reader asks for fewer."""
    spent_half_s: float = 60.0
    """How soon half of the slow work that an address has had is forgotten."""
    grace_s: float = 3.0
    """How long work goes on that nobody waits for, before its worker is killed."""
    demoted_s: float = 60.0
    """How long an address whose question had to be stopped has its quick ones queued with the slow."""
    memory_bytes: int = 2 << 30
    """Of one worker. A planner that remembers 48 records takes a tenth of it."""
    answer_bytes: int = 16 << 20
    """Of one answer: it is kept until its reader has taken it."""

    body_bytes: int = 1 << 20
    body_s: float = 10.0
    headers_s: float = 10.0
    idle_s: float = 15.0
    write_s: float = 20.0
    """How long a reader may leave the buffer of its connection full."""
    connections: int = 640
    connections_per_address: int = 320
    waiting: int = 960
    waiting_per_address: int = 320
    waiting_per_tab: int = 240
    requests_per_s: float = 100.0
    requests_at_once: float = 640.0
    """A bucket for each address: what it may send in a row, and how fast that comes back."""
    large_bytes_per_s: float = 4e6
    large_bytes_at_once: float = 16e6
    """The same for bodies, in bytes."""

    jobs: int = 1
    jobs_waiting: int = 4
    jobs_waiting_per_address: int = 2
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
