"""Which targets a run misses, of the whole fleet or of its classes of traffic, and by how much."""

from collections.abc import Mapping, Sequence

from dragonscale.serving.steady.targets import LatencyTarget
from dragonscale.simulation.fleet_sizing.fleet_job import FleetJob
from dragonscale.simulation.result import ClassResult, SimulationResult

# A mean says nothing of requests that were refused: no more than this part of those that came may have been.
MAX_REFUSED = 0.01

# The targets of one class, by the name of the latency.
ClassTargets = Mapping[str, LatencyTarget]


def missed_targets(
    result: SimulationResult, targets: Mapping[str, LatencyTarget], class_targets: Sequence[ClassTargets] = ()
) -> dict[str, float]:
    """The latencies that miss their target, with their statistic over it, the worst first.

    A mean misses if it is above its target, a percentile if too few requests meet it. Requests are counted: percentiles
    are right to half a percent only, and many may lie that near to a target. Each class of traffic has its own targets,
    and the class that misses most counts.
    """
    if not result.latency["e2e_s"].count:
        return {}
    ratios = missed_by_classes(result.classes, class_targets)
    refused = sum(result.outcome.refused.values()) > MAX_REFUSED * result.outcome.arrived
    for name, target in targets.items():
        ratio = getattr(result.latency[name], target.statistic).value / target.seconds
        missed = ratio > 1 or refused
        if target.share is not None:
            missed = result.met[name] < target.share
        if missed:
            ratios[name] = max(ratio, 1.0)
    return dict(sorted(ratios.items(), key=lambda item: -item[1]))


def missed_by_classes(results: Sequence[ClassResult], class_targets: Sequence[ClassTargets]) -> dict[str, float]:
    """The latencies whose target a class misses, with the statistic over it of the class that misses most."""
    ratios: dict[str, float] = {}
    for result, targets in zip(results, class_targets, strict=False):
        for name, target in targets.items():
            ratio = class_ratio(result, name, target)
            missed = ratio > 1 or result.refused > MAX_REFUSED * result.arrived
            if target.share is not None:
                missed = result.met[name] < target.share
            if missed and result.arrived:
                ratios[name] = max(ratios.get(name, 1.0), ratio)
    return ratios


def class_ratio(result: ClassResult, name: str, target: LatencyTarget) -> float:
    """The statistic of a class's latency over its target."""
    return getattr(result.latency[name], target.statistic).value / target.seconds


def worst_ratio(job: FleetJob, result: SimulationResult) -> float:
    """The statistic nearest to its target or furthest above it, over the target; 1 without targets."""
    ratios = [job.reached(result, name) / target.seconds for name, target in job.targets.items()]
    for class_result, targets in zip(result.classes, job.class_targets, strict=False):
        ratios += [class_ratio(class_result, name, target) for name, target in targets.items()]
    return max(ratios, default=1.0)
