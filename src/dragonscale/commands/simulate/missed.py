"""Which targets a run misses, of the whole fleet or of its classes of traffic, and by how much."""

from collections.abc import Sequence

from dragonscale.commands.simulate.simulate_question import SimulateAsked
from dragonscale.serving.steady.targets import LatencyTarget
from dragonscale.simulation import SimulationResult
from dragonscale.simulation.result import ClassResult

REFUSED = 0.01
"""A mean says nothing of requests that were refused: no more than so many may have been."""


def missed_targets(
    result: SimulationResult, targets: dict[str, LatencyTarget], classes: Sequence[dict[str, LatencyTarget]] = ()
) -> dict[str, float]:
    """Latencies whose mean is above its target, or whose target fewer requests meet than its percentile asks for, with
    that statistic over the target; the worst first. Requests are counted: percentiles are right to half a percent only,
    and many may lie that near to a target. Each class of traffic has its own, and the one that misses most counts."""
    if not result.latency["e2e_s"].count:
        return {}
    ratios = missed_classes(result.classes, classes)
    for name, (seconds, statistic) in targets.items():
        value, share = getattr(result.latency[name], statistic).value, targets[name].share
        refused = sum(result.outcome.refused.values()) > REFUSED * result.outcome.arrived
        if value > seconds or refused if share is None else result.met[name] < share:
            ratios[name] = max(value / seconds, 1.0)
    return dict(sorted(ratios.items(), key=lambda item: -item[1]))


def missed_classes(results: Sequence[ClassResult], classes: Sequence[dict[str, LatencyTarget]]) -> dict[str, float]:
    """Latencies whose target a class misses, with the statistic over it of the one that misses most."""
    ratios: dict[str, float] = {}
    for own, goals in zip(results, classes, strict=False):
        for name, goal in goals.items():
            over = class_ratio(own, name, goal)
            missed = own.met[name] < goal.share if goal.share else over > 1 or own.refused > REFUSED * own.arrived
            if missed and own.arrived:
                ratios[name] = max(ratios.get(name, 1.0), over)
    return ratios


def class_ratio(own: ClassResult, name: str, goal: LatencyTarget) -> float:
    """The statistic of a class's latency over its target."""
    return getattr(own.latency[name], goal.statistic).value / goal.seconds


def worst_ratio(asked: SimulateAsked, result: SimulationResult) -> float:
    """The statistic nearest to its target or furthest above it, over the target."""
    ratios = [asked.reached(result, name) / target.seconds for name, target in asked.targets.items()]
    pairs = zip(result.classes, asked.class_targets, strict=False)
    ratios += [class_ratio(own, name, goal) for own, goals in pairs for name, goal in goals.items()]
    return max(ratios, default=1.0)
