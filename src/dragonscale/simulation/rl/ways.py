"""Every way to run a step: modes of a framework, pools of several sizes, the best trainer and engine plan of each.

The trainer's plan of a pool is what the training planner recommends for packed answers there; the engine's is the split
of the model over a replica that generates soonest. Ways are ranked by tokens trained per second and chip, ways that fit
before those that do not; of several frameworks by the middle of what published steps of each took.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dragonscale.physics.hardware import Slice, Torus
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.space.space import pool_parts, splits
from dragonscale.simulation.rl.frameworks import Framework
from dragonscale.simulation.rl.step import Judge, RlPlan, RlStep, job_key, judge_step, part, stage_job, trainer_bytes
from dragonscale.simulation.rl.work import RlWork, handed, packed_job
from dragonscale.training.cost.evaluation import Job, first
from dragonscale.training.plan.plan import Plan
from dragonscale.training.search.headroom import room_bytes
from dragonscale.training.search.search import search
from dragonscale.training.search.space import parse_space

RATIOS = (0.25, 1 / 3, 0.5, 0.75)
"""Parts of the chips that generate, of which the nearest pools are tried."""
AHEAD = 1.0
"""Steps that answers of an asynchronous run may be ahead without a word: up to 2 was safe and 4 began to hurt
(AsyncFlow, arXiv:2507.01663); most of the gain is there by 0.3 (verl docs/advance/fully_async.md)."""


ODD = (1, 3)
"""What is left of a trainer's hosts, halved as often as it goes: layers, heads and batches rarely divide by 5 or 7."""
WIDEST = 32
"""Chips of a replica beyond which no engine of a published run goes; wider ones are for what does not fit otherwise."""
TRIED = 4
"""The planner's best plans of an update, of which the fastest on answers as they are packed is taken."""


Packed = tuple[float, Job, Plan]
"""Seconds of an update, its job and plan."""


class Planner(Judge):
    """A search's own judge, which also keeps what it worked out for frameworks that share a trainer: the plans of a
    training search by its job and limits, and the best one by framework and pool. With `hosted`, Adam works on the host
    where a trainer's limits leave it no other place (optimizer_cpu_offload)."""

    def __init__(self, hosted: bool = False) -> None:
        super().__init__()
        self.hosted = hosted
        self.searched: dict[tuple[object, ...], list[Plan]] = {}
        self.trained: dict[tuple[str, str], tuple[Job, Plan] | None] = {}

    def plans(self, job: Job, limits: str) -> list[Plan]:
        """The planner's best plans of an update, then those of its front, the fastest first."""
        limits = limits.replace("offload=none", "offload=optimizer") if self.hosted else limits
        key = (*job_key(job), limits)
        if key not in self.searched:
            found = search(job, parse_space(limits), count=TRIED, bounded=False)
            several = (*found.best, *sorted(found.front, key=lambda one: one.seconds))
            self.searched[key] = [one.plan for one in several]
        return self.searched[key]


@dataclass(frozen=True)
class Choices:
    """What a search may choose from: modes by name (all of a framework's without any), how far answers may be ahead,
    the part of chips that generates or a `pool` of its own for that, and the format of the engine's weights and
    matmuls."""

    modes: tuple[str, ...] = ()
    ahead: float = AHEAD
    ratios: tuple[float, ...] = RATIOS
    dtype: str = "bf16"
    pool: Slice | None = None


def search_steps(work: RlWork, piece: Slice, rows: list[Framework], choices: Choices | None = None) -> list[RlStep]:
    """Every way of some frameworks judged, the best first; with Adam on the host only where no other way fits."""
    asked, found = choices or Choices(), list[RlStep]()
    for planner in (Planner(), Planner(hosted=True)):
        found += [judge_step(work, plan, planner) for row in rows for plan in ways(work, piece, row, asked, planner)]
        if any(step.fits for step in found):
            break
    return sorted(
        found, key=lambda step: (not step.fits, step.tight, step.weighed_s * step.plan.chips, step.plan.staleness)
    )


def ways(work: RlWork, piece: Slice, row: Framework, asked: Choices, planner: Planner) -> Iterator[RlPlan]:
    """The plans of a framework: both on all chips, or two pools. What the trainer does on a pool is worked out once."""
    modes = [mode for mode in row.modes if not asked.modes or mode in asked.modes]
    for trainer, mode in ((trainer, mode) for trainer in row.trainers for mode in modes):
        pairs = [(piece, piece)] if mode == "colocated" else pools(piece, asked.ratios)
        if asked.pool is not None:
            pairs = [] if mode == "colocated" else [(piece, asked.pool)]
        for train_pool, pool in pairs:
            key = (f"{trainer} of {row.name}", str(train_pool))
            if key not in planner.trained:
                planner.trained[key] = best_training(work, train_pool, trainer, row, planner)
            if (both := planner.trained[key]) is None:
                continue
            ahead = asked.ahead if mode == "async" else 0.0
            job, plan = both
            engine = best_engine(work, RlPlan(mode, row, job, plan, ServingPlan(), pool, ahead), asked.dtype, planner)
            if engine is not None:
                yield engine


def pools(piece: Slice, ratios: tuple[float, ...]) -> list[tuple[Slice, Slice]]:
    """Two pools of a slice, trainer and engine, for each part of the chips that should generate: under switches of any
    number of whole hosts.

    >>> from dragonscale.physics.hardware import parse_slice
    >>> [f"{train.chips}+{pool.chips}" for train, pool in pools(parse_slice("h100:64"), RATIOS)]
    ['48+16', '32+32', '16+48']
    """
    sizes = {one.chips: one for one in pool_parts(piece)}
    if not isinstance(piece.chip.network, Torus):
        host = piece.chips // piece.vms
        sizes |= {size: Slice(piece.chip, (size,)) for size in range(host, piece.chips, host)}
    both = [size for size in sizes if piece.chips - size in sizes]
    both = [size for size in both if _odd(piece.chips - size) in ODD] or both
    near = {min(both, key=lambda size: abs(size - ratio * piece.chips)) for ratio in ratios} if both else set[int]()
    return [(sizes[piece.chips - size], sizes[size]) for size in sorted(near)]


def _odd(count: int) -> int:
    return count // (count & -count)


def best_training(
    work: RlWork, piece: Slice, trainer: str, row: Framework, planner: Planner
) -> tuple[Job, Plan] | None:
    """The training planner's recommended plan of an update on so many chips; None where nothing fits."""
    work = handed(work, row, trainer)
    most = max(int(work.answers / work.updates), 1)
    ways = max(size for size in range(1, min(most, piece.chips) + 1) if piece.chips % size == 0)
    job, roomy, tight = packed_job(work, piece, trainer, ways), list[Packed](), list[Packed]()
    for plan in planner.plans(job, row.limits.get(trainer, "")):
        # answers pack better on as few replicas as the plan has, and stages may have them padded
        own = packed_job(work, piece, trainer, plan.replicas * plan.microbatch)
        verdict = planner.verdict(stage_job(work, RlPlan("", row, own, plan, ServingPlan(), piece)), plan)
        size = trainer_bytes(work, verdict, row)
        if size <= piece.chip.visible:
            (roomy if size <= room_bytes(job) else tight).append((first(verdict.seconds), own, plan))
        if len(roomy) == TRIED:
            break
    best = min((roomy or tight)[:TRIED], key=lambda one: one[0], default=None)
    return best and best[1:]


def best_engine(work: RlWork, plan: RlPlan, dtype: str, planner: Planner) -> RlPlan | None:
    """The plan with the split of the model over a replica that generates soonest; None where none fits."""
    tried: list[tuple[float, int, RlPlan]] = []
    parts = [part(plan.pool, size) for size in (1, 2, 4, 8, 16, 32, 64) if plan.pool.chips % size == 0]
    engine = plan.framework.engine
    for split in {split.tensor: split for piece in parts for split in splits(work.model, piece, engine)}.values():
        other = replace(plan, rollout=ServingPlan(tensor=split.tensor, weights=dtype, compute=dtype))
        if plan.pool.chips % split.tensor or part(plan.pool, split.tensor).chips != split.tensor:
            continue
        tried.append((planner.rollout(work, other, other.ahead).seconds, split.tensor, other))
    best = min(tried, key=lambda one: (math.isinf(one[0]), one[1] > WIDEST, *one[:2]), default=None)
    return best[2] if best and math.isfinite(best[0]) else None
