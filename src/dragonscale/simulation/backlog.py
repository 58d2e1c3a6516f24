"""Whether a fleet keeps up: arrivals and departures over the second half of a run's arrivals, and the backlog's trend.

A fleet that keeps up has a backlog (requests that arrived and have not ended) that wanders around some number; one that
does not has a backlog that grows by what arrives beyond what it serves. The first half is left out: batches fill,
caches warm and autoscaled fleets grow in it. If the second half is shorter than a request takes, the backlog grows for
every fleet and only the queue tells; the served rate is then that of the whole run, up to its last departure.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dragonscale.simulation.result import Checkpoint, SimulationResult

MIN_GROWTH = 0.02
"""The backlog grows if it takes more than this fraction of the arrivals, and more than chance: half a standard
deviation of the Poisson count."""
MIN_QUEUED = 0.01
"""It also takes that requests wait, so many of the arrivals in the last quarter of the run: batches absorb some
arrivals before anyone waits, and near their limit they swell and shrink with small changes of the rate."""
MIN_POINTS = 8
"""Checkpoints, or departures, without which a run says nothing."""


@dataclass(frozen=True)
class Backlog:
    """The second half of a run's arrivals: rates of arrivals and departures, and the backlog's growth per second;
    `backlog` and `waiting` are requests at the last arrival."""

    arrived_per_s: float
    served_per_s: float
    growth_per_s: float
    backlog: int
    waiting: int
    grows: bool
    is_burst: bool = False
    """Whether these arrivals came in less time than a request takes, so that nobody can say whether it keeps up."""


def load_of(result: SimulationResult, scaled: bool = False) -> Backlog | None:
    """What the checkpoints of a run say; None for a run with too few arrivals, or with all of them at once.

    In an autoscaled fleet running requests change with its replicas, so only the queue tells.
    """
    late = result.checkpoints[len(result.checkpoints) // 2 :]
    if len(late) < MIN_POINTS:
        return None
    first, last = late[0], late[-1]
    seconds, arrivals = last.seconds - first.seconds, last.arrived - first.arrived
    if seconds <= 0:
        return None
    latency = result.latency
    service_s = latency["e2e_s"].mean.value - latency["queue_s"].mean.value
    growth = _slope(late, seconds > service_s and not scaled)
    queued = [point.waiting + point.turned_away for point in late[len(late) // 2 :]]
    exceeds_chance = growth * arrivals > MIN_GROWTH * arrivals + math.sqrt(arrivals) / 2
    grows = exceeds_chance and sum(queued) / len(queued) > MIN_QUEUED * arrivals
    served = (last.finished - first.finished) / seconds
    if seconds <= service_s and result.departures:
        # few or none of these arrivals ended meanwhile: the rate of the whole run
        served = result.departures[-1].finished / result.departures[-1].seconds
    backlog = last.arrived - last.finished - last.refused
    # all came before one request could end: a queue then is no growth
    is_burst = seconds <= service_s
    return Backlog(arrivals / seconds, served, growth * arrivals / seconds, backlog, last.waiting, grows, is_burst)


def _slope(points: Sequence[Checkpoint], settled: bool) -> float:
    """Requests that the backlog gains with each arrival (the queue, before the backlog has settled): least squares."""
    middle = sum(point.arrived for point in points) / len(points)
    spread = sum((point.arrived - middle) ** 2 for point in points)
    total = 0.0
    for point in points:
        # requests that were turned away would still be there in a fleet without limits
        size = point.waiting + point.turned_away
        if settled:
            size = point.arrived - point.finished - (point.refused - point.turned_away)
        total += (point.arrived - middle) * size
    return total / spread


def saturated_per_s(result: SimulationResult) -> float | None:
    """Requests that end per second while others wait for every replica: the most that the fleet serves.

    None if requests hardly ever waited. The first eighth, in which batches fill, is left out.
    """
    skipped = len(result.departures) // 8
    waited = [point for point in result.departures[skipped:] if point.waiting >= len(result.replicas)]
    if len(waited) < MIN_POINTS or waited[-1].seconds <= waited[0].seconds:
        return None
    return (waited[-1].finished - waited[0].finished) / (waited[-1].seconds - waited[0].seconds)
