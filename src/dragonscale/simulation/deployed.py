"""Replicas of a planned deployment: the planner's step times, its memory and its engine's habits, as a simulator's
pool."""

from typing import Any

import numpy

from dragonscale.errors import Infeasible
from dragonscale.physics.numbers import first_number
from dragonscale.serving.engine.engine import Engine
from dragonscale.serving.iteration.capacity import Capacity, capacity
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.step_table import StepTable
from dragonscale.serving.steady.speculation import Acceptance
from dragonscale.simulation.fleet import Pool, Scheduler


def scheduler_of(
    engine: Engine, data: int = 1, draft: int = 0, acceptance: Acceptance = 0.0, stages: int = 1
) -> Scheduler:
    """The scheduler of an engine; `data` ranks each have its sequences and tokens, and of a pipeline's `stages` each
    has a part of the batch under way, with a token budget of its own."""
    return Scheduler(
        kind=engine.scheduling.scheduler,
        sequences=engine.scheduling.max_sequences * data,
        tokens=engine.scheduling.max_tokens * data * stages,
        ranks=data,
        mixed=None if engine.scheduling.scheduler == "static" else engine.scheduling.beside,
        reserve=engine.scheduling.reserve,
        page_tokens=engine.memory.page,
        ahead=engine.scheduling.ahead,
        poll=engine.scheduling.poll,
        page_each=engine.scheduling.page_each,
        chunk=engine.scheduling.chunk if data * stages == 1 else 0,  # ranks choose a shape together
        draft=draft,
        acceptance=acceptance,
    )


def cache_tokens(deployment: Deployment, longest: int) -> int:
    """Tokens that the cache of one replica holds. A state of fixed size counts as so many tokens of the longest
    request."""
    room: Capacity = capacity(deployment)
    if not bool(numpy.all(room.fits)):
        missing = first_number(-room.cache) / 1e9
        raise Infeasible(
            f"{deployment.model.name} does not fit on {deployment.piece} as {deployment.plan}: {missing:.1f} GB a "
            "chip are missing."
        )
    sequences = first_number(room.cache / room.sequence(float(longest)))
    return int(sequences * longest)


def pool_for(
    deployment: Deployment,
    longest: int,
    replicas: int = 1,
    draft: int = 0,
    acceptance: Acceptance = 0.0,
    draft_part: float = 0.0,
    drafter: Deployment | None = None,
    **more: Any,
) -> Pool:
    """Replicas of a deployment for requests of up to `longest` tokens; `more` goes to `Pool` (router, autoscale …)."""
    small = StepTable(drafter, longest=longest) if drafter is not None else None
    table = StepTable(deployment, longest=longest, drafter=small, draft_part=draft_part)
    scheduler = scheduler_of(deployment.engine, int(deployment.plan.data), draft, acceptance, int(deployment.plan.pipe))
    return Pool(table, cache_tokens(deployment, longest), scheduler, replicas, **more)
