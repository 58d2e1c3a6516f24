"""Every plan of a space judged, the best ones kept: exhaustive, in blocks that fit the cache.

The answer is optimal under the model, since nothing is skipped: plans that are not feasible are counted by the limit they
break, and the one that misses by least is kept, so that an empty answer still says what to change.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy

from dragonscale.training.evaluation import NUMBERS, Job, Structure, as_numbers, experts_of, structures
from dragonscale.training.fast import cost_rows, judge_rows, lower_bounds
from dragonscale.training.keeper import Candidate, Keeper
from dragonscale.training.listing import listed
from dragonscale.training.plan import Plan
from dragonscale.training.rows import Chosen, Rows, choose, take
from dragonscale.training.simplicity import SLACK
from dragonscale.training.space import Kind, Space, even_chunks, kind_of, kinds_of, rows_of
from dragonscale.training.stages import BOTH_WAYS

BLOCK = 16384
"""Rows worked on at once: small enough for a processor's cache, large enough that NumPy's overhead does not show."""

Progress = Callable[[int, int], None]


@dataclass
class Found:
    """The result of a search: the recommended plan and others, the fastest, the best that `dscale run` and `dscale verify` take, the
    front of time against memory, and what became of the rest."""

    best: list[Candidate]
    front: list[Candidate]
    searched: int
    feasible: int
    misses: dict[str, int]
    nearest: Candidate | None
    seconds: float
    fastest: Candidate | None = None
    runs: Candidate | None = None
    verified: Candidate | None = None


def search(
    job: Job, space: Space | None = None, count: int = 5, progress: Progress | None = None, slack: float = SLACK
) -> Found:
    """The recommended plan of a space and the best of other meshes (`simplicity` says which of those within the slack is recommended;
    without slack the fastest is), and the front of time against memory.

    An expected step is never below its lower bound. That bound hardly ever decides, so plans are first compared without
    it, which can only flatter them; if it changes nothing for those that were kept, it changes nothing at all, and
    otherwise the search is repeated with it.
    """
    space, start = space or Space(), time.perf_counter()
    found = _found(job, _run(job, space, count, progress, slack, bounded=False))
    last = [one for one in (found.fastest, found.runs, found.verified) if one is not None]
    if _flattered(job, [*found.best, *found.front, *last]):
        found = _found(job, _run(job, space, count, progress, slack, bounded=True))
    return replace(found, seconds=time.perf_counter() - start)


def _found(job: Job, keeper: Keeper) -> Found:
    limit, slack = job.slice.chip.visible, keeper.slack
    every, runs, verified = (pool.ranked(limit, slack) for pool in keeper.pools)
    leaders = [one for one in keeper.leaders if one is not None]
    best = listed(every, leaders, keeper.count, job.sequence)
    fastest = min(every, key=lambda one: one.seconds, default=None)
    return Found(
        best, keeper.front.labels, keeper.searched, keeper.feasible, keeper.misses, keeper.nearest, 0.0, fastest,
        next(iter(runs), None), next(iter(verified), None),
    )  # fmt: skip


def _flattered(job: Job, kept: list[Candidate]) -> bool:
    """Whether the lower bound changes the time of any of these plans."""
    if not kept:
        return False
    numbers = as_numbers([one.plan for one in kept])
    words = [replace(one.plan, **dict.fromkeys(NUMBERS, 1)) for one in kept]
    kinds, which = structures(job, numbers, kept[0].plan.etp)  # a search does not vary it
    groups: dict[tuple[Plan, int], list[int]] = {}
    for place, group in enumerate(zip(words, which.tolist(), strict=True)):
        groups.setdefault(group, []).append(place)
    for (plan, kind), mine in groups.items():
        folded, undivided = kinds[kind]
        rows = Rows(job, take(numbers, numpy.array(mine)), folded, dict(undivided))
        chosen = choose(rows, slice(0, len(rows)), rows.numbers["virtual"], plan.layout)
        least = lower_bounds(rows, plan, chosen, cost_rows(rows, plan, (plan.remat,), bound=True))
        if numpy.any(least > numpy.array([kept[place].seconds for place in mine]) * (1 + 1e-9)):
            return True
    return False


def _run(job: Job, space: Space, count: int, progress: Progress | None, slack: float, bounded: bool) -> Keeper:
    keeper = Keeper(job, count, slack)
    table = list(blocks(job, rows_of(job, space), space.words.etp))
    total = sum(block_size(job, space, kind, block) for kind, _, block in table)
    # Under these schedules tokens on their way to experts hide otherwise, so layers are costed twice.
    two_way = [name for name in space.schedule if name in BOTH_WAYS]
    exchanged = experts_of(job) > 0 and job.stack.overlap.expert_two_way > job.stack.overlap.expert
    for kind, (folded, undivided), block in table:
        rows = Rows(job, block, folded, dict(undivided))
        named = space.words.layout if space.words.layout != "even" else ""
        batches = [
            (names, keeper.batch(choose(rows, *picked, named))) for names, picked in batches_of(job, space, block)
        ]
        for words in kind.words(space):
            costs = {False: cost_rows(rows, words, space.remat)}
            if two_way and exchanged:
                costs[True] = cost_rows(rows, replace(words, schedule=two_way[0]), space.remat)
            least = (
                [cost_rows(rows, replace(words, remat=one), (one,), bound=True) for one in space.remat]
                if bounded
                else []
            )
            for schedules, batch in batches:
                chosen = batch.chosen
                floor = [one.at(chosen.places) for one in least]
                at_places = {way: one.at(chosen.places) for way, one in costs.items()}
                for schedule in schedules:
                    named = replace(words, schedule=schedule)
                    here = at_places.get(schedule in two_way, at_places[False])
                    judged = judge_rows(rows, named, space.remat, chosen, here, floor)
                    legal = allowed(chosen, schedule)
                    for line, remat in enumerate(space.remat):
                        keeper.see(replace(named, remat=remat), batch, judged, line, legal)
                    if progress is not None:
                        progress(keeper.searched, total)
    return keeper


def blocks(job: Job, table: dict[str, Any], etp: bool = False) -> Iterator[tuple[Kind, Structure, dict[str, Any]]]:
    """The table in blocks of rows of one kind and structure, still sorted by the stages of the pipeline."""
    kinds = kinds_of(job, table, etp)
    for kind in numpy.unique(kinds).tolist():
        start, stop = int(numpy.searchsorted(kinds, kind)), int(numpy.searchsorted(kinds, kind, side="right"))
        some = {name: values[start:stop] for name, values in table.items()}
        found, which = structures(job, some, etp)
        for number, structure in enumerate(found):
            mine = some if len(found) == 1 else {name: values[which == number] for name, values in some.items()}
            for first in range(0, len(mine["pipe"]), BLOCK):
                yield kind_of(kind), structure, {name: values[first : first + BLOCK] for name, values in mine.items()}


Picked = tuple[Any, Any]
"""Places of rows, and the chunks per rank of each."""


def batches_of(job: Job, space: Space, block: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], Picked]]:
    """Schedules with the rows they make sense for. Without a pipeline every schedule is the same, and only one is tried;
    interleaving takes every row as often as there are ways to deal its layers evenly."""
    pipe = block["pipe"]
    staged, total = int(numpy.searchsorted(pipe, 2)), len(pipe)
    plain = tuple(name for name in space.schedule if name != "interleaved")
    if space.fixed.get("virtual", 1) == 1:
        alone = ("1f1b",) if "1f1b" in plain else plain[:1] or space.schedule[:1]
        if staged:
            yield alone, (slice(0, staged), numpy.ones(staged, int))
        if plain and staged < total:
            yield plain, (slice(staged, total), numpy.ones(total - staged, int))
    if "interleaved" in space.schedule:
        yield from ((("interleaved",), picked) for picked in _dealt(job, space, pipe))


def _dealt(job: Job, space: Space, pipe: Any) -> Iterator[Picked]:
    """Rows with each number of chunks that deals their layers evenly, about a block at a time."""
    pinned = space.fixed.get("virtual")
    places: list[slice] = []
    virtual: list[Any] = []
    for stages in numpy.unique(pipe[pipe > 1]).tolist():
        start, stop = int(numpy.searchsorted(pipe, stages)), int(numpy.searchsorted(pipe, stages, side="right"))
        for chunks in even_chunks(job.model.n_layers, stages):
            if pinned in (None, chunks):
                places.append(slice(start, stop))
                virtual.append(numpy.full(stop - start, chunks))
            if sum(map(len, virtual)) >= BLOCK:
                yield places, numpy.concatenate(virtual)
                places, virtual = [], []
    if places:
        yield places, numpy.concatenate(virtual)


def block_size(job: Job, space: Space, kind: Kind, block: dict[str, Any]) -> int:
    """The number of plans of a block."""
    one = sum(len(names) * len(virtual) for names, (_, virtual) in batches_of(job, space, block))
    return one * len(kind.words(space)) * len(space.remat)


def space_size(job: Job, space: Space | None = None) -> int:
    """The number of plans that a search would judge."""
    space = space or Space()
    return sum(
        block_size(job, space, kind, block) for kind, _, block in blocks(job, rows_of(job, space), space.words.etp)
    )


def allowed(chosen: Chosen, schedule: str) -> Any:
    """Where a schedule can run: interleaving takes microbatches in rounds of the ranks (Narayanan et al. 2021), and a
    bidirectional pipeline has as many ranks on either side and feeds both ends."""
    pipe, microbatches = chosen.numbers["pipe"], chosen.microbatches
    if schedule == "interleaved":
        return microbatches % pipe == 0
    if schedule == "dualpipe":
        return (pipe == 1) | ((pipe % 2 == 0) & (microbatches % 2 == 0) & (microbatches >= 2 * pipe))
    return numpy.ones(len(chosen), bool)
