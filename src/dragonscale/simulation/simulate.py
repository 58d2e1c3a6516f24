"""The entry point: a fleet under traffic gives a result."""

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
    gc.disable()  # a run makes millions of objects and no cycles of them: looking for some takes a tenth of its time
    try:
        run.go(progress)
    finally:
        if collects:
            gc.enable()
    return report(run)


def _over(value: float, by: float) -> float:
    return value / by if by else 0.0


def _throughput(run: Simulation) -> Throughput:
    """Rates from the first measured arrival to the first that is not measured any more, or to the end."""
    tally = run.tally
    if run.kinds:  # each by its own targets
        tally.good = sum(kind.good for kind in run.kinds)
    start = run.marks.get(tally.first, (0.0, 0.0, 0.0, 0.0))
    end = run.marks.get(tally.last, run.mark())
    seconds, finished, prompts, outputs = (late - early for early, late in zip(start, end, strict=True))
    good = _over(tally.good, tally.measured)
    until = run.marks[tally.last][0] if tally.last in run.marks else tally.last_arrival_s + run.fleet.overhead_s
    came = min(tally.arrived - 1, tally.last) - tally.first
    return Throughput(
        seconds,
        max(_over(came, until - start[0]), 0.0) if until > start[0] else 0.0,
        _over(finished, seconds),
        _over(prompts, seconds),
        _over(outputs, seconds),
        _over(finished, seconds) * good,
        _over(tally.good, tally.measured + tally.turned_away),
    )


def _use(replica: Replica, pool: str) -> ReplicaUse:
    busy_s, prompt_s, prompt_iterations, batched, _ = replica.shared.log.of(replica.index)
    return ReplicaUse(
        replica.index,
        pool,
        busy_s,
        prompt_s,
        round(prompt_iterations),
        round(replica.iterations),
        _over(batched, replica.iterations),
        round(replica.prefilled),
        round(replica.emitted),
        replica.pages.capacity - replica.pages.room,
        replica.pages.idle_pages,
        replica.due,
    )


def _met(tally: Tally) -> dict[str, float]:
    """The share of requests that met each target, and of all gaps between tokens those that met theirs."""
    counts = {name: (count, tally.measured + tally.turned_away) for name, count in tally.met.items()}
    counts |= {"itl_s": (tally.short_gaps, tally.gaps.count)} if "itl_s" in counts else {}
    return {name: _over(count, of) for name, (count, of) in counts.items()}


def _class(tally: Tally) -> ClassResult:
    times, of = tally.times, tally.measured + tally.turned_away
    return ClassResult(
        tally.arrived,
        tally.finished,
        sum(tally.refused.values()),
        tally.measured,
        _over(tally.good, of),
        tally.input_tokens,
        tally.output_tokens,
        {name: times[name].summary() for name in BY_REQUEST},
        {name: _over(count, of) for name, count in tally.met.items()},
    )


def _pool_use(replicas: list[Replica], up_s: float, run_s: float) -> PoolUse:
    if not replicas:  # of a pool that scales to zero and was never asked
        return PoolUse(0.0, 0.0, 0.0)
    scheduler, log, batch = replicas[0].scheduler, replicas[0].shared.log, _mean_batch(replicas)
    busy_s, prompt_s, prompt_iterations, _, used_s = map(
        sum, zip(*(log.of(replica.index) for replica in replicas), strict=True)
    )
    tally = replicas[0].tally
    places = [replica.index for replica in replicas if replica.index < tally.by_replica.shape[1]]
    ended, ttft_s, tpot_s = tally.by_replica[:, places].sum(1).tolist()
    filled = _over(sum(replica.prefilled for replica in replicas), prompt_iterations)
    return PoolUse(
        _over(prompt_s, busy_s),
        batch / scheduler.sequences,
        min(filled / scheduler.tokens, 1.0),
        _over(up_s, run_s),
        batch,
        _over(used_s, up_s),
        _over(ttft_s, ended),
        _over(tpot_s, ended),
    )


def _mean_batch(replicas: list[Replica]) -> float:
    return _over(
        sum(replica.shared.log.of(replica.index)[3] for replica in replicas),
        sum(replica.iterations for replica in replicas),
    )


def report(run: Simulation) -> SimulationResult:
    """The books of a run that is over."""
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
    )
