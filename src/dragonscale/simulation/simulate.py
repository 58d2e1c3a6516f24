"""The entry point: `simulate` runs traffic through a fleet and reports the result."""

import gc
from collections.abc import Callable

from dragonscale.simulation.fleet import Fleet
from dragonscale.simulation.loop import Simulation
from dragonscale.simulation.replica import Replica
from dragonscale.simulation.result import (
    BY_REQUEST,
    ClassResult,
    Outcome,
    PoolUse,
    ReplicaUse,
    SimulationOptions,
    SimulationResult,
    Tally,
    Throughput,
)
from dragonscale.simulation.traffic import TrafficSource


def simulate(
    fleet: Fleet,
    traffic: TrafficSource,
    options: SimulationOptions = SimulationOptions(),  # noqa: B008  frozen
    progress: Callable[[int], None] | None = None,
) -> SimulationResult:
    """Run traffic through a fleet. The same arguments give the same result, always."""
    run = Simulation(fleet, traffic, options)
    collects = gc.isenabled()
    gc.disable()  # a run creates millions of objects without cycles; looking for cycles takes a tenth of its time
    try:
        run.go(progress)
    finally:
        if collects:
            gc.enable()
    return report(run)


def _over(value: float, by: float) -> float:
    """A ratio; 0 if there is nothing to divide by."""
    return value / by if by else 0.0


def _throughput(run: Simulation) -> Throughput:
    """Rates from the first measured arrival to the first that is not measured any more, or to the end."""
    tally = run.tally
    if run.kinds:  # each class has its own targets
        tally.good = sum(kind.good for kind in run.kinds)
    start = run.marks.get(tally.first, (0.0, 0.0, 0.0, 0.0))
    end = run.marks.get(tally.last, run.mark())
    # a burst: none of what came meanwhile had ended by then, so the rates are those of the whole run
    window = (start, end)
    if 0 < end[0] - start[0] < tally.times["e2e_s"].summary().mean.value:
        window = ((0.0, 0.0, 0.0, 0.0), run.mark())
    seconds, finished, prompts, outputs = (late - early for early, late in zip(*window, strict=True))
    good = _over(tally.good, tally.measured)
    # arrivals end before the run does: their rate is over the time in which they came
    until = tally.last_arrival_s + run.fleet.overhead_s
    if tally.last in run.marks:
        until = run.marks[tally.last][0]
    arrivals = min(tally.arrived - 1, tally.last) - tally.first
    arrived_per_s = 0.0
    if until > start[0]:
        arrived_per_s = max(arrivals / (until - start[0]), 0.0)
    return Throughput(
        seconds=seconds,
        arrived_per_s=arrived_per_s,
        requests_per_s=_over(finished, seconds),
        input_tokens_per_s=_over(prompts, seconds),
        output_tokens_per_s=_over(outputs, seconds),
        goodput_requests_per_s=_over(finished, seconds) * good,
        good_share=_over(tally.good, tally.measured + tally.turned_away),
    )


def _use(replica: Replica, pool: str) -> ReplicaUse:
    """One replica's counters as a record."""
    sums = replica.shared.log.of(replica.index)
    return ReplicaUse(
        index=replica.index,
        pool=pool,
        busy_s=sums.busy_s,
        prompt_s=sums.prompt_s,
        prompt_iterations=round(sums.prompt_iterations),
        iterations=round(replica.iterations),
        mean_batch=_over(sums.places, replica.iterations),
        prefilled_tokens=round(replica.prefilled),
        output_tokens=round(replica.emitted),
        pages_in_use=replica.pages.capacity - replica.pages.room,
        pages_idle=replica.pages.idle_pages,
        last_s=replica.due,
    )


def _met(tally: Tally) -> dict[str, float]:
    """The fraction of requests that met each target, and of all gaps between tokens those that met theirs."""
    requests = tally.measured + tally.turned_away
    met = {name: _over(count, requests) for name, count in tally.met.items()}
    if "itl_s" in met:
        met["itl_s"] = _over(tally.short_gaps, tally.gaps.count)
    return met


def _class(tally: Tally) -> ClassResult:
    """The counters of one class of traffic as a record."""
    times, requests = tally.times, tally.measured + tally.turned_away
    return ClassResult(
        arrived=tally.arrived,
        finished=tally.finished,
        refused=sum(tally.refused.values()),
        measured=tally.measured,
        good_share=_over(tally.good, requests),
        input_tokens=tally.input_tokens,
        output_tokens=tally.output_tokens,
        latency={name: times[name].summary() for name in BY_REQUEST},
        met={name: _over(count, requests) for name, count in tally.met.items()},
    )


def _pool_use(replicas: list[Replica], up_s: float, run_s: float) -> PoolUse:
    """What a pool's replicas were used for; `up_s` is the sum of the seconds that they were up."""
    if not replicas:  # a pool that scales to zero and was never used
        return PoolUse(0.0, 0.0, 0.0)
    scheduler, tally, batch = replicas[0].scheduler, replicas[0].tally, _mean_batch(replicas)
    sums = [replica.shared.log.of(replica.index) for replica in replicas]
    # a replica in which no request ended has no column
    columns = [replica.index for replica in replicas if replica.index < tally.by_replica.shape[1]]
    ended, ttft_s, tpot_s = tally.by_replica[:, columns].sum(1).tolist()
    prefilled = sum(replica.prefilled for replica in replicas)
    tokens_per_iteration = _over(prefilled, sum(row.prompt_iterations for row in sums))
    return PoolUse(
        prompt_share=_over(sum(row.prompt_s for row in sums), sum(row.busy_s for row in sums)),
        places_share=batch / scheduler.sequences,
        budget_share=min(tokens_per_iteration / scheduler.tokens, 1.0),
        replicas=_over(up_s, run_s),
        mean_batch=batch,
        kv_share=_over(sum(row.cache_s for row in sums), up_s),
        ttft_s=_over(ttft_s, ended),
        tpot_s=_over(tpot_s, ended),
    )


def _mean_batch(replicas: list[Replica]) -> float:
    """Mean places taken in an iteration."""
    places = sum(replica.shared.log.of(replica.index).places for replica in replicas)
    return _over(places, sum(replica.iterations for replica in replicas))


def report(run: Simulation) -> SimulationResult:
    """The result of a run that is over."""
    tally, series, end = run.tally, run.series, run.now
    replicas = [replica for _, replica in run.places]
    decoding = [replica for replica in replicas if not replica.prefills]
    up = series.area("up")
    points = {
        "pages": series.means("pages", end, "up"),
        "busy": series.means("busy", end, "up"),
        "running": series.means("running", end),
        "waiting": series.means("waiting", end),
        "replicas": series.means("up", end),
    }
    return SimulationResult(
        outcome=Outcome(
            *(tally.arrived, tally.finished, dict(tally.refused), run.outstanding),
            *(tally.preempted, tally.retried, tally.failures),
        ),
        seconds=end,
        latency={name: times.summary() for name, times in tally.times.items()},
        curves={name: times.curve() for name, times in tally.times.items()},
        throughput=_throughput(run),
        utilisation=_over(series.area("busy"), up),
        kv_occupancy=_over(series.area("pages"), up),
        mean_batch=_mean_batch(decoding),
        mean_running=_over(series.area("running"), end),
        mean_waiting=_over(series.area("waiting"), end),
        cache_hit_rate=_over(tally.cached_tokens, tally.prompt_tokens),
        host_hit_rate=_over(tally.host_tokens, tally.prompt_tokens),
        adapter_loads=tally.swaps,
        tokens_per_verify_step=_over(tally.verify_tokens, tally.verify_steps),
        replicas=tuple(_use(replica, group.name) for group, replica in run.places),
        use={group.name: _pool_use(group.replicas, group.up_s, end) for group in run.groups},
        series=points,
        checkpoints=tuple(run.checkpoints),
        departures=tuple(run.departures),
        served=tuple(tally.served or ()),
        met=_met(tally),
        watched=run.shared.watch.tracks(end) if run.shared.watch is not None else {},
        trace=run.shared.recorder.trace(points) if run.shared.recorder is not None else {},
        classes=tuple(map(_class, run.kinds)),
        input_tokens=tally.input_tokens,
        output_tokens=tally.output_tokens,
    )
