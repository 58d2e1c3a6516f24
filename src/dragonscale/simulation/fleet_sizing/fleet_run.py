"""A run of a fleet, and what its replicas took and cost."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from dragonscale.serving.space.fleet_cost import FleetCost, fleet_cost
from dragonscale.simulation.fleet_sizing.fleet_job import FleetJob
from dragonscale.simulation.result import SimulationResult
from dragonscale.simulation.simulate import simulate


def run_fleet(
    job: FleetJob, progress: Callable[[int], None] | None = None, *, events: int = 0, watch: int = 0
) -> SimulationResult:
    """The run of a job, with up to so many `events` of its timeline and what the first `watch` replicas do over
    time."""
    return simulate(job.fleet, job.source, replace(job.options, events=events, watch=watch), progress)


def mean_replicas(job: FleetJob, result: SimulationResult) -> list[float]:
    """Replicas of each pool; on average over the run where it grows and shrinks."""
    counts: list[float] = []
    for pool in job.pools:
        if pool.pool.autoscale is None:
            counts.append(float(pool.pool.replicas))
        else:
            counts.append(result.use[pool.name].replicas)
    return counts


def replicas_with(job: FleetJob, replicas: float, prefills: float) -> list[float]:
    """Replicas of each pool where the main and the prefill pool have so many."""
    resized = {"serve": replicas, "prefill": prefills}
    return [resized.get(pool.name, pool.pool.replicas) for pool in job.pools]


def cost_of_replicas(job: FleetJob, counts: Sequence[float]) -> FleetCost:
    """What so many replicas of each pool take and cost."""
    slices = (pool.deployment.piece for pool in job.pools)
    return fleet_cost(zip(counts, slices, strict=True))
