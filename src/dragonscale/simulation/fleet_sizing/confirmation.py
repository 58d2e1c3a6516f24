"""What is recommended, confirmed by running it: the headline of an answer meets its targets in a short simulation.
Percentiles are judged by nothing else.

Means of the steady state say where to look. Where a run misses a target, its ratio to the mean says which batch would
meet it, and that one is run; of fleets at a rate, more replicas are.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from dragonscale.serving.advice.search import at_batches
from dragonscale.serving.space.disaggregation import PooledConfig, as_config
from dragonscale.serving.space.frontier import Ask, Config
from dragonscale.serving.space.ranking import replicas_for, worth
from dragonscale.simulation.backlog import load_of
from dragonscale.simulation.fleet_sizing.fleet_job import FleetJob
from dragonscale.simulation.fleet_sizing.fleet_run import cost_of_replicas, run_fleet
from dragonscale.simulation.fleet_sizing.missed_targets import missed_targets, worst_ratio
from dragonscale.simulation.fleet_sizing.short_run import SizingJob, fleet_job, short_run_size
from dragonscale.simulation.fleet_sizing.simulated_run import Latency, SimulatedRun, latency_of
from dragonscale.simulation.result import SimulationResult

# Part of a target that a run has to stay within: means of so short a run are known to 1%.
MARGIN = 0.99

# Tokens of a run over those expected, from which the difference is more than chance.
MAX_TOKEN_LOSS = 1.05

# Runs of one plan at most, and plans that are run where one of them holds.
MAX_TRIES = 5
FINALISTS = 3

# Part of the batch or the tokens that are looked for that is near enough not to run another.
NEAR = 0.92

# Parts of the rate that pools are sized for, at which they are run until they hold.
POOL_LOADS = (0.9, 0.8, 0.7)

# Requests of a run at most, about a second, and how many times as many where percentiles are to be judged. Where tokens
# are drafted so many of them are as much work as a request, since every step is another.
MAX_WORK = 12_000
PERCENTILE_WORK = 5
DRAFTED_TOKENS_OF_WORK = 80

# Batches among which one is looked for that meets the targets.
BATCH_GRID = 32

# A result this near to a target is a matter of chance: it is run with these seeds too, and all have to meet it.
CLOSE_CALL = 0.2
OTHER_SEEDS = (1, 2)

# Times as long are these runs of sessions, of which there may be too many for a while.
SESSION_RUN_TIMES = 2

# Replicas over those that missed, among which requests are nearly alone: what they miss there they miss in any fleet.
NEARLY_ALONE_TIMES = 8

# First part by which a fleet that missed grows, doubled each time.
FIRST_GROWTH = 0.1

# Digits of the ratio to a target that rank fleets that missed; below, the smaller fleet is nearer.
RATIO_DIGITS = 2


@dataclass(frozen=True)
class Confirmed:
    """A configuration that was run, the replicas that share a rate, the run, and whether it holds: meets the targets
    with a margin; and the configuration with the smallest batch that was run and did not."""

    config: Config
    replicas: int | None
    run: SimulatedRun
    holds: bool
    missed: Config | None = None
    worst: float = 0.0
    """The latency nearest to its target or furthest above it, over the target; infinite where the queue grows."""

    def rank(self, ask: Ask) -> tuple[float, ...]:
        """What runs are ranked by, the least first."""
        *flaws, cost, tokens = worth(self.config, ask, self.replicas)
        if ask.rate is None:
            cost *= self.token_loss
        return not self.holds, *flaws, cost, tokens

    @property
    def token_loss(self) -> float:
        """How many times as many tokens were expected as the run made; 1 where that is near."""
        loss = self.config.tokens_per_chip / max(self.run.output_tokens_per_s_per_chip, 1e-9)
        return loss if loss > MAX_TOKEN_LOSS else 1.0

    def as_means(self, job: SizingJob) -> Ask:
        """The requests of a job with targets for means that stand for its own: if latencies of other batches were as
        far from their means as those of this run (at a rate, which does not fill batches: from the run's own)."""
        state = self.config.state
        reached = reached_targets(job, self.run)
        limits: dict[str, float] = {}
        for name, (mean, limit) in job.ask.times(state.ttft, state.tpot).items():
            if job.ask.rate is not None:
                mean = self.run.latency[f"{name}_s"].mean
            limits[name] = MARGIN * limit * mean / reached.get(name, mean)
        if self.missed is not None and job.ask.rate is None:
            limits |= _below_missed(job, self.missed, limits, reached)
        return replace(job.ask, **limits)


def _below_missed(
    job: SizingJob, missed: Config, limits: dict[str, float], reached: dict[str, float]
) -> dict[str, float]:
    """Limits on means below those of a batch that was run and missed: of the latencies that may have been too long, or
    of all with a target."""
    times = job.ask.times(missed.state.ttft, missed.state.tpot)
    means = {name: mean for name, (mean, _) in times.items() if name in reached}
    too_long = {name: mean for name, mean in means.items() if mean > NEAR * limits[name]}
    return {name: min(limits[name], MARGIN * mean) for name, mean in (too_long or means).items()}


def run_short(
    job: SizingJob, config: Config, replicas: int | None = None, *, seed: int = 0, times_as_long: int = 1
) -> Confirmed:
    """A short run of a configuration with so many replicas (None: as many as its means ask for)."""
    if replicas is None and job.ask.rate is not None:
        replicas = replicas_for(config, job.ask)
    size = short_run_size(job, config, replicas)
    if times_as_long > 1:
        size = replace(size, requests=times_as_long * size.requests)
    fleet = fleet_job(job, config, size, seed)
    result = run_fleet(fleet)
    grows = False
    if fleet.traffic.rate is not None:
        backlog = load_of(result)
        grows = backlog is not None and backlog.grows
    missed = missed_targets(result, fleet.targets, fleet.class_targets)
    meets = not missed and not grows
    worst = math.inf if grows else _worst(fleet, result, missed)
    return Confirmed(
        replace(config, meets=meets),
        replicas,
        simulated_run(fleet, result, meets),
        holds=meets and worst <= MARGIN,
        worst=worst,
    )


def _worst(fleet: FleetJob, result: SimulationResult, missed: dict[str, float]) -> float:
    """The latency nearest to its target or furthest above it, over the target: of all traffic and of each class. At
    least 1 where a target is missed, which is judged by counting requests; 0 without targets."""
    if not fleet.has_targets:
        return 0.0
    return max([worst_ratio(fleet, result), *missed.values()])


def simulated_run(fleet: FleetJob, result: SimulationResult, meets: bool) -> SimulatedRun:
    """The numbers of a run."""
    several = fleet.main.replicas > 1 or fleet.prefill is not None
    chips = cost_of_replicas(fleet, [pool.pool.replicas for pool in fleet.pools]).chips
    return SimulatedRun(
        replicas=fleet.main.replicas,
        requests=result.outcome.arrived,
        clients=fleet.traffic.clients or None,
        rate_per_s=fleet.traffic.rate,
        latency={name: latency_of(summary) for name, summary in result.latency.items()},
        output_tokens_per_s_per_chip=result.throughput.output_tokens_per_s / chips,
        meets_slo=meets,
        router=fleet.router if several else "",
        cached=result.cache_hit_rate,
    )


def with_other_seeds(job: SizingJob, fleet: Confirmed) -> Confirmed:
    """A run that meets a percentile by little, together with runs of other seeds: it meets it where all do. Else the
    run that missed."""
    if not fleet.config.meets or fleet.worst < 1 - CLOSE_CALL or not job.by_percentile:
        return fleet
    runs = [fleet]
    for seed in OTHER_SEEDS:
        times = SESSION_RUN_TIMES if job.session_calls else 1
        other = run_short(job, fleet.config, fleet.replicas, seed=seed, times_as_long=times)
        if not other.config.meets:
            return replace(other, holds=False)
        runs.append(other)
    return replace(fleet, run=_mean_run([run.run for run in runs]), worst=max(run.worst for run in runs))


def _mean_run(runs: Sequence[SimulatedRun]) -> SimulatedRun:
    """Runs that differ by their seed alone as one, with the means of their latencies."""
    return structs.replace(
        runs[0],
        latency={name: _mean_latency([run.latency[name] for run in runs]) for name in runs[0].latency},
        output_tokens_per_s_per_chip=sum(run.output_tokens_per_s_per_chip for run in runs) / len(runs),
        cached=sum(run.cached for run in runs) / len(runs),
        runs=len(runs),
    )


def _mean_latency(latencies: Sequence[Latency]) -> Latency:
    """The mean of each statistic; no intervals, which are of one run."""
    names = ("mean", "p50", "p90", "p95", "p99", "max")
    means = {name: sum(getattr(latency, name) for latency in latencies) / len(latencies) for name in names}
    return Latency(**means, mean_low=None, mean_high=None, p99_low=None, p99_high=None)


def reached_targets(job: SizingJob, run: SimulatedRun) -> dict[str, float]:
    """What a run reached of the latencies that have a target, in seconds at the target's statistic."""
    return {name: getattr(run.latency[f"{name}_s"], target.statistic) for name, target in job.targets.items()}


def is_short(job: SizingJob, config: Config) -> bool:
    """Whether a configuration can be run while somebody waits for an answer."""
    work = float(short_run_size(job, config).requests)
    if config.drafts:
        work *= 1 + job.ask.output / DRAFTED_TOKENS_OF_WORK
    return work <= MAX_WORK * (PERCENTILE_WORK if job.by_percentile else 1)


def confirm(job: SizingJob, chosen: Sequence[Config]) -> list[Confirmed]:
    """Some configurations, best first, as far as they hold when they are run, the best of those that do first; where
    none does, all of them, the nearest first. Of a few chips all are run, so that each has the batch it has alone.
    Nothing where that would take long."""
    if not is_short(job, chosen[0]):
        return []
    runs: list[Confirmed] = []
    as_chosen = {config.place: config for config in chosen}
    run_all = job.serving.compares_chips and len(chosen) <= FINALISTS
    for config in chosen:
        if not is_short(job, config):
            continue
        if not run_all and _is_decided(job, config, runs, as_chosen):
            break
        run = _confirm_one(job, config)
        runs.append(run)
        if run_all or not run.holds or job.ask.rate is not None or run.token_loss > 1:
            continue
        if run.config.tokens_per_chip >= NEAR * config.tokens_per_chip:  # it holds with about the batch it was to have
            break
    if any(run.config.meets for run in runs):
        return sorted(runs, key=lambda run: run.rank(job.ask))
    return sorted(runs, key=lambda run: run.worst)


def _is_decided(
    job: SizingJob, config: Config, runs: Sequence[Confirmed], as_chosen: dict[tuple[str, ...], Config]
) -> bool:
    """Whether no further configuration, of which this is the next, can come before the best of the runs."""
    best = min(runs, key=lambda run: run.rank(job.ask), default=None)
    if best is None or not best.config.meets:
        return False
    cost = best.rank(job.ask)[-2]
    if best.holds:
        expected_cost = worth(as_chosen[best.config.place], job.ask)[-2]
        # as it was expected to be, which put it before this one
        as_expected = best.token_loss == 1 and cost <= expected_cost / NEAR
        if as_expected or best.rank(job.ask)[1:] <= worth(config, job.ask):
            return True
    is_dearer = job.ask.rate is not None and cost * NEAR > worth(config, job.ask)[-2]
    return len(runs) >= FINALISTS and not is_dearer


def _confirm_one(job: SizingJob, config: Config) -> Confirmed:
    """A configuration with about the most that holds when it is run: load, replicas, or batch."""
    if isinstance(config, PooledConfig):
        return confirm_pools(job, config)
    if job.ask.rate is not None:
        return confirm_fleet(job, config)
    return confirm_batch(job, config)


def in_order(chosen: Sequence[Config], runs: Sequence[Confirmed]) -> list[Config]:
    """Configurations as they were run, those that were not after the first, and last those whose run missed."""
    as_run = {run.config.place: run.config for run in runs}
    rest = [as_run.get(config.place, config) for config in chosen if config.place != runs[0].config.place]
    return [runs[0].config, *sorted(rest, key=lambda config: not config.meets)]


def confirm_pools(job: SizingJob, config: PooledConfig) -> Confirmed:
    """Pools at as much of the rate that they are sized for as holds when they are run; of a rate that was asked for,
    at all of it."""
    run = run_short(job, config)
    if job.ask.rate is not None:
        return run
    for load in POOL_LOADS:
        if run.holds:
            break
        run = run_short(job, as_config(replace(config.pools, offered=load * config.pools.requests)))
    return run


def confirm_fleet(job: SizingJob, config: Config) -> Confirmed:
    """A configuration with about the fewest replicas, from those that its means ask for, that hold the rate when they
    are run; in whole slices where one was named. Where no fleet of it holds, the run that misses its targets least."""
    runs = FleetRuns(job, config, replicas_of_slice(job, config))
    enough = _bracket(runs)
    if enough is not None:
        enough = _bisect(runs, enough)
        fleet = _confirm_with_seeds(runs, enough)
        if fleet is not None:
            return fleet
    nearest = min(runs.misses, key=lambda miss: (round(miss.worst, RATIO_DIGITS), miss.replicas or 1))
    # one that meets its targets without the margin does so with every seed, or misses
    return with_other_seeds(job, nearest)


def replicas_of_slice(job: SizingJob, config: Config) -> int:
    """Replicas that one slice holds where a slice was named, which fleets take whole; 1 where none was."""
    return max(1, dict(job.ask.rented).get(config.piece.chip.name, 0) // config.chips)


@dataclass
class FleetRuns:
    """The fleets of a configuration that were run and missed; `whole_slice` is the fewest replicas that are added."""

    job: SizingJob
    config: Config
    whole_slice: int
    tries: int = 0
    misses: list[Confirmed] = field(default_factory=list[Confirmed])

    def run(self, replicas: float | None = None) -> Confirmed | None:
        """The run of so many replicas (None: of those that its means ask for), where it holds; what misses is kept."""
        self.tries += 1
        whole = None
        if replicas is not None:
            whole = self.in_slices(replicas)
        fleet = run_short(self.job, self.config, whole)
        if fleet.holds:
            return fleet
        self.misses.append(fleet)
        return None

    def in_slices(self, replicas: float) -> int:
        """So many replicas, rounded up to whole slices."""
        return math.ceil(replicas / self.whole_slice - 1e-9) * self.whole_slice

    @property
    def missing(self) -> int:
        """The replicas of the last fleet that missed."""
        return self.misses[-1].replicas or 1


def _bracket(runs: FleetRuns) -> Confirmed | None:
    """The first fleet that holds with one seed, of those that grow ever faster; None where none does."""
    enough = runs.run()
    growth = FIRST_GROWTH
    while enough is None and runs.tries < MAX_TRIES:
        if len(runs.misses) == 2 and _misses_alone(runs.job, runs.misses[-1]):
            return None
        growth *= 2
        enough = runs.run(runs.missing * (1 + growth))
    return enough


def _bisect(runs: FleetRuns, enough: Confirmed) -> Confirmed:
    """About the smallest fleet that holds with one seed, between the largest that missed and one that held."""
    while runs.misses and runs.tries < MAX_TRIES:
        replicas = enough.replicas or 1
        if replicas <= max(runs.missing / NEAR, runs.missing + runs.whole_slice):
            break
        enough = runs.run((runs.missing + replicas) / 2) or enough
    return enough


def _confirm_with_seeds(runs: FleetRuns, enough: Confirmed) -> Confirmed | None:
    """The first fleet, of this size or a little larger ones, that holds with every seed; None where none of them does.
    What misses with any seed is among the misses."""
    fleet: Confirmed | None = enough
    replicas = enough.replicas or 1
    for attempt in range(MAX_TRIES):
        if attempt > 0:
            replicas = max(runs.in_slices(replicas / NEAR), replicas + runs.whole_slice)
            fleet = runs.run(replicas)
        if fleet is None:
            continue
        fleet = with_other_seeds(runs.job, fleet)
        if fleet.holds:
            return fleet
        runs.misses.append(fleet)
    return None


def _misses_alone(job: SizingJob, fleet: Confirmed) -> bool:
    """Whether a fleet misses its targets when requests are nearly alone in it, so that no larger one holds."""
    if math.isinf(fleet.worst):
        return False
    return not run_short(job, fleet.config, NEARLY_ALONE_TIMES * (fleet.replicas or 1)).holds


def confirm_batch(job: SizingJob, config: Config) -> Confirmed:
    """A plan with about the largest batch up to a configuration's that holds when it is run; where none does, the last
    that was run."""
    last = run_short(job, config)
    best: Confirmed | None = None
    missed: Config | None = None
    missed_batch = config.batch
    # invariant: the largest batch that holds is at least that of `best` and below `missed_batch`
    for _ in range(MAX_TRIES - 1):
        if last.holds:
            best = last
        else:
            missed_batch, missed = last.config.batch, last.config
        held_batch = 0 if best is None else best.config.batch
        if job.serving.batch is not None or held_batch == missed_batch or held_batch > NEAR * (missed_batch - 1):
            break
        smaller = _met_below(job, last, missed_batch - 1)
        if smaller is None or NEAR * smaller.batch < held_batch:
            break
        last = run_short(job, smaller)
    if last.holds or best is None:
        best = last
    return replace(best, missed=missed)


def _met_below(job: SizingJob, last: Confirmed, max_batch: int) -> Config | None:
    """The largest batch of a plan, up to `max_batch`, that would meet the targets if its latencies were as far from
    their means as those of the last run; where none would, a quarter of its batch."""
    quarter = last.config.batch // 4
    grid = {math.ceil(max_batch * part / BATCH_GRID) for part in range(1, BATCH_GRID + 1)} | {1, quarter}
    stricter = replace(job.serving, ask=last.as_means(job))
    configs = at_batches(stricter, last.config, sorted(grid - {0}))
    met = [config for config in configs if config.meets] or [config for config in configs if config.batch <= quarter]
    return max(met, key=lambda config: config.batch, default=None)
