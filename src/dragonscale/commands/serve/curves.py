"""What a configuration would be with other batches, and what every other configuration of the same question would be.

`batch_curves` follows one plan over its batch: the expected step, the time per token, and the seconds of each resource
at datasheet rates, whose crossings are the ones that `serving/advice/crossovers.py` solves. `plan_curves` are all plans
that were judged, each over its batches.
"""

import math
from dataclasses import dataclass, replace

import numpy

from dragonscale.commands.serve.search import search
from dragonscale.commands.serve.serve_question import ServeAsked
from dragonscale.commands.serve.serve_records import ConfigReport
from dragonscale.serving.advice.crossovers import resources
from dragonscale.serving.engine.formats import Formats
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.iteration import decode
from dragonscale.serving.iteration.phases import iteration_cost
from dragonscale.serving.space.frontier import Config, judge
from dragonscale.serving.space.ranking import frontier
from dragonscale.serving.space.space import Lot, stack

POINTS = 48
BEYOND = 1.4
"""How far past the largest batch, or past the critical one, curves go."""
PLANS = 8
"""Plans that are followed over their batches."""


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


def batch_curves(asked: ServeAsked, one: ConfigReport, deployment: Deployment, upto: float = 0.0) -> BatchCurves:
    """The configuration's plan with batches from one sequence a data rank to beyond what fits (and `upto`)."""
    plan, ask = deployment.plan, asked.ask
    lot = Lot((deployment.piece,), stack([plan], _formats(deployment), plan.spread))
    configs = judge(asked.model, lot, deployment.engine, ask, None, asked.draft_by(deployment.engine.name))
    low, high = float(plan.data), BEYOND * max(one.max_batch, upto, 2.0 * plan.data)
    grid = sorted({*map(float, numpy.rint(numpy.geomspace(low, high, POINTS))), float(one.batch), float(one.max_batch)})
    batches = numpy.array(grid)
    cost = iteration_cost(deployment, decode(batches, ask.context))
    taken = resources(cost, deployment.axis_sizes)

    def column(value: object) -> tuple[float, ...]:
        return tuple(float(each) for each in numpy.broadcast_to(numpy.asarray(value, float).ravel(), batches.shape))

    shown = {name: column(value) for name, value in taken.items() if float(numpy.max(numpy.asarray(value))) > 0}
    return BatchCurves(tuple(grid), column(cost.expected), shown, tuple(sorted(configs, key=lambda own: own.batch)))


def _formats(deployment: Deployment) -> Formats:
    plan = deployment.plan
    return Formats(plan.weights, plan.compute, plan.kv, plan.attention, plan.wire)


def meeting_batch(configs: tuple[Config, ...]) -> int | None:
    """The largest batch that still meets the targets."""
    return max((one.batch for one in configs if one.meets), default=None)


@dataclass(frozen=True)
class PlanCurves:
    """Every judged configuration by plan, each plan's by batch; those that nothing beats; and how many plans are left
    out."""

    plans: tuple[tuple[Config, ...], ...]
    frontier: tuple[Config, ...]
    left_out: int


def plan_curves(asked: ServeAsked, one: ConfigReport) -> PlanCurves:
    """The plans of a question with every batch, whatever plan and batch it names: those on the frontier and the given
    one first."""
    free = replace(asked, saved=None, batch=None, question=replace(asked.question, plan="", batch="", better=False))
    given = search(replace(asked, batch=None)) if asked.saved is not None else []
    every = search(free)
    best = frontier([*every, *given])
    groups: dict[tuple[str, str, str], list[Config]] = {}
    for config in [*best, *given, *every]:
        groups.setdefault((str(config.piece), str(config.plan), config.engine), []).append(config)
    most = {key: max(own.tokens_per_chip for own in some) for key, some in groups.items()}
    chosen = sorted(groups, key=lambda key: (key[:2] != (one.copy_slice, one.plan), -most[key]))[:PLANS]
    ordered = (sorted(groups[key], key=lambda own: own.batch) for key in chosen)
    plans = tuple(tuple({own.batch: own for own in some}.values()) for some in ordered)
    return PlanCurves(plans, tuple(best), len(groups) - len(chosen))
