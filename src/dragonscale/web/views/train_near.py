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


def near_fields(request: PageRequest) -> Mapping[str, Any]:
    """The fields with a plan that runs; those of the first that was tried where none does."""
    job = understood(question_of("train", request.fields, request.dropped)).job
    if job.plan is None or job.slice is None:
        return request.fields
    meshes = list(islice(near_plans(job.on_slice(), job.plan), TRIED)) or [job.plan]
    lighter = [replace(mesh, remat=RECOMPUTED) for mesh in meshes if mesh.remat != RECOMPUTED]
    tried = [dict(request.fields) | {"plan": typed_plan(mesh)} for mesh in [meshes[0], *lighter, *meshes[1:]]]
    return next((fields for fields in tried if request.ask("train", fields, brief=True).plans[0].feasible), tried[0])


def near_plans(job: Job, plan: Plan) -> Iterator[Plan]:
    """Plans for the job's chips, batch and sequence, those that differ least from a known one first; itself, where its
    mesh divides."""
    sizes = axis_sizes(job, Space(words=plan))
    sizes_near = [[size for size in sizes[axis] if 1 / FAR <= size / plan[axis] <= FAR] for axis in FITTED]
    for mesh in sorted(product(*sizes_near), key=lambda mesh: _distance(plan, mesh)):
        refitted = _refitted(job, plan, dict(zip(FITTED, mesh, strict=True)))
        if refitted is not None and not misfits(job, refitted) and not illegal(job, refitted):
            yield refitted


def _distance(plan: Plan, mesh: tuple[int, ...]) -> float:
    return sum(math.log2(size / plan[axis]) ** 2 for axis, size in zip(FITTED, mesh, strict=True))


def _refitted(job: Job, plan: Plan, mesh: dict[str, int]) -> Plan | None:
    """The plan with other axes, as many replicas as there are chips for, and of the microbatch what divides."""
    ways, rest = divmod(job.slice.chips, math.prod(mesh.values()))
    if rest or job.batch % (ways * mesh["expert"]):
        return None
    data = math.gcd(plan.data, ways) if plan.fsdp > 1 or plan.data == 1 else ways
    micro = math.gcd(plan.microbatch, job.batch // (ways * mesh["expert"]))
    refitted = replace(plan, **mesh, data=data, fsdp=ways // data, microbatch=micro)
    return refitted if refitted.pipe == plan.pipe else replace(refitted, virtual=1, layout="even")
