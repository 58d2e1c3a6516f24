"""Every way to run a step: modes of a framework, pools of several sizes, the best trainer and engine plan of each.

The trainer's plan of a pool is the training planner's recommendation for packed answers; the engine's is the split of
the model over a replica that generates fastest. Ways are ranked by tokens trained per second and chip, those that fit
first, and across frameworks by the middle of what published steps of each took.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from dragonscale.physics.hardware import Slice, Torus
from dragonscale.physics.numbers import first_number
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.space.space import pool_parts, splits
from dragonscale.simulation.rl.frameworks import Framework
from dragonscale.simulation.rl.step import Judge, RlPlan, RlStep, job_key, judge_step, part, stage_job, trainer_bytes
from dragonscale.simulation.rl.work import RlWork, fullest_job, handed, packed_job
from dragonscale.training.cost.evaluation import Job
from dragonscale.training.plan.plan import Plan
from dragonscale.training.search.headroom import room_bytes
from dragonscale.training.search.search import search
from dragonscale.training.search.space import parse_space

RATIOS = (0.25, 1 / 3, 0.5, 0.75)
"""Fractions of the chips that generate; the nearest possible pools are tried."""
AHEAD = 1.0
"""Default for the steps that answers of an asynchronous run may be ahead: up to 2 was safe and 4 began to hurt
(AsyncFlow, arXiv:2507.01663); most of the gain is there by 0.3 (verl docs/advance/fully_async.md)."""


ODD_FACTORS = (1, 3)
"""Odd factors of a trainer's chips: layers, heads and batches rarely divide by 5 or 7."""
MAX_REPLICA_CHIPS = 32
"""Most chips of an engine's replica in a published run; wider ones are for models that do not fit otherwise."""
TRIED = 4
"""Plans of the planner that are judged on the answers as they are packed; the fastest wins."""


class PackedUpdate(NamedTuple):
    """An update of packed answers: its seconds, its job and its plan."""

    seconds: float
    job: Job
    plan: Plan


class Planner(Judge):
    """A search's own judge, which also caches what frameworks with the same trainer share.

    The plans of a training search by its job and limits, and the best plan by framework and pool. With `hosted`, Adam
    runs on the host if a trainer's limits leave it no other place (optimizer_cpu_offload).
    """

    def __init__(self, hosted: bool = False) -> None:
        super().__init__()
        self.hosted = hosted
        self.searched: dict[tuple[object, ...], list[Plan]] = {}
        self.trained: dict[tuple[str, str], tuple[Job, Plan] | None] = {}

    def plans(self, job: Job, limits: str) -> list[Plan]:
        """The planner's best plans of an update, then those of its front, the fastest first; where none fits, the
        nearest."""
        if self.hosted:
            limits = limits.replace("offload=none", "offload=optimizer")
        key = (*job_key(job), limits)
        if key not in self.searched:
            result = search(job, parse_space(limits), count=TRIED, bounded=False)
            several = (*result.best, *sorted(result.front, key=lambda candidate: candidate.seconds))
            plans = [candidate.plan for candidate in several]
            if not plans and self.hosted and result.nearest is not None:
                plans = [result.nearest.plan]
            self.searched[key] = plans
        return self.searched[key]


@dataclass(frozen=True)
class Choices:
    """What a search may choose from.

    Modes by name (by default all of a framework's), how far answers may be ahead, the fraction of chips that generates
    or a separate `pool` for that, and the format of the engine's weights and matmuls.
    """

    modes: tuple[str, ...] = ()
    ahead: float = AHEAD
    ratios: tuple[float, ...] = RATIOS
    dtype: str = "bf16"
    pool: Slice | None = None


def search_steps(work: RlWork, chips: Slice, rows: list[Framework], choices: Choices | None = None) -> list[RlStep]:
    """Every way of some frameworks judged, the best first; with Adam on the host only if no other way fits."""
    allowed, steps = choices or Choices(), list[RlStep]()
    for planner in (Planner(), Planner(hosted=True)):
        for row in rows:
            steps += [judge_step(work, plan, planner) for plan in ways(work, chips, row, allowed, planner)]
        if any(step.fits for step in steps):
            break
    return sorted(
        steps, key=lambda step: (not step.fits, step.tight, step.weighed_s * step.plan.chips, step.plan.staleness)
    )


def ways(work: RlWork, chips: Slice, row: Framework, allowed: Choices, planner: Planner) -> Iterator[RlPlan]:
    """The plans of a framework: trainer and engine both on all chips, or on two pools."""
    modes = [mode for mode in row.modes if not allowed.modes or mode in allowed.modes]
    for trainer, mode in itertools.product(row.trainers, modes):
        for train_pool, pool in _pool_pairs(chips, mode, allowed):
            key = (f"{trainer} of {row.name}", str(train_pool))
            if key not in planner.trained:
                planner.trained[key] = best_training(work, train_pool, trainer, row, planner)
            training = planner.trained[key]
            if training is None:
                continue
            ahead = allowed.ahead if mode == "async" else 0.0
            job, plan = training
            fullest = fullest_job(handed(work, row, trainer), job)
            chosen = RlPlan(mode, row, job, plan, ServingPlan(), pool, ahead, fullest)
            engine = best_engine(work, chosen, allowed.dtype, planner)
            if engine is not None:
                yield engine


def _pool_pairs(chips: Slice, mode: str, allowed: Choices) -> list[tuple[Slice, Slice]]:
    """Pairs of slices, for the trainer and for the engine, that a mode may use."""
    if mode == "colocated":
        return [] if allowed.pool is not None else [(chips, chips)]
    if allowed.pool is not None:
        return [(chips, allowed.pool)]
    return pools(chips, allowed.ratios)


def pools(whole: Slice, ratios: tuple[float, ...]) -> list[tuple[Slice, Slice]]:
    """Two pools of a slice, for trainer and engine, for each fraction of the chips that should generate; under switches
    of any number of whole hosts.

    >>> from dragonscale.physics.hardware import parse_slice
    >>> [f"{train.chips}+{pool.chips}" for train, pool in pools(parse_slice("h100:64"), RATIOS)]
    ['48+16', '32+32', '16+48']
    """
    slices = {candidate.chips: candidate for candidate in pool_parts(whole)}
    if not isinstance(whole.chip.network, Torus):
        host = whole.chips // whole.vms
        slices |= {size: Slice(whole.chip, (size,)) for size in range(host, whole.chips, host)}
    # sizes of the engine's pool that leave a pool for the trainer
    sizes = [size for size in slices if whole.chips - size in slices]
    sizes = [size for size in sizes if _odd_factor(whole.chips - size) in ODD_FACTORS] or sizes
    if not sizes:
        return []
    nearest = {min(sizes, key=lambda size: abs(size - ratio * whole.chips)) for ratio in ratios}
    return [(slices[whole.chips - size], slices[size]) for size in sorted(nearest)]


def _odd_factor(count: int) -> int:
    """What is left of a number after dividing by two as often as possible."""
    return count // (count & -count)


def best_training(
    work: RlWork, chips: Slice, trainer: str, row: Framework, planner: Planner
) -> tuple[Job, Plan] | None:
    """The training planner's recommended plan of an update on a slice, with its job; None if nothing fits. The
    last planner of a search then gives the one that misses by least."""
    # beside an engine that stays
    engine_bytes = row.share("colocated") * chips.chip.visible if row.stays else 0.0
    work = handed(work, row, trainer)
    max_ways = max(int(work.answers / work.updates), 1)
    ways = max(size for size in range(1, min(max_ways, chips.chips) + 1) if chips.chips % size == 0)
    job = packed_job(work, chips, trainer, ways)
    roomy, tight, beyond = list[PackedUpdate](), list[PackedUpdate](), list[tuple[float, PackedUpdate]]()
    for plan in planner.plans(job, row.limits.get(trainer, "")):
        # answers pack better on as few replicas as the plan has, and stages may have them padded
        packed = packed_job(work, chips, trainer, plan.replicas * plan.microbatch)
        verdict = planner.verdict(stage_job(work, RlPlan("", row, packed, plan, ServingPlan(), chips)), plan)
        fullest = planner.verdict(fullest_job(work, packed), plan)
        size = trainer_bytes(work, fullest, row) + engine_bytes
        update = PackedUpdate(first_number(verdict.seconds), packed, plan)
        if size > chips.chip.visible:
            beyond.append((size, update))
            continue
        fits_with_headroom = size <= room_bytes(job)
        updates = roomy if fits_with_headroom else tight
        updates.append(update)
        if len(roomy) == TRIED:
            break
    best = min((roomy or tight)[:TRIED], key=lambda update: update.seconds, default=None)
    if best is None and beyond and planner.hosted:  # the last that is tried
        best = min(beyond, key=lambda sized: sized[0])[1]
    return None if best is None else (best.job, best.plan)


def engine_weights(work: RlWork, dtype: str) -> str:
    """The format of the engine's weights: where the trainer's are frozen in 4 bits, the engine loads the same."""
    return "int4" if work.tuning.frozen == "nf4" else dtype


def best_engine(work: RlWork, plan: RlPlan, dtype: str, planner: Planner) -> RlPlan | None:
    """The plan with the split of the model over a replica that generates fastest; None if none fits."""
    candidates: list[tuple[bool, bool, float, int, RlPlan]] = []
    tensors: dict[int, None] = {}  # in order of first appearance
    for size in (1, 2, 4, 8, 16, 32, 64):
        if plan.pool.chips % size == 0:
            replica = part(plan.pool, size)
            tensors |= dict.fromkeys(split.tensor for split in splits(work.model, replica, plan.framework.engine))
    for tensor in tensors:
        if plan.pool.chips % tensor or part(plan.pool, tensor).chips != tensor:
            continue
        rollout = ServingPlan(tensor=tensor, weights=engine_weights(work, dtype), compute=dtype)
        candidate = replace(plan, rollout=rollout)
        seconds = planner.rollout(work, candidate, candidate.ahead).seconds
        candidates.append((math.isinf(seconds), tensor > MAX_REPLICA_CHIPS, seconds, tensor, candidate))
    best = min(candidates, key=lambda candidate: candidate[:4], default=None)
    if best is None or best[0]:
        return None
    return best[4]
