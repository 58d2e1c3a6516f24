"""What a configuration would be with other batches, and what every other configuration of the same job would be.

`batch_curves` follows one plan over its batch: the expected step, the time per token, and the seconds of each resource
at datasheet rates, whose crossings are the ones that `crossovers.py` solves. `plan_curves` are all plans that were
judged, each over its batches.
"""

import math
from dataclasses import dataclass, replace

import numpy

from dragonscale.physics.numbers import Number
from dragonscale.serving.advice.crossovers import resources
from dragonscale.serving.advice.job import ServingJob
from dragonscale.serving.advice.search import search
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.iteration import decode
from dragonscale.serving.iteration.phases import iteration_cost
from dragonscale.serving.space.frontier import Config, judge
from dragonscale.serving.space.ranking import frontier
from dragonscale.serving.space.space import one_plan

# Batches of a curve.
POINTS = 48

# How far curves go, over the largest batch or the critical one.
BEYOND = 1.4

# Plans that are followed over their batches.
MAX_PLANS = 8


@dataclass(frozen=True)
class BatchCurves:
    """One plan over its batch: a decode step as expected, seconds at datasheet rates by resource, and the
    configurations that fit."""

    batches: tuple[float, ...]
    expected: tuple[float, ...]
    resources: dict[str, tuple[float, ...]]
    configs: tuple[Config, ...]

    def at(self, values: tuple[float, ...], batch: float) -> float:
        """A curve's value at a batch between its points."""
        return float(numpy.interp(math.log(batch), numpy.log(self.batches), values))


def batch_curves(
    job: ServingJob, deployment: Deployment, batch: int, max_batch: int, up_to: float = 0.0
) -> BatchCurves:
    """A plan with batches from one sequence a data rank to beyond `max_batch`, the largest that fits, and `up_to`."""
    plan = deployment.plan
    plans = one_plan(deployment.piece, plan)
    configs = judge(job.model, plans, deployment.engine, job.ask, None, job.draft_by(deployment.engine.name))
    largest = BEYOND * max(max_batch, up_to, 2.0 * plan.data)
    points = numpy.rint(numpy.geomspace(float(plan.data), largest, POINTS)).tolist()
    batches = numpy.array(sorted({*points, float(batch), float(max_batch)}))
    cost = iteration_cost(deployment, decode(batches, job.ask.context))

    def column(seconds: Number) -> tuple[float, ...]:
        values = numpy.asarray(seconds, float).ravel()  # (1,) where it is the same at every batch
        return tuple(numpy.broadcast_to(values, batches.shape).tolist())

    by_resource: dict[str, tuple[float, ...]] = {}
    for name, seconds in resources(cost, deployment.axis_sizes).items():
        if float(numpy.max(numpy.asarray(seconds))) > 0:
            by_resource[name] = column(seconds)
    return BatchCurves(
        batches=tuple(batches.tolist()),
        expected=column(cost.expected),
        resources=by_resource,
        configs=tuple(sorted(configs, key=lambda config: config.batch)),
    )


def meeting_batch(configs: tuple[Config, ...]) -> int | None:
    """The largest batch that still meets the targets; None where none does."""
    return max((config.batch for config in configs if config.meets), default=None)


@dataclass(frozen=True)
class PlanCurves:
    """Every judged configuration by plan, each plan's by batch; those that nothing beats; and how many plans are left
    out."""

    plans: tuple[tuple[Config, ...], ...]
    frontier: tuple[Config, ...]
    left_out: int


def plan_curves(job: ServingJob, chosen: tuple[str, str]) -> PlanCurves:
    """The plans of a job with every batch, whatever plan and batch it names: the `chosen` slice and plan first, then
    those that make most tokens."""
    configs = search(replace(job, plan=None, batch=None))
    given_plan = search(replace(job, batch=None)) if job.plan is not None else []
    best = frontier([*configs, *given_plan])
    groups: dict[tuple[str, str, str], list[Config]] = {}
    for config in [*best, *given_plan, *configs]:
        groups.setdefault((str(config.piece), str(config.plan), config.engine), []).append(config)

    def order(key: tuple[str, str, str]) -> tuple[bool, float]:
        return key[:2] != chosen, -max(config.tokens_per_chip for config in groups[key])

    shown = sorted(groups, key=order)[:MAX_PLANS]
    plans: list[tuple[Config, ...]] = []
    for key in shown:
        by_batch = {config.batch: config for config in sorted(groups[key], key=lambda config: config.batch)}
        plans.append(tuple(by_batch.values()))
    return PlanCurves(tuple(plans), tuple(best), len(groups) - len(shown))
