"""A plan for a size that a slider passes: the known one refitted to other chips, batches and lengths, without a search.

The known plan stays where it runs. Otherwise the mesh that differs least from it and divides is taken, and where that
does not fit into memory, the same with more recomputed. It is no optimum: the search follows when the slider rests.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice, product
from typing import Any

from dragonscale.commands.train.ask_train import understood
from dragonscale.training.cost.evaluation import Job
from dragonscale.training.plan.plan import Plan
from dragonscale.training.search.legal import illegal
from dragonscale.training.search.space import Space, axis_sizes, misfits
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.train_plan import typed_plan
from dragonscale.web.words import question_of

FITTED = ("tensor", "context", "expert", "pipe")
"""Axes that are refitted; `data` and `fsdp` take the rest of the chips."""
FAR = 16
"""How many times more or less of an axis a plan next to another may have."""
TRIED = 2
"""Meshes that are judged."""
RECOMPUTED = "block"


def near_fields(asked: PageRequest) -> Mapping[str, Any]:
    """The fields with a plan that runs; those of the first that was tried where none does."""
    job = understood(question_of("train", asked.fields, asked.dropped)).job
    if job.plan is None or job.slice is None:
        return asked.fields
    meshes = list(islice(near_plans(job.on_slice(), job.plan), TRIED)) or [job.plan]
    lighter = [replace(one, remat=RECOMPUTED) for one in meshes if one.remat != RECOMPUTED]
    tried = [dict(asked.fields) | {"plan": typed_plan(one)} for one in [meshes[0], *lighter, *meshes[1:]]]
    return next((one for one in tried if asked.ask("train", one, brief=True).plans[0].feasible), tried[0])


def near_plans(job: Job, plan: Plan) -> Iterator[Plan]:
    """Plans for the job's chips, batch and sequence, those that differ least from a known one first; itself, where its
    mesh divides."""
    sizes = axis_sizes(job, Space(words=plan))
    near = [[size for size in sizes[axis] if 1 / FAR <= size / plan[axis] <= FAR] for axis in FITTED]
    for mesh in sorted(product(*near), key=lambda mesh: _distance(plan, mesh)):
        found = _refitted(job, plan, dict(zip(FITTED, mesh, strict=True)))
        if found is not None and not misfits(job, found) and not illegal(job, found):
            yield found


def _distance(plan: Plan, mesh: tuple[int, ...]) -> float:
    return sum(math.log2(size / plan[axis]) ** 2 for axis, size in zip(FITTED, mesh, strict=True))


def _refitted(job: Job, plan: Plan, mesh: dict[str, int]) -> Plan | None:
    """The plan with other axes, as many replicas as there are chips for, and of the microbatch what divides."""
    ways, rest = divmod(job.slice.chips, math.prod(mesh.values()))
    if rest or job.batch % (ways * mesh["expert"]):
        return None
    data = math.gcd(plan.data, ways) if plan.fsdp > 1 or plan.data == 1 else ways
    micro = math.gcd(plan.microbatch, job.batch // (ways * mesh["expert"]))
    found = replace(plan, **mesh, data=data, fsdp=ways // data, microbatch=micro)
    return found if found.pipe == plan.pipe else replace(found, virtual=1, layout="even")
