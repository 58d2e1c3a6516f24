"""The largest rate that a replica of each finalist holds under its targets, found by running it, and the fleet that the
asked rate takes.

Requests come at random (Poisson), so percentiles and queues are those of traffic, not of a batch that is always full. A
replica is run as one of a fleet of the size that the rate asks for (of a few at most): behind a router that sees their
load, several hold a little more each than one alone. Of two pools each is run beside one of the other kind that has
twice the room it needs.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dragonscale.serving.space.disaggregation import PooledConfig, Pools
from dragonscale.serving.space.fleet_cost import FleetCost
from dragonscale.serving.space.frontier import Config
from dragonscale.serving.steady.targets import LatencyTarget
from dragonscale.simulation.fleet_sizing.capacity import MIN_REQUESTS, PoolSizes, Trial, Trials, confirmed_sizes
from dragonscale.simulation.fleet_sizing.confirmation import replicas_of_slice, simulated_run
from dragonscale.simulation.fleet_sizing.fleet_job import NO_CHANGE, FleetJob
from dragonscale.simulation.fleet_sizing.fleet_run import cost_of_replicas, replicas_with
from dragonscale.simulation.fleet_sizing.fleet_traffic import USUAL_REQUESTS
from dragonscale.simulation.fleet_sizing.missed_targets import worst_ratio
from dragonscale.simulation.fleet_sizing.rate_search import RATE_TOLERANCE, largest_rate
from dragonscale.simulation.fleet_sizing.short_run import MAX_RUN_REPLICAS, RunSize, SizingJob, fleet_job
from dragonscale.simulation.fleet_sizing.simulated_run import SimulatedRun

# Configurations that are run, and runs of each at most.
FINALISTS = 3
MAX_RUNS = 9

# Part of what a batch that is always full serves at which the search begins.
FIRST_SHARE = 0.8

# Requests of the run that confirms a rate, and steps down until one does; the more have missed, the larger the steps.
LONG_REQUESTS = USUAL_REQUESTS
MAX_STEPS = 9
STEPS_OF_ONE_SIZE = 3

# Times the room that the other of two pools needs.
ROOMY = 2

# The part of its target that a latency has reached at the largest rate where it is what stops a larger one.
STOPPING_SHARE = 0.85


@dataclass(frozen=True)
class Finalist:
    """A configuration to run, and what is expected of it (or was simulated): requests that it serves per second, all
    of its pools together, and the seconds of one."""

    config: Config
    requests_per_s: float
    latency_s: float

    @property
    def pools(self) -> Pools | None:
        """Its two pools, if it has them."""
        return self.config.pools if isinstance(self.config, PooledConfig) else None


@dataclass(frozen=True)
class SizedFleet:
    """The fleet that holds the asked rate when it is run. `headroom` is the part of what it could serve that the rate
    leaves free."""

    sizes: PoolSizes
    headroom: float
    cost: FleetCost
    usd_per_mtok: float | None
    run: SimulatedRun


@dataclass(frozen=True)
class SustainedRate:
    """What a replica of a configuration holds: requests per second (of two pools one of each kind; None: no rate holds)
    and what limits them; rates of tokens are per chip of what serves them."""

    requests_per_s: float | None
    limited_by: str
    runs: int
    prefill_requests_per_s: float | None = None
    good_share: float = 0.0
    ttft_s: float | None = None
    tpot_s: float | None = None
    output_tokens_per_s_per_chip: float = 0.0
    usd_per_mtok: float | None = None
    fleet: SizedFleet | None = None

    @property
    def good_tokens_per_s_per_chip(self) -> float:
        """Output tokens of requests that meet their targets."""
        return self.good_share * self.output_tokens_per_s_per_chip

    def paid(self, rate: float | None) -> tuple[bool, float]:
        """What it is ranked by, the least first: with a rate the fleet's dollars, else those of a million tokens of
        requests that meet the targets; chips where there is no price. What holds nothing comes last."""
        if self.requests_per_s is None or (rate is not None and self.fleet is None):
            return True, 0.0
        if self.fleet is not None and rate is not None:
            return False, self.fleet.cost.usd_per_h or self.fleet.cost.chips
        good_share = self.good_tokens_per_s_per_chip / max(self.output_tokens_per_s_per_chip, 1e-9)
        if self.usd_per_mtok:
            return False, self.usd_per_mtok / max(good_share, 1e-9)
        return False, 1 / max(self.good_tokens_per_s_per_chip, 1e-9)


def sustained_rates(
    job: SizingJob, finalists: Sequence[Finalist], progress: Callable[[int, int], None] | None = None
) -> list[SustainedRate]:
    """What each configuration holds."""
    sustained: list[SustainedRate] = []
    for number, finalist in enumerate(finalists, 1):
        sustained.append(sustained_rate(job, finalist))
        if progress is not None:
            progress(number, len(finalists))
    return sustained


def on_frontier(sustained: Sequence[SustainedRate]) -> list[bool]:
    """Which of them no other beats in both good tokens per chip and TPOT."""
    points = [(rate.good_tokens_per_s_per_chip, rate.tpot_s or 0.0) for rate in sustained]
    frontier: list[bool] = []
    for index, rate in enumerate(sustained):
        good, tpot_s = points[index]
        others = points[:index] + points[index + 1 :]
        beaten = any(
            other_good >= good and other_s <= tpot_s and (other_good, other_s) != (good, tpot_s)
            for other_good, other_s in others
        )
        frontier.append(rate.requests_per_s is not None and not beaten)
    return frontier


@dataclass(frozen=True)
class _RateLimit:
    """The largest rate of a fleet: the runs that looked for it, the run at it (None: no rate holds), what stops a
    larger one, and the replicas that share it."""

    trials: Trials
    low: Trial | None
    limit: str
    replicas: int


def sustained_rate(job: SizingJob, finalist: Finalist) -> SustainedRate:
    """The largest rate that one configuration holds, and its fleet for the asked rate."""
    rate, pools = job.ask.rate, finalist.pools
    if pools is None:
        counts = PoolSizes(1)
        ends = [_main_limit(job, finalist)]
    else:
        counts = PoolSizes(pools.decodes, pools.prefills)
        ends = _pool_limits(job, finalist, pools)
    runs = sum(end.trials.runs for end in ends)
    for end in ends:
        if end.low is None:
            return SustainedRate(None, end.limit, runs)
    best_trials = [end.low for end in ends if end.low is not None]
    main_rate = best_trials[0].rate / ends[0].replicas
    served = counts.replicas * main_rate
    limited_by = ends[0].limit
    prefill_rate: float | None = None
    if pools is not None:  # the slower of two pools limits what both serve
        prefill_rate = best_trials[1].rate / ends[1].replicas
        if counts.prefills * prefill_rate < served:
            served = counts.prefills * prefill_rate
            limited_by = ends[1].limit
    main = ends[0].trials.job
    cost = cost_of_replicas(main, replicas_with(main, counts.replicas, counts.prefills))
    tokens_per_s = served * job.ask.output
    answer = SustainedRate(
        requests_per_s=main_rate,
        limited_by=limited_by,
        runs=runs,
        prefill_requests_per_s=prefill_rate,
        good_share=min(trial.result.throughput.good_share for trial in best_trials),
        ttft_s=main.reached(best_trials[-1].result, "ttft_s"),
        tpot_s=main.reached(best_trials[0].result, "tpot_s"),
        output_tokens_per_s_per_chip=tokens_per_s / cost.chips,
        usd_per_mtok=cost.usd_per_mtok(tokens_per_s),
    )
    return answer if rate is None else _with_fleet(job, finalist, answer, best_trials[0], rate)


def _main_limit(job: SizingJob, finalist: Finalist) -> _RateLimit:
    """The largest rate of as many replicas as the asked rate takes, a few at most."""
    full_rate = finalist.requests_per_s
    replicas = 1
    if job.ask.rate is not None:
        replicas = min(MAX_RUN_REPLICAS, max(math.ceil(job.ask.rate / full_rate), 1))
    return _search(job, finalist, full_rate * replicas, PoolSizes(replicas), replicas)


def _pool_limits(job: SizingJob, finalist: Finalist, pools: Pools) -> list[_RateLimit]:
    """The largest rates of one decode replica, and of one prefill replica, each beside enough of the other."""
    decode_rate = finalist.requests_per_s / pools.decodes
    prefill_rate = finalist.requests_per_s / pools.prefills
    prefill_first = PoolSizes(max(math.ceil(ROOMY * prefill_rate / decode_rate), 1), 1)
    decode_first = PoolSizes(1, max(math.ceil(ROOMY * decode_rate / prefill_rate), 1))
    prefill = _search(job, finalist, prefill_rate, prefill_first, replicas=1)
    return [_search(job, finalist, decode_rate, decode_first, replicas=1), prefill]


def _search(job: SizingJob, finalist: Finalist, full_rate: float, sizes: PoolSizes, replicas: int) -> _RateLimit:
    """The largest rate of pools, from what they serve when they are full, and what stops larger ones."""
    first_rate = FIRST_SHARE * full_rate
    fleet = sized_job(job, finalist.config, first_rate, sizes, 2 * MIN_REQUESTS)
    trials = Trials(fleet, in_flight=first_rate * finalist.latency_s, progress=None)
    low, high = largest_rate(trials.run, first_rate, MAX_RUNS)
    rate = None
    if low is not None and not finalist.config.drafts:
        rate = low.rate
    for step in range(MAX_STEPS):  # queues near the limit grow for longer than the runs so far
        if rate is None:
            break
        trial = trials.run(float(f"{rate:.3g}"), LONG_REQUESTS)
        if trial.good:
            low, rate = trial, None
        else:
            low, high = None, trial
            rate = trial.rate / RATE_TOLERANCE ** (1 + step // STEPS_OF_ONE_SIZE)
    return _RateLimit(trials, low, limit_of(fleet, low, high), replicas)


def limit_of(fleet: FleetJob, low: Trial | None, high: Trial | None) -> str:
    """What stops a larger rate than that of `low`: the latency that the run at `high` misses by most, or the queue.

    A latency that is well below its target at the largest rate and above it 3% later did not grow into it: requests
    come faster than they are served, and wait."""
    if high is None or not high.missed:
        return "queue"
    latency = next(iter(high.missed))
    if low is None:
        return latency
    if latency in fleet.targets:
        ratio = fleet.reached(low.result, latency) / fleet.targets[latency].seconds
    else:
        ratio = worst_ratio(fleet, low.result)  # a target of a class of traffic
    return latency if ratio >= STOPPING_SHARE else "queue"


def sized_job(job: SizingJob, config: Config, rate: float, sizes: PoolSizes, requests: int) -> FleetJob:
    """Pools of a configuration at a rate."""
    pace_s = job.serving.pace
    if not job.targets and pace_s:  # what the search kept to though nobody asked for it
        job = replace(job, serving=replace(job.serving, goals={"tpot": LatencyTarget(pace_s)}))
    return fleet_job(job, config, RunSize(rate, sizes.replicas, sizes.prefills, requests))


def _with_fleet(job: SizingJob, finalist: Finalist, sustained: SustainedRate, low: Trial, rate: float) -> SustainedRate:
    """With the replicas that hold the asked rate when they are run, in whole slices where one was named."""
    assert sustained.requests_per_s is not None
    config = finalist.config
    whole_slice = 1 if finalist.pools is not None else replicas_of_slice(job, config)
    prefills = 0
    if sustained.prefill_requests_per_s:
        prefills = math.ceil(rate / sustained.prefill_requests_per_s - 1e-9)
    sizes = PoolSizes(math.ceil(rate / sustained.requests_per_s / whole_slice - 1e-9) * whole_slice, prefills)
    fleet = sized_job(job, config, rate, sizes, 2 * MIN_REQUESTS)
    trials = Trials(fleet, in_flight=rate * finalist.latency_s, progress=None)
    confirmed = confirmed_sizes(trials, NO_CHANGE, sizes, low)
    runs = sustained.runs + trials.runs
    if confirmed is None or confirmed.confirmed is None:
        return replace(sustained, runs=runs)
    sizes = confirmed.sizes
    billed = PoolSizes(math.ceil(sizes.replicas / whole_slice) * whole_slice, sizes.prefills)
    limits = [billed.replicas * sustained.requests_per_s, billed.prefills * (sustained.prefill_requests_per_s or 0.0)]
    cost = cost_of_replicas(fleet, replicas_with(fleet, billed.replicas, billed.prefills))
    ran = sized_job(job, config, rate, sizes, 2 * MIN_REQUESTS)
    sized = SizedFleet(
        billed,
        headroom=max(1 - rate / min(limit for limit in limits if limit), 0.0),
        cost=cost,
        usd_per_mtok=cost.usd_per_mtok(rate * job.ask.output),
        run=simulated_run(ran, confirmed.confirmed.result, meets=True),
    )
    return replace(sustained, fleet=sized, runs=runs)
