"""Layers in torchtitan's pipeline stages.

torchtitan deals layers by itself from two counts (`pipeline_parallel_first_stage_less_layers` and `…last…`: what the
embedding and the head are worth in layers) and a size of stages; any other layout is a list of the modules of each
stage.

>>> dealt(32, 4, 0, 0), dealt(126, 16, 1, 1)[:2], dealt(10, 4, 1, 1)
([8, 8, 8, 8], [7, 8], [2, 3, 3, 2])
>>> stage_flags(parse_plan("pipe=4,schedule=1f1b,layout=7-9-9-7"), 32)["--parallelism.module_fqns_per_model_part"][3]
'layers.25,layers.26,layers.27,layers.28,layers.29,layers.30,layers.31,norm,lm_head'
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dragonscale.exports.imported import layout_named
from dragonscale.exports.keys import whole
from dragonscale.exports.terms import load_terms
from dragonscale.training.plan import Plan
from dragonscale.training.plan_file import parse_plan
from dragonscale.training.stages import FOLDED, chunk_sizes

TERMS = load_terms("torchtitan")

__all__ = ["dealt", "layout_read", "parse_plan", "stage_flags", "stages_of"]

SCHEDULES = TERMS.tables["schedules"]
SINGLE = ("1f1b", "gpipe")
"""Those with a stage on each rank."""
_LESS = TERMS.lists["less_layers"]
_PER_STAGE, _MODULES = "--parallelism.pipeline_parallel_layers_per_stage", "--parallelism.module_fqns_per_model_part"


def dealt(layers: int, stages: int, first: int, last: int) -> list[int]:
    """The layers of every stage as torchtitan deals them."""
    base, extra = divmod(layers + first + last, stages)
    sizes = [base + (stage < extra) for stage in range(stages)]
    sizes[0] -= first
    sizes[-1] -= last
    return sizes


def stages_of(plan: Plan) -> int:
    """Stages of the whole pipeline: schedules in the shape of a V have two on each rank."""
    return plan.pipe * (2 if plan.schedule in FOLDED else plan.virtual)


def wanted(plan: Plan, layers: int) -> list[int]:
    """The layers of every stage as the plan deals them. A rank of a V has its layers in two stages, going down and
    coming back."""
    sizes = chunk_sizes(layers, plan.pipe * plan.virtual, plan.layout)
    if plan.schedule not in FOLDED:
        return sizes
    return [size - size // 2 for size in sizes] + [size // 2 for size in reversed(sizes)]


def stage_flags(plan: Plan, layers: int) -> dict[str, Any]:
    """The flags that make torchtitan deal layers as the plan does."""
    stages, sizes = stages_of(plan), wanted(plan, layers)
    single = plan.schedule in SINGLE
    for first, last in ((0, 0), (1, 1)) if plan.layout != "ends" else ((1, 1), (0, 0)):
        per_stage = math.ceil((layers + first + last) / stages)
        named = single or math.ceil((layers + first + last) / per_stage) == stages
        if sizes == dealt(layers, stages, first, last) and named and (single or stages > plan.pipe):
            flags: dict[str, Any] = {_LESS[0]: first, _LESS[1]: last}
            return flags if single else flags | {_PER_STAGE: per_stage}
    return {_MODULES: [",".join(part) for part in _parts(sizes)]}


def _parts(sizes: Sequence[int]) -> list[list[str]]:
    parts: list[list[str]] = []
    start = 0
    for size in sizes:
        parts.append([f"layers.{number}" for number in range(start, start + size)])
        start += size
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "lm_head"]
    return parts


def layout_read(said: Mapping[str, Any], pipe: int, schedule: str, layers: int) -> tuple[int, str]:
    """The chunks of a rank and the layout that flags say; `said` has the values by the flags' last names."""
    parts = said.get("module_fqns_per_model_part")
    ends = [f"pipeline_parallel_{end}_stage_less_layers" for end in ("first", "last")]
    first, last = (whole(said.get(name, 1), name, 0) for name in ends)
    per_stage = said.get("pipeline_parallel_layers_per_stage")
    if parts:
        sizes = [sum(name.startswith("layers.") for name in _names(part)) for part in parts]
    elif layers:
        stages = pipe * (1 if schedule in SINGLE else 2)
        if per_stage and str(per_stage) != "None":
            stages = math.ceil((layers + first + last) / whole(per_stage, "pipeline_parallel_layers_per_stage"))
        sizes = dealt(layers, max(stages, 1), first, last)
    else:
        return (1 if schedule in SINGLE or schedule in FOLDED else 2), "even"
    return _named(sizes, pipe, schedule, layers)


def _named(sizes: list[int], pipe: int, schedule: str, layers: int) -> tuple[int, str]:
    if schedule in FOLDED and len(sizes) == 2 * pipe:
        sizes = [sizes[rank] + sizes[-1 - rank] for rank in range(pipe)]
    virtual = max(len(sizes) // pipe, 1)
    return virtual, layout_named(sizes, layers or sum(sizes))


def _names(part: Any) -> list[str]:
    return part.split(",") if isinstance(part, str) else list(part)
