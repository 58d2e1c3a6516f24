"""What a run was like, as records."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dragonscale.simulation.histogram import Summary
from dragonscale.simulation.tally import ServedRequest


@dataclass(frozen=True)
class Outcome:
    """What became of the requests. `arrived` is the sum of finished, refused (by reason) and unfinished; retried and
    preempted count occasions, not requests."""

    arrived: int
    finished: int
    refused: dict[str, int]
    unfinished: int
    preempted: int
    retried: int


@dataclass(frozen=True)
class Throughput:
    """Rates over the measured part of the run. `arrived_per_s` is what came then, `goodput_requests_per_s` counts
    requests that met both targets, `good_share` is their share of the measured ones. Rates of tokens are of what came
    out in that time, whosever it was."""

    seconds: float
    arrived_per_s: float
    requests_per_s: float
    input_tokens_per_s: float
    output_tokens_per_s: float
    goodput_requests_per_s: float
    good_share: float


@dataclass(frozen=True)
class ReplicaUse:
    """One replica over the run; `prompt_s` of its busy seconds were iterations with prompts."""

    index: int
    pool: str
    busy_s: float
    prompt_s: float
    iterations: int
    mean_batch: float
    prefilled_tokens: int
    output_tokens: int
    pages_in_use: int
    pages_idle: int


class Checkpoint(NamedTuple):
    """The books at an arrival, or at the end of a request: requests that had come, the time, those that had ended or
    were refused, those of them that were turned away for want of room in the queue or of a replica, and those that
    waited."""

    arrived: int
    seconds: float
    finished: int
    refused: int
    turned_away: int
    waiting: int


@dataclass(frozen=True)
class SimulationResult:
    """A run. Latencies are summaries of `queue_s`, `ttft_s`, `tpot_s`, `itl_s` and `e2e_s` with percentiles right to
    half a percent and 95% intervals (gaps between tokens within a run of equal steps count at the run's mean); `curves`
    are their distribution functions; `series` are (seconds, value) means over time of `pages` (share of the cache in
    use), `running` and `waiting` (requests in the fleet), `busy` (share of replicas) and `replicas`; `met` is the share
    of requests that met each target; `watched` are such series of each replica, where they were asked for;
    `checkpoints` and `departures` are the books at some arrivals and at the ends of some requests."""

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
    tokens_per_verify_step: float
    replicas: tuple[ReplicaUse, ...]
    series: dict[str, list[tuple[float, float]]]
    checkpoints: tuple[Checkpoint, ...] = ()
    departures: tuple[Checkpoint, ...] = ()
    served: tuple[ServedRequest, ...] = ()
    met: dict[str, float] = field(default_factory=dict)
    watched: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    trace: dict[str, Any] = field(default_factory=dict)
