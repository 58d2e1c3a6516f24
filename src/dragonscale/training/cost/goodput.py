"""What failures leave of a run: the time between them, how often to save, the share of time that makes progress; and
with them the days and dollars of a plan.

A job of N hosts, each failing r times a second, is interrupted every 1/(N·r) seconds. Each time it loses the restart
and, on average, half of the interval between two checkpoints; and saving a checkpoint stops it for a moment. So of all
time

    goodput = (1 − N·r·(restart + interval/2)) / (1 + save/interval)

makes progress (Meta's closed form, arXiv:2410.21680), and the interval √(2·save/(N·r)) costs least (Young, 1974) as
long as both are short beside the time between failures; `best_interval` is where the formula itself is largest. What is
published: 3.8 failures for 1,000 days of an H100 host (LLaMA-3 405B: 419 unexpected interruptions of 16,384 GPUs in 54
days, arXiv:2407.21783), 6.5 for an A100 host (arXiv:2410.21680). Not in the formulas: slow chips, failures that come
together.

>>> round(time_between_failures(2048, 3.8e-3 / DAY) / 3600, 1)
3.1
>>> round(goodput(2048, 3.8e-3 / DAY, interval=600, restart=600, save=10), 2)
0.9
"""

import functools
import math
from dataclasses import dataclass
from typing import Any

from dragonscale.errors import Infeasible, InputError
from dragonscale.physics.hardware import Slice
from dragonscale.physics.hardware.failures import failure_rate, failure_rates, spread_between_clusters
from dragonscale.physics.numbers import Number, maximum, sqrt
from dragonscale.tables import beside

P90 = 1.2816
"""Standard deviations above the mean below which nine of ten outcomes of a normal distribution lie."""


def time_between_failures(hosts: Number, rate: Number) -> Number:
    """Seconds between two interruptions of a job whose hosts each fail `rate` times a second."""
    return 1 / (hosts * rate)


def checkpoint_interval(hosts: Number, rate: Number, save: Number) -> Number:
    """Seconds between checkpoints that lose least, if saving one stops the job for `save` seconds: √(2·save/(N·r)).

    >>> round(checkpoint_interval(2048, 3.8e-3 / DAY, 10))
    471
    """
    return sqrt(2 * save / (hosts * rate))


def best_interval(hosts: Number, rate: Number, restart: Number, save: Number) -> Number:
    """The interval at which `goodput` is largest: where its derivative is nothing, √(save² + 2·save·(1 − N·r·restart) /
    (N·r)) − save.

    >>> round(best_interval(2048, 3.8e-3 / DAY, 600, 10))
    448
    """
    left = maximum(1 - hosts * rate * restart, 0)
    return sqrt(save**2 + 2 * save * left / (hosts * rate)) - save


def goodput(hosts: Number, rate: Number, interval: Number, restart: Number, save: Number = 0) -> Number:
    """The share of time that makes progress: restarts, lost work and the stops for checkpoints taken off.

    >>> goodput(10**6, 1 / DAY, interval=600, restart=600)
    Traceback (most recent call last):
        ...
    dragonscale.errors.Infeasible: No time is left: in each second 11.6 failures lose 1.04e+04 s; take fewer hosts, or
    save and restart faster.
    """
    lost = hosts * rate * (restart + interval / 2)
    if isinstance(lost, int | float) and lost >= 1:
        raise Infeasible(
            f"No time is left: in each second {hosts * rate:.3g} failures lose {lost:.3g} s; take fewer hosts, or "
            "save and restart faster."
        )
    return (1 - lost) / (1 + save / interval)


def time_with_failures(seconds: Number, share: Number) -> Number:
    """How long a run takes of which only a share of the time makes progress.

    >>> time_with_failures(100.0, 0.8)
    125.0
    """
    if isinstance(share, int | float) and not 0 < share <= 1:
        raise InputError(f"A share of {share:g} is none; it lies above 0 and is 1 at most.")
    return seconds / share


# A run: what it meets, and what that leaves of it.


@functools.cache
def _table() -> dict[str, Any]:
    return beside(__file__, "recovery.toml")


def published(name: str) -> float:
    """A number of `recovery.toml` that runs are reckoned with."""
    return float(_table()["times"][name]["value"])


@dataclass(frozen=True)
class Conditions:
    """What a run meets, as far as it was said: seconds between checkpoints, bytes/s that storage takes from all hosts,
    whether a save waits for it, seconds between failures of the whole job, spare hosts (below one: a part of them),
    whether chips are spot chips, seconds until a job that failed runs again."""

    every: float | None = None
    storage: float | None = None
    waits: bool = False
    mtbf: float | None = None
    spares: float | None = None
    spot: bool = False
    restart: float | None = None


@dataclass(frozen=True)
class Run:
    """What failures leave of a run of `clean_s` seconds. Times are in seconds; `rate` are interruptions a second, of
    which `preempted` by taking spot chips away; `write_s` the time a checkpoint takes to be safe and `save_s` how long
    the job stands still for it; `share` the part of time that makes progress; `waiting` the part that passes without
    chips (spares that are out, spot chips that nobody has; `waiting_p90` at most in nine of ten runs), `paid` what is
    paid for over the chips of the plan."""

    clean_s: float
    rate: float
    preempted: float
    source: str
    checkpoint_bytes: float
    storage: float
    interval_s: float
    save_s: float
    write_s: float
    restart_s: float
    share: float
    waiting: float
    waiting_p90: float
    spares: float | None
    out: float
    paid: float
    spread: float

    @property
    def busy_s(self) -> float:
        """Time with chips."""
        return float(time_with_failures(self.clean_s, self.share))

    @property
    def seconds(self) -> float:
        return self.busy_s / (1 - self.waiting)

    @property
    def failures(self) -> float:
        return self.rate * self.busy_s

    @property
    def more_s(self) -> float:
        """What nine of ten runs lose at most beyond the mean. Failures are a Poisson process, each loses the restart
        and a uniform part of an interval; and the rate itself differs between clusters as published ones do."""
        lost = self.restart_s + self.interval_s / 2
        chance = self.failures * (lost**2 + self.interval_s**2 / 12)
        return P90 * math.sqrt(chance + (self.spread * self.failures * lost) ** 2)

    @property
    def goodput(self) -> float:
        """The share of all time that makes progress."""
        return self.clean_s / self.seconds

    def dollars(self, piece: Slice) -> float | None:
        """What it costs in the mean; None without a price."""
        price = piece.chip.price
        return None if price is None else self.busy_s / 3600 * piece.chips * self.paid * price

    @property
    def busy_p90_s(self) -> float:
        return self.busy_s + self.more_s

    @property
    def seconds_p90(self) -> float:
        return self.busy_p90_s / (1 - self.waiting_p90)


def enough_hosts(out: float, spares: float) -> float:
    """The part of the time in which no more than `spares` hosts are out, of `out` in the mean: hosts fail one by one
    and each is back after its own time, so that their number is a Poisson variable.

    >>> round(enough_hosts(0.5, 0), 3), round(enough_hosts(0.5, 2), 3)
    (0.607, 0.986)
    """
    terms = (math.exp(many * math.log(out) - out - math.lgamma(many + 1)) for many in range(int(spares) + 1))
    return min(sum(terms), 1.0) if out > 0 else 1.0


def run_goodput(piece: Slice, clean_s: float, checkpoint_bytes: float, given: Conditions) -> Run:
    """A run on a slice with failures, at the interval between checkpoints that was given or the best there is."""
    failing = 1 / given.mtbf if given.mtbf else failure_rate(piece)
    preempted = published("preemptions_per_s") if given.spot else 0.0
    rate = failing + preempted
    storage = given.storage or published("storage_per_host") * piece.hosts
    write = checkpoint_bytes / storage
    save = write if given.waits else min(write, published("blocking"))
    # what is not yet written when a job fails is lost with the work since
    restart = (given.restart or published("restart")) + write + (0.0 if given.waits else write)
    best = best_interval(1, rate, restart, save) if rate else clean_s
    interval = min(given.every or max(best, write - save), clean_s)
    share = float(goodput(1, rate, interval, restart, save))
    out, spares = failing * published("swapped") * published("repair"), given.spares
    if spares is not None and 0 < spares < 1:
        spares = float(math.ceil(spares * piece.hosts))
    here = enough_hosts(out, spares) if spares is not None else 1.0
    # a run starts when chips are there, and one that is shorter than the mean time to a preemption most often ends
    # before it; of one in ten the same is true of a tenth of that time
    gone = preempted * float(time_with_failures(clean_s, share))
    charged = min(max(gone - 1, 0.0), 1.0), float(gone > -math.log(0.9))
    there = published("spot_available")
    waiting, waiting_p90 = (1 - here / (1 + part * (1 / there - 1)) for part in charged)
    paid = 1 + (spares or 0.0) / piece.hosts
    # who owns spares, owns the chips too: waiting for a host is paid for, waiting for spot chips is not
    paid /= here
    source = "by --mtbf" if given.mtbf else failure_rates(piece.chip).source
    spread = 0.0 if given.mtbf else spread_between_clusters()
    numbers = interval, save, write, restart, share, waiting, waiting_p90, spares, out, paid, spread
    return Run(clean_s, rate, preempted, source, checkpoint_bytes, storage, *numbers)
