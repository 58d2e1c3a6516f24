"""Batches and numbers of chips near those asked for, where what was asked for does not divide.

>>> batches_near(72, 512, 0.125)[:3]
[504, 576, 540]
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dragonscale.errors import InputError
from dragonscale.physics.hardware import Slice
from dragonscale.physics.hardware.slices import check_slice
from dragonscale.training.evaluation import Job
from dragonscale.training.inverse import quick
from dragonscale.training.keeper import Candidate
from dragonscale.training.scaling import slice_sizes
from dragonscale.training.search import search
from dragonscale.training.simplicity import leaves_room
from dragonscale.training.space import Space, divisors, meshes

SPAN = 0.125
"""How far a batch may be from the one asked for and still be the same to whoever trains."""
BETTER = 0.05
"""A neighbour is named where it is at least this much better."""
TRIES = 2
INNER = 8
"""Chips that replicas need not divide: a node of them holds the model instead."""


@dataclass(frozen=True)
class Near:
    """A job near the one asked for, and its best plan."""

    job: Job
    best: Candidate

    @property
    def mfu(self) -> float:
        return self.job.model_flops / (self.best.seconds * self.job.slice.flops)


def batches_near(chips: int, batch: int, span: float) -> list[int]:
    """Batches near one that more of the chips divide, those first that most do."""
    found = set()
    for size in divisors(chips):
        below = batch // size * size
        found |= {one for one in (below, below + size) if one > 0 and one != batch and abs(one / batch - 1) <= span}
    own = math.gcd(batch, chips)
    better = [one for one in found if math.gcd(one, chips) > own]
    return sorted(better, key=lambda one: (-math.gcd(one, chips), abs(one - batch)))


def better_batch(job: Job, space: Space, mfu: float) -> Near | None:
    """The batch near this one that makes the chips most of `BETTER` busier; None where the batch
    divides well already."""
    rest = job.slice.chips // math.gcd(job.batch, job.slice.chips)
    if job.slice.chips % job.batch == 0 or (rest <= INNER and rest & (rest - 1) == 0):
        return None
    tried = [
        _best(replace(job, batch=batch), quick(space))
        for batch in batches_near(job.slice.chips, job.batch, SPAN)[:TRIES]
    ]
    found = [near for near in tried if near is not None and near.mfu > (1 + BETTER) * mfu]
    return max(found, key=lambda near: near.mfu, default=None)


def nearest_possible(job: Job, space: Space, missing: float = 1.0) -> list[Near]:
    """Where nothing runs: the nearest batch that has a plan, and the nearest number of chips. Where the memory is too
    small by a factor, no batch helps, and the chips start from where all of it would hold as much."""
    batches = sorted(batches_near(job.slice.chips, job.batch, 1.0), key=lambda batch: abs(batch - job.batch))
    other = (replace(job, batch=batch) for batch in batches)
    pieces = (replace(job, slice=piece) for piece in _slices_near(job.slice, missing))
    found = [_first(jobs, space) for jobs in ((pieces,) if missing > 1 else (other, pieces))]
    return [near for near in found if near is not None]


def _first(jobs: Iterator[Job], space: Space) -> Near | None:
    possible = (job for job in jobs if len(meshes(job, space)["pipe"]))
    tried = (_best(job, quick(space)) for job, _ in zip(possible, range(2 * TRIES), strict=False))
    return next((near for near in tried if near is not None), None)


def _best(job: Job, space: Space) -> Near | None:
    found = search(job, space, 1).best
    return Near(job, found[0]) if found and leaves_room(found[0].hbm_bytes, job.slice.chip.visible) else None


def _slices_near(piece: Slice, missing: float = 1.0) -> list[Slice]:
    """Slices that can be had, nearest in size first; beyond the one given where that is too small."""
    most, least = (8 * missing * piece.chips, piece.chips + 1) if missing > 1 else (4 * piece.chips, piece.chips // 2)
    sizes = slice_sizes(piece.chip, int(most), max(1, least), fine=missing <= 1)
    wanted = piece.chips * missing / 2
    near = [one for one in sizes if one.chips != piece.chips and (missing <= 1 or one.chips >= wanted)]
    near.sort(key=lambda one: one.chips if missing > 1 else abs(one.chips - piece.chips))
    return [one for one in near if _rentable(one)]


def _rentable(piece: Slice) -> bool:
    try:
        check_slice(piece)
    except InputError:
        return False
    return True
