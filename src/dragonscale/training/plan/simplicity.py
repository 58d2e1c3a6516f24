"""Which of several plans of about the same speed an engineer would rather run.

A plan that leaves too little headroom in a chip's memory (`search.headroom`) is not recommended, however fast it is, if
another leaves enough. A step's time is predicted to within some percent, so plans with headroom within `SLACK` of the
fastest count as equally fast, and the recommended one is the first in this order:

1. a kind of plan that somebody has published, without `context` at sequences of `SHORT` tokens or less;
2. the fewest `points`: for everything that has to be set up, watched and debugged;
3. plenty of memory: a chip at most `ROOMY` full;
4. the shorter step, to `SAME`;
5. fewer microbatches a step.

To be recommended all the same, other kinds must gain more than `run_kinds.needed_gains` says: their time counts that
much more (`handicap`). Without slack the fastest that leaves room is recommended.
"""

from typing import Any

import numpy
from numpy.typing import NDArray

from dragonscale.training.plan.plan import Plan, without_layers

SLACK = 0.01
"""Plans this near to the fastest are taken as equally fast: about a fifth of the median error of predicted steps."""
SAME = 0.001
"""Times and bytes closer than this fraction cannot be told apart by any measurement."""
ROOMY = 0.80
"""The fraction of the memory that a program can allocate beyond which there is none to spare."""
SHORT = 8192
"""Tokens of a sequence up to which splitting it over `context` is rare."""

SCHEDULE_POINTS = {"1f1b": 0, "gpipe": 1, "interleaved": 1, "zb-h1": 3, "zbv": 4, "dualpipe": 4, "dualpipev": 4}
"""1F1B is in every trainer, interleaving in most; zero-bubble and bidirectional schedules in one or two each."""
REMAT_POINTS = {"none": 0, "block": 0, "block:N": 1, "selective": 1, "matmuls": 2, "offload": 4}
"""All or nothing is a switch of every trainer, some layers of one; what is saved of a block by name differs between
them; offload needs pinned host memory."""
CONTEXT_POINTS = {"gather": 0, "ring": 1, "ulysses": 1}
OFFLOAD_POINTS = {"none": 0, "optimizer": 4, "parameters": 5, "nvme": 6}


def setting_points(plan: Plan) -> int:
    """Points of a plan's settings, whatever its mesh. Modules to recompute count like `matmuls`, a number of offloaded
    layers like the optimizer."""
    total = REMAT_POINTS.get(without_layers(plan.remat), 2) + OFFLOAD_POINTS.get(plan.offload, 4)
    return total + (plan.zero == 2) + plan.etp + (plan.layout != "even")


def points(plan: Plan, degrees: dict[str, Any], sequence: int) -> NDArray[numpy.int64]:
    """Points of plans that share the settings of `plan` and differ in degrees, of shape (plans,): two for each mesh
    axis that splits something (one for replicas beside `fsdp`), and for what is rare beyond that. Fewer is simpler.

    >>> from dragonscale.training.plan.plan_file import parse_plan
    >>> def of(text):
    ...     plan = parse_plan(text)
    ...     return int(points(plan, plan.all_settings, 8192))
    >>> of("fsdp=8"), of("data=2 fsdp=4"), of("cp8 ring"), of("pp4 tp8 z1"), of("pp4 tp8 z2 v2 interleaved")
    (2, 3, 4, 4, 6)
    """
    fsdp, data, pipe, context = (numpy.asarray(degrees[name]) for name in ("fsdp", "data", "pipe", "context"))
    total = setting_points(plan) + numpy.zeros_like(pipe)
    for axis in ("pipe", "expert", "tensor", "fsdp"):
        total = total + 2 * (numpy.asarray(degrees[axis]) > 1)
    # Replicas besides fsdp are hybrid sharding; alone under ZeRO they leave unsharded what could be sharded.
    replica_points = 3 if plan.zero else 2
    total = total + numpy.where(data > 1, numpy.where(fsdp > 1, 1, replica_points), 0)
    context_points = CONTEXT_POINTS.get(plan.context_by, 1) + (3 if sequence <= SHORT else 2)
    total = total + numpy.where(context > 1, context_points, 0)
    # ZeRO-3 gathers weights for every microbatch of a pipeline, which few trainers do.
    pipeline_points = SCHEDULE_POINTS.get(plan.schedule, 4) + (plan.zero == 3)
    total = total + numpy.where(pipe > 1, pipeline_points, 0)
    return total + (numpy.asarray(degrees["virtual"]) > 4)


def handicap(gains: NDArray[numpy.float64], slack: float) -> NDArray[numpy.float64]:
    """The factor on the time of plans that must gain so much over others to be recommended."""
    if not slack:
        return numpy.ones_like(gains)
    return numpy.maximum(1.0, (1 + gains) / (1 + slack))


def order(
    seconds: NDArray[numpy.float64],
    filled: NDArray[numpy.float64],
    scores: NDArray[numpy.float64],
    microbatches: NDArray[numpy.float64],
    slack: float,
    rare: NDArray[numpy.bool_] | bool = False,
) -> NDArray[numpy.int64]:
    """The indices of plans, the recommended one first: those within the slack of the fastest by the order above, then
    the others by time. All arrays have the shape (plans,): seconds of a step, the fraction of memory that is filled,
    points, microbatches, and whether a plan is of a `rare` kind, of which more is asked.

    >>> order(
    ...     numpy.array([1.0, 1.005, 1.2]), numpy.array([0.5, 0.5, 0.1]), numpy.array([6, 2, 0]), numpy.ones(3), 0.01
    ... ).tolist()
    [1, 0, 2]
    """
    behind = numpy.log(seconds / seconds.min())
    if not slack:
        return numpy.lexsort((microbatches, scores, numpy.round(behind * 1e9)))
    late = seconds > seconds.min() * (1 + slack)
    steps_behind = numpy.round(behind / numpy.log1p(SAME))
    # The last key of lexsort counts first.
    keys = (microbatches, steps_behind, filled > ROOMY, scores, numpy.broadcast_to(rare, len(seconds)), late)
    simplest_first = numpy.lexsort(keys)
    slower = numpy.flatnonzero(late)
    slower_by_time = slower[numpy.argsort(seconds[late], kind="stable")]
    return numpy.concatenate([simplest_first[~late[simplest_first]], slower_by_time])
