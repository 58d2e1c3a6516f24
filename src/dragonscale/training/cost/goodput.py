"""Goodput: the time between failures, how often to save a checkpoint, and the share of time that makes progress; with
them the days and dollars of a run.

A job of N hosts, each failing r times a second, is interrupted every 1/(N·r) seconds. Each time it loses the restart
and, on average, half of the interval between two checkpoints; and saving a checkpoint stops it for a moment. So of all
time

    goodput = (1 − N·r·(restart + interval/2)) / (1 + save/interval)

makes progress (Meta's closed form, arXiv:2410.21680), and the interval √(2·save/(N·r)) costs least (Young, 1974) as
long as both are short beside the time between failures; `best_interval` is where the formula itself is largest. What is
published: 3.8 failures for 1,000 days of an H100 host (LLaMA-3 405B: 419 unexpected interruptions of 16,384 GPUs in 54
days, arXiv:2407.21783), 6.5 for an A100 host (arXiv:2410.21680). Not in the formulas: slow chips, failures that come
together.

>>> round(time_between_failures(2048, 3.8e-3 / 86400) / 3600, 1)
3.1
>>> round(goodput(2048, 3.8e-3 / 86400, interval=600, restart=600, save=10), 2)
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

    >>> round(checkpoint_interval(2048, 3.8e-3 / 86400, 10))
    471
    """
    return sqrt(2 * save / (hosts * rate))


def best_interval(hosts: Number, rate: Number, restart: Number, save: Number) -> Number:
    """The interval at which `goodput` is largest: where its derivative is nothing, √(save² + 2·save·(1 − N·r·restart) /
    (N·r)) − save.

    >>> round(best_interval(2048, 3.8e-3 / 86400, 600, 10))
    448
    """
    left = maximum(1 - hosts * rate * restart, 0)
    return sqrt(save**2 + 2 * save * left / (hosts * rate)) - save


def goodput(hosts: Number, rate: Number, interval: Number, restart: Number, save: Number = 0) -> Number:
    """The share of time that makes progress: restarts, lost work and the stops for checkpoints taken off.

    >>> goodput(10**6, 1 / 86400, interval=600, restart=600)
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
    """The conditions of a run as far as the user gave them: seconds between checkpoints (`every`), bytes/s that storage
    takes from all hosts, whether a save waits for it, seconds between failures of the whole job, spare hosts (below
    one: a fraction of all), whether chips are spot chips, seconds until a job that failed runs again."""

    every: float | None = None
    storage: float | None = None
    waits: bool = False
    mtbf: float | None = None
    spares: float | None = None
    spot: bool = False
    restart: float | None = None


@dataclass(frozen=True)
class Run:
    """A run of `clean_s` seconds with failures. Times are in seconds. `rate` are interruptions a second, of which
    `preempted` are spot chips taken away; `write_s` is the time until a checkpoint is safe and `save_s` how long the
    job stands still for it; `share` is the fraction of time that makes progress; `waiting` the fraction that passes
    without chips (spares that are out, no spot chips to be had; `waiting_p90` at most in nine of ten runs); `out` are
    hosts that are out on average, `paid` the chips that are paid for over those of the plan, `spread` the standard
    deviation of failure rates between clusters."""

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
        """Seconds that nine of ten runs lose at most beyond the mean. Failures are a Poisson process; each loses the
        restart and a uniform part of an interval; and the rate itself differs between clusters as published ones do."""
        lost = self.restart_s + self.interval_s / 2
        # Variance of a compound Poisson process: failures times the mean square of the loss (uniform: width²/12).
        variance = self.failures * (lost**2 + self.interval_s**2 / 12)
        return P90 * math.sqrt(variance + (self.spread * self.failures * lost) ** 2)

    @property
    def goodput(self) -> float:
        """The share of all time that makes progress."""
        return self.clean_s / self.seconds

    def dollars(self, slice_: Slice) -> float | None:
        """Dollars that it costs in the mean; None without a price."""
        price = slice_.chip.price
        if price is None:
            return None
        return self.busy_s / 3600 * slice_.chips * self.paid * price

    @property
    def busy_p90_s(self) -> float:
        return self.busy_s + self.more_s

    @property
    def seconds_p90(self) -> float:
        return self.busy_p90_s / (1 - self.waiting_p90)


def enough_hosts(out: float, spares: float) -> float:
    """The fraction of time in which no more than `spares` hosts are out, of `out` in the mean: hosts fail one by one
    and each is back after its own time, so that their number is a Poisson variable.

    >>> round(enough_hosts(0.5, 0), 3), round(enough_hosts(0.5, 2), 3)
    (0.607, 0.986)
    """
    if out <= 0:
        return 1.0
    # exp(n·log(out) − out) / n!, summed up to the spares.
    chances = (math.exp(n * math.log(out) - out - math.lgamma(n + 1)) for n in range(int(spares) + 1))
    return min(sum(chances), 1.0)


def run_goodput(slice_: Slice, clean_s: float, checkpoint_bytes: float, conditions: Conditions) -> Run:
    """A run on a slice with failures, at the given interval between checkpoints or the best there is."""
    if conditions.mtbf:
        failing, source, spread = 1 / conditions.mtbf, "by --mtbf", 0.0
    else:
        failing, source, spread = failure_rate(slice_), failure_rates(slice_.chip).source, spread_between_clusters()
    preempted = published("preemptions_per_s") if conditions.spot else 0.0
    rate = failing + preempted

    # Checkpoints and restarts.
    storage = conditions.storage or published("storage_per_host") * slice_.hosts
    write = checkpoint_bytes / storage
    save = write
    restart = (conditions.restart or published("restart")) + write
    if not conditions.waits:
        save = min(write, published("blocking"))
        restart += write  # what is not yet written when a job fails is lost with the work since
    best = best_interval(1, rate, restart, save) if rate else clean_s
    interval = min(conditions.every or max(best, write - save), clean_s)
    share = float(goodput(1, rate, interval, restart, save))

    # Waiting for chips.
    out, spares = failing * published("swapped") * published("repair"), conditions.spares
    enough_spares = 1.0
    if spares is not None:
        if 0 < spares < 1:
            spares = float(math.ceil(spares * slice_.hosts))
        enough_spares = enough_hosts(out, spares)
    # A run starts when chips are there, and one that is shorter than the mean time to a preemption most often ends
    # before it; one run in ten is preempted in a tenth of that time.
    preemptions = preempted * float(time_with_failures(clean_s, share))
    unavailable = 1 / published("spot_available") - 1  # seconds without spot chips for each second with them
    waiting_spot = min(max(preemptions - 1, 0.0), 1.0) * unavailable
    waiting_spot_p90 = float(preemptions > -math.log(0.9)) * unavailable

    # Who owns spares owns the chips, too: waiting for a host is paid for, waiting for spot chips is not.
    paid = (1 + (spares or 0.0) / slice_.hosts) / enough_spares
    return Run(
        clean_s=clean_s,
        rate=rate,
        preempted=preempted,
        source=source,
        checkpoint_bytes=checkpoint_bytes,
        storage=storage,
        interval_s=interval,
        save_s=save,
        write_s=write,
        restart_s=restart,
        share=share,
        waiting=1 - enough_spares / (1 + waiting_spot),
        waiting_p90=1 - enough_spares / (1 + waiting_spot_p90),
        spares=spares,
        out=out,
        paid=paid,
        spread=spread,
    )
