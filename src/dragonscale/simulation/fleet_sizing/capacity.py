"""What would hold: the largest rate of a fleet, and what to change so that it holds the rate that was asked for; both
are found by running them.

The same fleet gets the same requests at other rates (a trace at other speeds), without failures and with all replicas
that it may grow to. A rate is held if the backlog does not grow and the targets are met, if there are some.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from dragonscale.simulation.backlog import Backlog, load_of, saturated_per_s
from dragonscale.simulation.fleet import Fleet
from dragonscale.simulation.fleet_sizing.fleet_job import NO_CHANGE, FleetChange, FleetJob
from dragonscale.simulation.fleet_sizing.missed_targets import missed_targets, worst_ratio
from dragonscale.simulation.fleet_sizing.rate_search import RATE_TOLERANCE, largest_rate
from dragonscale.simulation.result import SimulationOptions, SimulationResult
from dragonscale.simulation.sessions import Mixed
from dragonscale.simulation.simulate import simulate
from dragonscale.simulation.traffic import OpenLoop, Replay, TrafficSource

# Requests of one run, at least and (unless more are under way at once) at most.
MIN_REQUESTS = 3_000
MAX_REQUESTS = 20_000

# Requests of one run over those that are under way at once: batches must turn over several times.
TURNOVERS = 8

# Part of what a fleet serves while requests wait at which a run must hold for that to be believed.
BELOW_SATURATION = 0.96

# Runs that look for the largest rate.
MAX_RATE_RUNS = 9

# Part of the asked rate at which requests are nearly alone, requests that are under way at once then at most, and how
# many of them show what a request takes that meets no other.
LONE_RATE_SHARE = 1 / 200
LONE_IN_FLIGHT = 1 / 50
LONE_REQUESTS = 300

# Part of the asked rate that a search begins at, at least.
MIN_FIRST_RATE = 1 / 20

# Part of the rate that is served when requests queue at which a search begins.
FIRST_RATE_SHARE = 0.6

# Part of what replicas can serve that they are loaded with where no target says how long requests may wait.
LOAD_WITHOUT_TARGETS = 0.85

# Larger fleets of one pool are run as one of this size with the same load on each replica.
MAX_RUN_REPLICAS = 4

# Runs that look for the fewest replicas, of both pools at once.
MAX_SIZE_RUNS = 8

# A setting is tried with more replicas if it is so many times better than the one asked for.
MIN_SETTING_GAIN = 1.1

# Runs of a whole changed job, and the next size of a pool that was short in one over the last.
MAX_WHOLE_RUNS = 3
WHOLE_RUN_GROWTH = 1.1

# The next size of a pool that is short, and of one that is not, over the last.
SHORT_GROWTH = 1.25
ENOUGH_SHRINKING = 0.9

# Tokens of an iteration with which those that decode wait little for prompts: what vLLM's guide to tuning names for
# short gaps between tokens, and its first default, which had the shortest ones on an A100 (vllm-project/vllm#4580).
SMALL_BUDGETS = (2048, 512)

# Tokens of an iteration of one rank with which prompts of any length run near their full rate.
LARGE_BUDGET = 8192

# Above this share places, the token budget or the KV cache limit what replicas take.
FULL_SHARE = 0.9

# Part of the queueing from which it is a pool's own.
HALF_OF_QUEUE = 0.5


@dataclass(frozen=True)
class Trial:
    """One run at a rate: whether the backlog stays (`holds`), and the targets it misses, with their ratios."""

    rate: float
    result: SimulationResult
    load: Backlog | None
    holds: bool
    missed: dict[str, float]
    worst: float = math.inf
    """The statistic nearest to its target or furthest above it, over the target; infinite where the queue grows."""

    @property
    def good(self) -> bool:
        """Whether the rate is held and all targets are met."""
        return self.holds and not self.missed


@dataclass(frozen=True)
class PoolSizes:
    """Replicas of the main pool, and of the prefill pool (0 where there is none)."""

    replicas: int
    prefills: int = 0


@dataclass(frozen=True)
class FleetRemedy:
    """A change with which the asked rate holds: the sizes of the pools and, where it was run, its run. None: the fleet
    as it is asked for holds."""

    sizes: PoolSizes
    confirmed: Trial | None
    change: FleetChange


@dataclass(frozen=True)
class FleetCapacity:
    """What was found by running: the largest rate that holds (None: none does), its run, and what stops larger ones
    (`queue`, `deadline` or a latency); and what holds the asked rate (None: nothing that was tried)."""

    rate: float | None
    trial: Trial | None
    limit: str
    remedy: FleetRemedy | None
    runs: int
    requests: int
    """Of each run."""

    @property
    def confirmed(self) -> Trial | None:
        """The run of what holds the asked rate."""
        return None if self.remedy is None else self.remedy.confirmed

    @property
    def change(self) -> FleetChange:
        """What to change so that the asked rate holds."""
        return NO_CHANGE if self.remedy is None else self.remedy.change


class Trials:
    """Runs of a job's fleet at other rates and sizes, counted. `in_flight` is how many requests the fleet has at a
    time."""

    def __init__(self, job: FleetJob, in_flight: float, progress: Callable[[int, int], None] | None = None) -> None:
        assert job.traffic.rate is not None
        self.job = job
        self.progress = progress
        self.runs = 0
        self.rate = job.traffic.rate
        pool = job.fleet.pool
        self.replicas = pool.replicas
        if pool.autoscale is not None:
            self.replicas = pool.autoscale.most
        self.prefills = job.prefills
        # whether trials differ from the job in nothing but the rate: nothing scales or dies
        self.is_constant = pool.autoscale is None and not job.fleet.failures and job.fleet.faults is None
        self.in_flight_per_replica = in_flight / self.replicas
        half = job.source.requests / 2
        self.requests = int(max(min(max(half, MIN_REQUESTS), MAX_REQUESTS), TURNOVERS * in_flight))

    def run(self, rate: float, requests: int = 0) -> Trial:
        """The same requests at a rate, so many of them (0: as usual), with nothing that fails or scales."""
        fleet = self.job.fleet
        constant = replace(fleet.pool, replicas=self.replicas, autoscale=None)
        return self.judge(replace(fleet, pool=constant, failures=(), faults=None), rate, requests or self.requests)

    def sized(self, sizes: PoolSizes) -> Trial:
        """The asked rate to pools of other sizes: of a fleet that grows, at its beginning."""
        fleet = self.job.fleet
        rule = fleet.pool.autoscale
        replicas = sizes.replicas
        run_replicas = replicas
        if self.is_constant and fleet.prefill is None and not fleet.others:
            run_replicas = min(replicas, max(MAX_RUN_REPLICAS, self.replicas))
        if rule is not None:
            rule = replace(rule, least=replicas, most=max(rule.most, replicas))
        resized = replace(
            fleet,
            pool=replace(fleet.pool, replicas=run_replicas, autoscale=rule),
            prefill=fleet.prefill and replace(fleet.prefill, replicas=sizes.prefills),
            failures=tuple(
                failure for failure in fleet.failures if failure.pool != "serve" or failure.replica < replicas
            ),
        )
        # where replicas start or die, the time at which they do is a part of the run, which is then run whole
        requests = self.job.source.requests
        if self.is_constant:
            requests = int(max(self.requests, TURNOVERS * self.in_flight_per_replica * run_replicas))
        return self.judge(resized, self.rate * run_replicas / replicas, requests)

    def with_setting(self, change: FleetChange) -> "Trials":
        """Runs of the same replicas with another setting."""
        return Trials(self.job.changed(change), self.in_flight_per_replica * self.replicas, self.progress)

    def confirm(self, change: FleetChange) -> Trial:
        """The job with a change, run whole."""
        job = self.job.changed(change)
        return self._judged(job.fleet, self.rate, job.source, job.options)

    def judge(self, fleet: Fleet, rate: float, requests: int) -> Trial:
        """A fleet run with the same requests at a rate, so many of them."""
        source = faster(self.job.source, rate / self.rate, requests)
        return self._judged(fleet, rate, source, replace(self.job.options, cooldown=0.0))

    def _judged(self, fleet: Fleet, rate: float, source: TrafficSource, options: SimulationOptions) -> Trial:
        result = simulate(fleet, source, options)
        self.runs += 1
        if self.progress is not None:
            self.progress(min(self.runs, MAX_RATE_RUNS), MAX_RATE_RUNS)
        load = load_of(result, scaled=fleet.pool.autoscale is not None)
        missed = missed_targets(result, self.job.targets, self.job.class_targets)
        holds = load is not None and not load.grows
        worst = math.inf
        if holds:
            worst = worst_ratio(self.job, result)
        return Trial(rate, result, load, holds, missed, worst)


def faster(source: TrafficSource, factor: float, requests: int) -> TrafficSource:
    """The same requests so many times as fast, and so many of them."""
    if isinstance(source, Replay):
        return replace(source.first(requests), speed=source.speed * factor)
    if isinstance(source, Mixed):
        return source.faster(factor, requests)
    assert isinstance(source, OpenLoop)
    arrivals = source.arrivals
    scaled = replace(arrivals, rate=arrivals.rate * factor)  # pyright: ignore  every kind with a rate is a dataclass
    return replace(source, arrivals=scaled, requests=requests)


def find_capacity(
    job: FleetJob, result: SimulationResult, load: Backlog, progress: Callable[[int, int], None] | None = None
) -> FleetCapacity:
    """The largest rate that the fleet of a run holds, and what holds the asked one: the first change that holds when
    the changed job is run whole."""
    trials = Trials(job, result.mean_running, progress)
    missed = missed_targets(result, job.targets, job.class_targets)
    failed = load.grows or bool(missed)
    best, above = _largest(trials, result, load, failed)
    if best is None:
        limit = next(iter(above.missed if above is not None else missed), "queue")
        return FleetCapacity(None, above, limit, remedy=None, runs=trials.runs, requests=trials.requests)
    limit = "queue"
    if above is not None and above.holds:
        limit = next(iter(above.missed), "queue")
    short = short_pools(job, result, load.grows, missed) if failed else None
    remedy = _what_holds(trials, best, result, load, missed, short)
    return FleetCapacity(best.rate, best, limit, remedy=remedy, runs=trials.runs, requests=trials.requests)


@dataclass(frozen=True)
class _TriedSetting:
    """A setting of the same replicas that does not hold by itself: its run, and how much better than the job's it
    is."""

    change: FleetChange
    trials: Trials
    trial: Trial
    gain: float


def _what_holds(
    trials: Trials,
    best: Trial,
    result: SimulationResult,
    load: Backlog,
    missed: dict[str, float],
    short: set[int] | None,
) -> FleetRemedy | None:
    """What holds the asked rate: a setting of the same replicas, which costs nothing; a setting that helps, with more
    of them; or more alone. `short` are the pools that were short in the run, None where it held."""
    tried: list[_TriedSetting] = []
    settings: Iterable[FleetChange] = ()
    if short is not None:
        settings = helpful_settings(trials.job, result, missed)
    for change in settings:
        changed = trials.with_setting(change)
        trial = changed.judge(changed.job.fleet, changed.rate, changed.requests)
        trials.runs += 1
        if trial.good and (confirmed := trials.confirm(change)).good:
            return FleetRemedy(PoolSizes(trials.replicas, trials.prefills), confirmed, change)
        tried.append(_TriedSetting(change, changed, trial, _gain(trial, load, missed)))
    if tried:
        setting = max(tried, key=lambda setting: setting.gain)  # the first of those that help alike
        largest = None
        if setting.gain > MIN_SETTING_GAIN and setting.trial.load is not None:
            largest, _ = _largest(setting.trials, setting.trial.result, setting.trial.load, failed=True)
        remedy = None
        if largest is not None and largest.rate > best.rate:
            sizes, sized = _fewest(setting.trials, largest, short)
            remedy = confirmed_sizes(setting.trials, setting.change, sizes, sized)
        trials.runs += setting.trials.runs - 1  # its first run is counted already
        if remedy is not None:
            return remedy
    sizes, sized = _fewest(trials, best, short)
    return confirmed_sizes(trials, NO_CHANGE, sizes, sized)


def _largest(
    trials: Trials, result: SimulationResult, load: Backlog, failed: bool
) -> tuple[Trial | None, Trial | None]:
    """The run at the largest rate that holds, and one at a larger rate that does not."""
    if not trials.job.has_targets:
        return _largest_served(trials, result, load)
    return _largest_within_targets(trials, result, load, failed)


def _gain(trial: Trial, load: Backlog, missed: dict[str, float]) -> float:
    """How much more a run with another setting serves where a queue grows, or how much nearer it is to the target that
    is missed most."""
    if load.grows:
        if trial.load is None:
            return 0.0
        return trial.load.served_per_s / max(load.served_per_s, 1e-9)
    name = next(iter(missed))
    return missed[name] / trial.missed.get(name, 1.0)


def confirmed_sizes(
    trials: Trials, setting: FleetChange, sizes: PoolSizes | None, trial: Trial | None
) -> FleetRemedy | None:
    """Pools that hold when the changed job is run whole: those that were found by the shorter run of `trial`, or a
    little larger; None where none of them does."""
    if sizes is None:
        return None
    if trial is None:  # nothing was run: the fleet as it was asked for
        return FleetRemedy(sizes, None, size_change(trials.job, NO_CHANGE, sizes))
    for _ in range(MAX_WHOLE_RUNS):
        change = size_change(trials.job, setting, sizes)
        whole = trials.confirm(change)
        if whole.good:
            return FleetRemedy(sizes, whole, change)
        short = short_pools(trials.job, whole.result, not whole.holds, whole.missed)
        if MAIN in short:
            sizes = replace(sizes, replicas=_grown(sizes.replicas))
        if PREFILL in short:
            sizes = replace(sizes, prefills=_grown(sizes.prefills))
    return None


def _grown(size: int) -> int:
    """The next size of a pool that was short in a whole run."""
    return max(size + 1, math.ceil(WHOLE_RUN_GROWTH * size))


def find_by_deadline(job: FleetJob, result: SimulationResult) -> FleetCapacity | None:
    """The fewest replicas that end everything by the deadline, by running them: no more than a run says they need."""
    if not result.outcome.finished:
        return None
    replicas = job.fleet.pool.replicas
    seconds = result.seconds
    runs = 0
    remedy: FleetRemedy | None = None
    for _ in range(MAX_SIZE_RUNS):
        # work is taken to take as long in all, however many share it
        wanted = max(math.ceil(replicas * seconds / job.deadline_s - 1e-9), 1)
        if seconds > job.deadline_s:
            wanted = max(wanted, replicas + 1)
        if (remedy is not None and wanted >= remedy.sizes.replicas) or wanted == replicas:
            break
        replicas = wanted
        fleet = replace(job.fleet, pool=replace(job.fleet.pool, replicas=replicas, autoscale=None))
        run = simulate(fleet, job.source, job.options)
        runs += 1
        seconds = run.seconds
        if seconds <= job.deadline_s:
            trial = Trial(rate=0.0, result=run, load=None, holds=True, missed={})
            remedy = FleetRemedy(PoolSizes(replicas), trial, FleetChange(replicas=replicas))
    if remedy is None:
        return None
    return FleetCapacity(None, None, "deadline", remedy=remedy, runs=runs, requests=job.source.requests)


def size_change(job: FleetJob, setting: FleetChange, sizes: PoolSizes) -> FleetChange:
    """A change to pools of these sizes; where the fleet grows, to so many replicas at its beginning."""
    rule = job.fleet.pool.autoscale
    if rule is not None:
        return replace(setting, autoscale=replace(rule, least=sizes.replicas, most=max(rule.most, sizes.replicas)))
    return replace(setting, replicas=sizes.replicas, prefill_replicas=sizes.prefills or None)


def helpful_settings(job: FleetJob, result: SimulationResult, missed: dict[str, float]) -> Iterator[FleetChange]:
    """Settings that may help the same replicas, by what the run shows: more places where they are taken and the cache
    has room, another router where requests take turns, a token budget that prompts fill (or, for tokens that wait for
    prompts, a smaller one)."""
    pool = job.fleet.pool
    scheduling = job.deployment.engine.scheduling
    prefilling = result.use[job.prefilling_pool]
    # every sequence that decodes needs a token of an iteration, so what was asked for bounds the other
    min_budget = job.limits.max_seqs or 1
    max_places = job.limits.token_budget or math.inf
    if result.use["serve"].places_share > FULL_SHARE and result.kv_occupancy < FULL_SHARE / 2:
        for places in (2 * scheduling.max_sequences, 4 * scheduling.max_sequences):
            if places <= max_places:
                yield FleetChange(max_seqs=places)
    if pool.router == "round_robin" and pool.replicas > 1:
        yield FleetChange(router="least_loaded")
    if scheduling.scheduler != "chunked" or job.fleet.prefill is not None:
        return
    if "itl_s" in missed:
        for tokens in SMALL_BUDGETS:
            if min_budget <= tokens < scheduling.max_tokens:
                yield FleetChange(token_budget=tokens)
    elif prefilling.budget_share > FULL_SHARE and max(scheduling.max_tokens, min_budget - 1) < LARGE_BUDGET:
        yield FleetChange(token_budget=LARGE_BUDGET)


# The two pools that a search sizes at once, as indices.
MAIN = 0
PREFILL = 1


def prefill_queue(job: FleetJob, result: SimulationResult) -> float:
    """The part of the time that requests queue before their prefill; the rest is for a place to decode in. (That a
    prefill pool is always busy says little: iterations take as many prompts as there are.)"""
    before_prefill_s = result.latency["queue_s"].mean.value - job.fleet.overhead_s
    queued_s = max(result.mean_waiting * result.seconds, 1e-9)  # of all requests together
    return before_prefill_s * result.outcome.finished / queued_s


def short_pools(job: FleetJob, result: SimulationResult, grows: bool, missed: dict[str, float]) -> set[int]:
    """The pools (`MAIN`, `PREFILL`) that have too few replicas: the first token comes from the prefill pool, and a
    queue that grows is its own where most of it is before a prefill."""
    if job.fleet.prefill is None:
        return {MAIN} if grows or missed else set()
    short: set[int] = set()
    if grows and prefill_queue(job, result) > HALF_OF_QUEUE:
        short.add(PREFILL)
    elif grows:
        short.add(MAIN)
    # a whole request is late because of its first token where that takes most of its time
    late_first_token = result.latency["ttft_s"].mean.value > result.latency["e2e_s"].mean.value / 2
    for name in missed:
        is_prefill = name == "ttft_s" or (name == "e2e_s" and late_first_token)
        short.add(PREFILL if is_prefill else MAIN)
    return short


def _largest_served(trials: Trials, result: SimulationResult, load: Backlog) -> tuple[Trial | None, Trial | None]:
    """A run just below what the fleet serves while requests wait, which holds, and one above it that does not."""
    rate = saturated_per_s(result) if load.grows and trials.is_constant else None
    high: Trial | None = None
    tried_rate = trials.rate
    if not load.grows:
        tried_rate *= 2
    while rate is None and trials.runs < MAX_RATE_RUNS - 3:
        high = trials.run(tried_rate)
        if not high.holds:
            rate = saturated_per_s(high.result)
        tried_rate *= 2
    while rate is not None and trials.runs < MAX_RATE_RUNS - 2:
        trial = trials.run(BELOW_SATURATION * rate)
        if trial.good:
            return replace(trial, rate=rate), high
        rate, high = rate * RATE_TOLERANCE**-2, trial
    return None, high


def _largest_within_targets(
    trials: Trials, result: SimulationResult, load: Backlog, failed: bool
) -> tuple[Trial | None, Trial | None]:
    """The run at the largest rate that meets the targets, and one at a larger rate that does not."""
    asked_rate = trials.rate
    latency = result.latency
    service_s = max(latency["e2e_s"].mean.value - latency["queue_s"].mean.value, 1e-9)
    lone = trials.run(min(LONE_RATE_SHARE * asked_rate, LONE_IN_FLIGHT / service_s), LONE_REQUESTS)
    if lone.missed:  # what requests miss that are nearly alone, they miss at any rate
        return None, lone
    top = asked_rate if failed and trials.is_constant else math.inf
    if not failed:
        first_rate = 2.0 * asked_rate
    elif trials.is_constant:
        # a short run may have served nothing within its window, and a rate of zero is none
        served = max(load.served_per_s / load.arrived_per_s, MIN_FIRST_RATE)
        first_rate = FIRST_RATE_SHARE * served * asked_rate
    else:
        first_rate = asked_rate
    low, high = largest_rate(trials.run, first_rate, MAX_RATE_RUNS - 2 - trials.runs, top)
    return low or lone, high


def _fewest(trials: Trials, best: Trial, short: set[int] | None) -> tuple[PoolSizes | None, Trial | None]:
    """The fewest replicas of each pool that hold the asked rate, and their run. Pools are searched at once: each run
    says of both whether they are short. `short` are those that were in the run as asked; None if it held."""
    has_targets = trials.job.has_targets
    # over what each replica is good for
    load = trials.rate / best.rate
    if not has_targets:
        load /= LOAD_WITHOUT_TARGETS
    main_pool = trials.job.fleet.pool
    current = [max(main_pool.replicas, 1), trials.prefills]  # one that scales to zero begins with none
    enough = [max(math.ceil(count * load - 1e-9), 1) for count in (trials.replicas, trials.prefills)]
    best_sizes: PoolSizes | None = None
    if short is None:
        best_sizes = PoolSizes(current[MAIN], current[PREFILL])
        sizes = [min(pair) for pair in zip(current, enough, strict=True)]
        low, high = [0, 0], [float(count) for count in current]
    else:
        sizes, low = list(current), [0, 0]
        for pool in short:
            sizes[pool] = max(enough[pool], current[pool] + 1)
            low[pool] = current[pool]
        high = [math.inf, math.inf]
    if not trials.prefills:
        sizes[PREFILL] = 0
        high[PREFILL] = 0
    best_trial: Trial | None = None
    # invariant: each pool is short with `low` replicas and was not with `high`
    for _ in range(MAX_SIZE_RUNS):
        if short is None and sizes == current:
            break
        trial = trials.sized(PoolSizes(sizes[MAIN], sizes[PREFILL]))
        lacking = short_pools(trials.job, trial.result, not trial.holds, trial.missed)
        if trial.good:
            best_sizes, best_trial = PoolSizes(sizes[MAIN], sizes[PREFILL]), trial
        for pool in (MAIN, PREFILL):
            if pool in lacking:
                low[pool] = max(low[pool], sizes[pool])
            elif PREFILL not in lacking:  # a prefill pool that is short keeps requests from the other
                high[pool] = min(high[pool], sizes[pool])
        next_sizes = [_next_size(low[pool], high[pool], sizes[pool], pool in lacking) for pool in (MAIN, PREFILL)]
        if next_sizes == sizes or (trial.good and not has_targets):
            break
        sizes = next_sizes
    return best_sizes, best_trial


def _next_size(low: int, high: float, size: int, short: bool) -> int:
    """The next size of a pool to try, above those that are short and below the fewest that were not."""
    if math.isinf(high) and not short:
        return size
    if math.isinf(high):
        return max(low + 1, math.ceil(size * SHORT_GROWTH))
    if high - low <= 1:
        return int(high)
    return max((low + int(high)) // 2, math.ceil(ENOUGH_SHRINKING * high) - 1)
