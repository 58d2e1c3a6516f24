"""What a run was like: its options, what is counted while it runs (latencies of requests, gaps between tokens,
outcomes) and the records of its result.

Requests outside the measured part of the run (a warm-up at the beginning, a drain at the end) are served and counted
but leave no latency behind.
"""

from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

import numpy

from dragonscale.errors import InputError
from dragonscale.simulation.histogram import FRESH, Histogram, Summary, columns
from dragonscale.simulation.request import Sequence, SimulatedRequest


@dataclass(frozen=True)
class SimulationOptions:
    """How a run is simulated and measured.

    `warmup` and `cooldown` are the fractions of the requests, by order of arrival, at the beginning and the end of a
    run whose latencies do not count. `ttft_s`, `tpot_s`, `itl_s` and `e2e_s` are the targets of goodput. A run stops at
    `until_s` with whatever is unfinished. `keep` keeps every request's story; `events` limits the events of the
    Perfetto trace, which begins at `events_from_s`; `watch` is the number of replicas whose activity over time is kept.
    With `leap` off every decode step is an event of its own: the same results, slowly.
    """

    seed: int = 0
    warmup: float = 0.0
    cooldown: float = 0.0
    ttft_s: float = inf
    tpot_s: float = inf
    itl_s: float = inf
    e2e_s: float = inf
    until_s: float = inf
    keep: bool = False
    events: int = 0
    events_from_s: float = 0.0
    leap: bool = True
    watch: int = 0
    classes: tuple[dict[str, float], ...] = ()
    """Targets of each class of traffic, where it has classes."""

    def __post_init__(self) -> None:
        if not (self.warmup >= 0 and self.cooldown >= 0 and self.warmup + self.cooldown < 1):
            raise InputError("Warm-up and cool-down are shares of the requests, from 0, and leave some between them.")
        if min(self.ttft_s, self.tpot_s, self.itl_s, self.e2e_s, self.until_s) <= 0:
            raise InputError("Latency targets and the end of a run are times above 0 seconds.")
        if self.seed < 0 or self.events < 0 or self.watch < 0:
            raise InputError("A seed and numbers of events and of replicas to watch are whole numbers of 0 or more.")

    @property
    def limits(self) -> dict[str, float]:
        """Seconds of the latencies that have a target."""
        limits = {name: getattr(self, name) for name in LATENCIES[1:]}
        return {name: seconds for name, seconds in limits.items() if seconds < inf}


LATENCIES = ("queue_s", "ttft_s", "tpot_s", "itl_s", "e2e_s")
BY_REQUEST = ("queue_s", "ttft_s", "e2e_s", "tpot_s")
"""Latencies that a request has once."""


class ServedRequest(NamedTuple):
    """One request's story, kept only if asked for."""

    number: int
    arrival_s: float
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    queue_s: float
    ttft_s: float
    tpot_s: float
    e2e_s: float
    preemptions: int
    retries: int
    replica: int


class Tally:
    """Counters of a run. `first` and `last` bound the numbers of the requests that are measured."""

    def __init__(self, limits: dict[str, float], first: int, last: float, keep: bool) -> None:
        self.limits, self.short_s, self.short_gaps = limits, limits.get("itl_s", 0.0), 0.0
        self.first, self.last = first, last
        self.open = first == 0  # whether the measured part has begun and is not over
        self._times = {name: Histogram() for name in LATENCIES}
        self.gaps = self._times["itl_s"]
        self._add_gap, self.rows = self.gaps.fresh.extend, list[float]()  # of ended requests, counted together later
        self.served: list[ServedRequest] | None = [] if keep else None
        self.arrived = self.finished = self.measured = self.turned_away = self.good = 0
        self.met = dict.fromkeys(limits, 0)
        self.refused: dict[str, int] = {}
        self.preempted = self.retried = self.failures = self.swaps = 0
        self.input_tokens = self.output_tokens = 0
        self.prompt_tokens = self.cached_tokens = self.host_tokens = 0
        self.last_arrival_s = self.last_end_s = -1.0
        self.verify_steps = self.verify_tokens = 0
        self.all_e2e_s = 0.0
        self.ended, self.by_replica = list[int](), numpy.zeros((3, 1))  # where; how many, their TTFT, their TPOT
        self.watch_first, self.firsts, self.firsts_s = False, 0, 0.0  # first tokens, where an autoscaler asks

    @property
    def times(self) -> dict[str, Histogram]:
        """The distribution of each latency."""
        self.settle()
        return self._times

    def settle(self) -> None:
        """Count the rows of requests that ended since the last time."""
        self.gaps.settle()
        number, arrival, inputs, outputs, start, first, end = columns(self.rows, 7)
        replica, self.ended = numpy.array(self.ended, int), []
        self.input_tokens += int(inputs.sum())
        self.output_tokens += int(outputs.sum())
        self.all_e2e_s += float((end - arrival).sum())
        is_measured = (number >= self.first) & (number < self.last)
        tpot = (end - first) / numpy.maximum(outputs - 1, 1)
        latencies = {"queue_s": start - arrival, "ttft_s": first - arrival, "tpot_s": tpot, "e2e_s": end - arrival}
        for name in BY_REQUEST:
            # an output of one token has no time per token
            counts = is_measured & (outputs > 1) if name == "tpot_s" else is_measured
            values = latencies[name][counts]
            self._times[name].add_all(values, numpy.ones_like(values))
        # (3, replicas): requests that ended there, their TTFT and their TPOT, wider with each new replica
        width = self.by_replica.shape[1]
        count = max(int(replica.max(initial=0)) + 1, width)
        self.by_replica = numpy.pad(self.by_replica, ((0, 0), (0, count - width)))
        for row, values in enumerate((is_measured, latencies["ttft_s"] * is_measured, tpot * is_measured)):
            self.by_replica[row] += numpy.bincount(replica, values, count)
        good = is_measured
        for name, limit in self.limits.items():
            # gaps between tokens (itl_s) are not known by request: its mean gap decides
            met = is_measured & (latencies.get(name, tpot) <= limit)
            self.met[name] += int(met.sum())
            good = good & met
        self.measured += int(is_measured.sum())
        self.good += int(good.sum())

    def gap(self, seconds: float, weight: float) -> None:
        """Count a gap between tokens, `weight` times."""
        if self.open:
            self._add_gap((seconds, weight))
            if seconds <= self.short_s:
                self.short_gaps += weight

    def count_gaps(self, seconds: numpy.ndarray, weights: numpy.ndarray) -> None:
        """Count many gaps between tokens, each with its weight."""
        if self.open:
            self.gaps.add_all(seconds, weights)
            self.short_gaps += float(weights[seconds <= self.short_s].sum())

    def token(self, sequence: Sequence, now: float) -> None:
        """A sequence's token that no decode step made: the one that comes out of a prefill."""
        if sequence.first_s < 0:
            sequence.first_s = now
            if self.watch_first:
                self.firsts += 1
                self.firsts_s += now - sequence.request.arrival_s
        else:
            self.gap(now - sequence.last_s, 1)
        sequence.last_s = now

    def arrive(self, request: SimulatedRequest) -> None:
        """A request has come."""
        self.arrived += 1
        self.last_arrival_s = request.arrival_s

    def refuse(self, request: SimulatedRequest, reason: str) -> None:
        """A request cannot be served."""
        self.refused[reason] = self.refused.get(reason, 0) + 1
        self.turned_away += self.first <= request.number < self.last

    def finish(self, sequence: Sequence, now: float, replica: int) -> None:
        """A request has its last token."""
        request = sequence.request
        self.finished += 1
        self.last_end_s = now
        self.rows += (*request[:4], sequence.start_s, sequence.first_s, now)
        self.ended.append(replica)
        if len(self.rows) >= FRESH:
            self.settle()
        if self.served is not None and self.first <= request.number < self.last:
            arrival, first = request.arrival_s, sequence.first_s
            tpot = 0.0
            if request.output_tokens > 1:
                tpot = (now - first) / (request.output_tokens - 1)
            times_s = (sequence.start_s - arrival, first - arrival, tpot, now - arrival)
            tries = (sequence.preemptions, sequence.retries)
            self.served.append(ServedRequest(*request[:4], sequence.cached, *times_s, *tries, replica))


@dataclass(frozen=True)
class Outcome:
    """What became of the requests: `arrived` is the sum of finished, refused (by reason) and unfinished; `retried` and
    `preempted` count occasions, not requests."""

    arrived: int
    finished: int
    refused: dict[str, int]
    unfinished: int
    preempted: int
    retried: int
    failures: int = 0
    """Of replicas."""


@dataclass(frozen=True)
class Throughput:
    """Rates over the measured part of the run.

    `arrived_per_s` is the rate of arrivals then. `goodput_requests_per_s` counts requests that met all targets (that of
    `itl_s` by their mean gap between tokens), `good_share` is their fraction of the measured ones. Token rates count
    what came out in that time, of any request.
    """

    seconds: float
    arrived_per_s: float
    requests_per_s: float
    input_tokens_per_s: float
    output_tokens_per_s: float
    goodput_requests_per_s: float
    good_share: float


@dataclass(frozen=True)
class ReplicaUse:
    """One replica over the run; `prompt_s` of its busy seconds were iterations with prompts; the last one ended at
    `last_s`."""

    index: int
    pool: str
    busy_s: float
    prompt_s: float
    prompt_iterations: int
    iterations: int
    mean_batch: float
    prefilled_tokens: int
    output_tokens: int
    pages_in_use: int
    pages_idle: int
    last_s: float


@dataclass(frozen=True)
class PoolUse:
    """What a pool's replicas are used for.

    Fractions of their busy time in iterations with prompts, of the places in batches that are taken, and of the token
    budget that prompts fill in an iteration that has some; means of the `replicas` that were up, their batch, the used
    fraction of their cache, and the TTFT and TPOT of the requests that ended there.
    """

    prompt_share: float
    places_share: float
    budget_share: float
    replicas: float = 0.0
    mean_batch: float = 0.0
    kv_share: float = 0.0
    ttft_s: float = 0.0
    tpot_s: float = 0.0


class Checkpoint(NamedTuple):
    """Counts at an arrival, or at the end of a request: requests that had arrived, the time, those that had finished or
    were refused, those of them that were turned away for lack of space in the queue or of a replica, and those that
    waited."""

    arrived: int
    seconds: float
    finished: int
    refused: int
    turned_away: int
    waiting: int


@dataclass(frozen=True)
class ClassResult:
    """One class of traffic over the measured part of a run, as for a whole run but without gaps between tokens, which
    are not counted by class."""

    arrived: int
    finished: int
    refused: int
    measured: int
    good_share: float
    input_tokens: int
    output_tokens: int
    latency: dict[str, Summary]
    met: dict[str, float]

    @property
    def served_s(self) -> float:
        """Seconds that requests which were measured spent in replicas, summed."""
        return self.measured * (self.latency["e2e_s"].mean.value - self.latency["queue_s"].mean.value)


@dataclass(frozen=True)
class SimulationResult:
    """The result of a run.

    `latency` summarises `queue_s`, `ttft_s`, `tpot_s`, `itl_s` and `e2e_s`, with percentiles within half a percent and
    95% intervals (gaps between tokens within a run of equal steps count at the run's mean); `curves` are the
    distribution functions. `use` is by pool. `series` are (seconds, value) means over time of `pages` (fraction of the
    cache in use), `running` and `waiting` (requests in the fleet), `busy` (fraction of replicas) and `replicas`;
    `watched` are such series of single replicas. `met` is the fraction of requests (of gaps between tokens) that met
    each target; refused ones did not. `checkpoints` and `departures` are counts at some arrivals and at the ends of
    some requests.
    """

    outcome: Outcome
    seconds: float
    latency: dict[str, Summary]
    curves: dict[str, list[tuple[float, float]]]
    throughput: Throughput
    utilisation: float
    kv_occupancy: float
    mean_batch: float
    mean_running: float
    mean_waiting: float
    cache_hit_rate: float
    host_hit_rate: float
    adapter_loads: int
    tokens_per_verify_step: float
    replicas: tuple[ReplicaUse, ...]
    use: dict[str, PoolUse]
    series: dict[str, list[tuple[float, float]]]
    checkpoints: tuple[Checkpoint, ...] = ()
    departures: tuple[Checkpoint, ...] = ()
    served: tuple[ServedRequest, ...] = ()
    met: dict[str, float] = field(default_factory=dict)
    watched: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    trace: dict[str, Any] = field(default_factory=dict)
    classes: tuple[ClassResult, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    """Tokens of all requests that ended, measured or not."""

    def busy(self, replica: ReplicaUse) -> float:
        """The fraction of the time that a replica is busy, until its pool has nothing more to do: one that prefills
        rests while the last requests decode."""
        ends = [other.last_s for other in self.replicas if other.pool == replica.pool]
        return replica.busy_s / (max(ends) or 1.0)
