"""Plans that a stack runs and its makers advise against on some chips: judged where given, not offered by a search.

>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.models import load_model
>>> from dragonscale.training.evaluation import make_job
>>> from dragonscale.training.plan import parse_plan
>>> def notes(on, plan):
...     job = make_job(load_model("llama3-70b"), parse_slice(on), 128, 8192, "megatron-core")
...     return len(advice_against(job, parse_plan(plan)))
>>> notes("h100:64", "fsdp16 tp4 z3"), notes("h100:64", "fsdp64 z3"), notes("gb200:64", "fsdp16 tp4 z3")
(1, 0, 0)
"""

from typing import TYPE_CHECKING, Any

import numpy

from dragonscale.physics.hardware import Chip
from dragonscale.training.legal import native
from dragonscale.training.legality import AdvisedAgainst, Legality, family, rules
from dragonscale.training.plan import AXES, Plan

if TYPE_CHECKING:
    from dragonscale.training.evaluation import Job


def advice_on(chip: Chip, row: Legality) -> tuple[AdvisedAgainst, ...]:
    """What a stack's makers advise against on a chip, of what it runs."""
    return tuple(
        one for one in row.advised_against if not native(chip, one.without) and not set(one.zero).isdisjoint(row.zero)
    )


def concerned(advice: AdvisedAgainst, numbers: dict[str, Any]) -> Any:
    """Which meshes an advice is about, whatever their stage of ZeRO."""
    return numpy.any([numpy.asarray(numbers[axis]) > 1 for axis in advice.beside], axis=0)


def advice_against(job: "Job", plan: Plan) -> list[str]:
    """Why a plan is not recommended though it runs, a sentence each."""
    found = []
    for one in advice_on(job.slice.chip, rules(job.stack.name, family(job.slice.chip), plan.pipe > 1)):
        sharded = plan.fsdp * plan.expert * plan.context > 1 and plan.zero in one.zero
        if sharded and concerned(one, {axis: getattr(plan, axis) for axis in AXES}):
            axes = " and ".join(f"{axis}={getattr(plan, axis)}" for axis in one.beside if getattr(plan, axis) > 1)
            found.append(f"zero={plan.zero} with {axes} is not recommended: {one.why} ({one.source}).")
    return found


def not_offered(job: "Job") -> list[str]:
    """What a search leaves out by advice, a sentence each, for where it finds nothing."""
    found = []
    for one in advice_on(job.slice.chip, rules(job.stack.name, family(job.slice.chip))):
        plans = f"zero={' or '.join(map(str, one.zero))} with {' or '.join(one.beside)}"
        found.append(f"Not offered: {plans}. {one.why}; --fix zero={one.zero[-1]} tries it.")
    return found
