"""One setting of a plan changed at a time: which change towards a better plan brings most.

An axis cannot change alone, since the mesh has all chips: replicas (`fsdp`, or `data` where that is how the plan
shards) make up for it, and the microbatch shrinks where a replica's share asks for it. Whatever comes out is judged
like any plan, and dropped if it cannot run.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from dragonscale.physics.numbers import first_number
from dragonscale.training.cost.evaluation import Job, judge_one, problems
from dragonscale.training.plan.plan import Plan
from dragonscale.training.search.legal import newly_illegal
from dragonscale.training.search.space import misfits

SPLITS = ("tensor", "context", "expert", "pipe")
STAGED = ("schedule", "virtual")
WORDS = ("remat", "zero", "microbatch", "context_by", *STAGED, "optimizer", "offload", "dtype", "layout", "etp")


@dataclass(frozen=True)
class Changed:
    """A plan with one setting changed: from what to what, and the step and bytes that gives."""

    setting: str
    old: Any
    new: Any
    plan: Plan
    seconds: float
    hbm_bytes: float


def towards(job: Job, plan: Plan, better: Plan) -> list[Changed]:
    """Every single change from a plan towards a better one that can run, fastest first; each setting once."""
    changes: list[Changed] = []
    for setting, changed in _steps(job, plan, better):
        verdict = judge_one(job, changed)
        runs = not problems(job, changed, verdict) and not misfits(job, changed)
        if runs and not newly_illegal(job, plan, changed):
            seconds, hbm_bytes = first_number(verdict.seconds), first_number(verdict.hbm_bytes)
            changes.append(Changed(setting, plan[setting], changed[setting], changed, seconds, hbm_bytes))
    fastest: dict[str, Changed] = {}
    for change in sorted(changes, key=lambda change: change.seconds):
        fastest.setdefault(change.setting, change)
    return list(fastest.values())


def _steps(job: Job, plan: Plan, better: Plan) -> Iterator[tuple[str, Plan]]:
    """Each setting in which the better plan differs, with the plan changed in that alone."""
    for axis in SPLITS:
        if plan[axis] != better[axis]:
            for changed in resized(job, plan, axis, better[axis]):
                yield axis, changed
    if plan.data != better.data and plan.fsdp != better.fsdp and plan.data * plan.fsdp == better.data * better.fsdp:
        yield "fsdp", replace(plan, data=better.data, fsdp=better.fsdp)
    for setting in WORDS:
        if plan[setting] != better[setting]:
            changed = replace(plan, **{setting: better[setting]})
            if setting == "virtual":  # chunks and interleaving are one change
                changed = replace(changed, schedule=better.schedule)
            if setting != "schedule" or plan.virtual == better.virtual:
                yield setting, changed


def resized(job: Job, plan: Plan, axis: str, size: int) -> Iterator[Plan]:
    """The plan with another degree of an axis, replicas making up for it, as `data` or as `fsdp`; nothing where they
    cannot."""
    other_axes = plan.chips // plan[axis] // (plan.data * plan.fsdp)
    replicas, idle_chips = divmod(job.slice.chips, other_axes * size)
    if idle_chips or not replicas:
        return
    # As many whole replicas as before, or all of the replicas as before: one kind alone.
    one_kind = replicas if plan.fsdp == 1 else 1
    for data in dict.fromkeys((math.gcd(plan.data, replicas), one_kind)):
        changed = replace(plan, **{axis: size, "data": data, "fsdp": replicas // data})
        if job.batch % changed.replicas == 0:
            changed = replace(changed, microbatch=math.gcd(plan.microbatch, job.batch // changed.replicas))
            yield changed if changed.pipe > 1 else replace(changed, schedule="1f1b", virtual=1, layout="even")
