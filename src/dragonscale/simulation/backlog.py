"""Whether a fleet keeps up: what came and what ended over the second half of a run's arrivals, and the trend of the
backlog.

A fleet that keeps up has a backlog (requests that came and have not ended) that wanders about some number; one that
does not has a backlog that grows by what comes beyond what it serves. The first half is left out: batches fill, caches
warm and autoscaled fleets grow in it. Where the second half is shorter than a request takes, the backlog grows for
everyone and only the queue tells; what is served is then told by the whole run, to its last departure.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dragonscale.simulation.result import Checkpoint, SimulationResult

GROWTH = 0.02
"""The backlog grows if it takes more than this part of what comes, and more than chance gives it: half a standard
deviation of the Poisson count."""
QUEUED = 0.01
"""And if requests wait for it, so much of what came in the last quarter of the run: batches take up some of what comes
before anyone waits, and near their largest they swell and shrink with small changes of the rate."""
FEWEST = 8


@dataclass(frozen=True)
class Backlog:
    """The second half of a run's arrivals: what came, what ended and by how much the backlog grew each second;
    `backlog` and `waiting` are requests when the last came."""

    arrived_per_s: float
    served_per_s: float
    growth_per_s: float
    backlog: int
    waiting: int
    grows: bool


def load_of(result: SimulationResult, scaled: bool = False) -> Backlog | None:
    """What the books of a run say; None of a run with too few arrivals, or with all of them at once. Where a fleet is
    scaled what is under way changes with its replicas, and only the queue tells."""
    late = result.checkpoints[len(result.checkpoints) // 2 :]
    if len(late) < FEWEST:
        return None
    first, last = late[0], late[-1]
    seconds, came = last.seconds - first.seconds, last.arrived - first.arrived
    if seconds <= 0:
        return None
    latency = result.latency
    service = latency["e2e_s"].mean.value - latency["queue_s"].mean.value
    growth = _slope(late, seconds > service and not scaled)
    queued = [point.waiting + point.turned_away for point in late[len(late) // 2 :]]
    grows = growth * came > GROWTH * came + math.sqrt(came) / 2 and sum(queued) / len(queued) > QUEUED * came
    served = (last.finished - first.finished) / seconds
    if seconds <= service and result.departures:  # few or none of these ended meanwhile: what the whole run served
        served = result.departures[-1].finished / result.departures[-1].seconds
    backlog = last.arrived - last.finished - last.refused
    return Backlog(came / seconds, served, growth * came / seconds, backlog, last.waiting, grows)


def _slope(points: Sequence[Checkpoint], settled: bool) -> float:
    """Requests that the backlog, or before it has settled the queue, gains with every one that comes: least squares."""
    values = [
        point.arrived - point.finished - (point.refused - point.turned_away)
        if settled
        else point.waiting + point.turned_away
        for point in points
    ]
    middle = sum(point.arrived for point in points) / len(points)
    spread = sum((point.arrived - middle) ** 2 for point in points)
    return sum((point.arrived - middle) * value for point, value in zip(points, values, strict=True)) / spread


def saturated_per_s(result: SimulationResult) -> float | None:
    """Requests that end each second while others wait for every replica: the most that the fleet serves. None where
    requests hardly ever waited. The first eighth, in which batches fill, is left out."""
    skipped = len(result.departures) // 8
    waited = [point for point in result.departures[skipped:] if point.waiting >= len(result.replicas)]
    if len(waited) < FEWEST or waited[-1].seconds <= waited[0].seconds:
        return None
    return (waited[-1].finished - waited[0].finished) / (waited[-1].seconds - waited[0].seconds)
