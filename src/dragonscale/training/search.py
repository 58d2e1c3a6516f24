"""Every plan of a space judged, the best ones kept: exhaustive, in blocks that fit the cache.

The answer is optimal under the model, since nothing is skipped: plans that are not feasible are counted by the limit they
break, and the one that misses by least is kept, so that an empty answer still says what to change.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy

from dragonscale.plan.pareto import Front
from dragonscale.training.evaluation import NUMBERS, Job, Structure, as_numbers, structures
from dragonscale.training.fast import Judged, cost_rows, judge_rows, lower_bounds
from dragonscale.training.plan import Plan, unrunnable
from dragonscale.training.rows import Chosen, Rows, choose, take
from dragonscale.training.space import Kind, Space, even_chunks, kind_of, kinds_of, rows_of

BLOCK = 16384
"""Rows worked on at once: small enough for a processor's cache, large enough that NumPy's overhead does not show."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Candidate:
    """A plan with what a search compares."""

    plan: Plan
    seconds: float
    hbm_bytes: float


@dataclass
class Found:
    """The result of a search: best plans first, the front of time against memory, and what became of the others."""

    best: list[Candidate]
    front: list[Candidate]
    searched: int
    feasible: int
    misses: dict[str, int]
    nearest: Candidate | None
    seconds: float


@dataclass
class _Keeper:
    """What a search remembers of the plans it has seen."""

    count: int
    limit: float
    runs_only: bool = False
    best: list[Candidate] = field(default_factory=list)
    front: Front = field(default_factory=Front)
    misses: dict[str, int] = field(default_factory=dict)
    nearest: Candidate | None = None
    searched: int = 0
    feasible: int = 0

    def see(self, words: Plan, chosen: Chosen, judged: Judged, line: int) -> None:
        """Take in a batch of plans: one remat policy's line of what was judged."""
        size = len(chosen)
        seconds, held = judged.seconds[line], numpy.broadcast_to(judged.hbm_bytes[line], size)
        legal = allowed(chosen, words.schedule)
        if self.runs_only:
            piped, alone = (not unrunnable(replace(words, pipe=pipe, context=2)) for pipe in (2, 1))
            legal = legal & numpy.where(chosen.numbers["pipe"] > 1, piped, alone)
        laid = numpy.broadcast_to(judged.possible, size)
        fits = held <= self.limit
        self.searched += size
        self._count(legal, laid, fits)
        places = numpy.flatnonzero(legal & laid & fits)
        self.feasible += len(places)

        def label(place: int) -> Candidate:
            numbers = {name: int(values[place]) for name, values in chosen.numbers.items()}
            return Candidate(replace(words, **numbers), float(seconds[place]), float(held[place]))

        if len(places):
            self._keep(places, seconds, label)
            self.front.offer(seconds[places], held[places], lambda place: label(int(places[place])))
        elif not self.feasible:
            self._miss(legal & laid, held, label)

    def _count(self, legal: Any, laid: Any, fits: Any) -> None:
        for name, broken in (("schedule", ~legal), ("torus", legal & ~laid), ("memory", legal & laid & ~fits)):
            self.misses[name] = self.misses.get(name, 0) + int(numpy.count_nonzero(broken))

    def _keep(self, places: Any, seconds: Any, label: Callable[[int], Candidate]) -> None:
        full = len(self.best) >= self.count
        worst = self.best[-1].seconds if full else numpy.inf
        close = places[seconds[places] <= worst]
        if not len(close):
            return
        if len(close) > self.count:
            close = close[numpy.argpartition(seconds[close], self.count - 1)[: self.count]]
        merged = [*self.best, *(label(int(place)) for place in close)]
        merged.sort(key=lambda one: (float(f"{one.seconds:.9g}"), one.hbm_bytes))
        self.best = merged[: self.count]

    def _miss(self, otherwise: Any, held: Any, label: Callable[[int], Candidate]) -> None:
        places = numpy.flatnonzero(otherwise)
        if len(places):
            place = int(places[numpy.argmin(held[places])])
            if self.nearest is None or held[place] < self.nearest.hbm_bytes:
                self.nearest = label(place)


def search(job: Job, space: Space | None = None, count: int = 5, progress: Progress | None = None) -> Found:
    """The `count` fastest feasible plans of a space, and the front of time against memory.

    An expected step is never below its lower bound. That bound hardly ever decides, so plans are first compared without
    it, which can only flatter them; if it changes nothing for those that were kept, it changes nothing at all, and
    otherwise the search is repeated with it.
    """
    space, start = space or Space(), time.perf_counter()
    keeper = _run(job, space, count, progress, bounded=False)
    if _flattered(job, [*keeper.best, *keeper.front.labels]):
        keeper = _run(job, space, count, progress, bounded=True)
    spent = time.perf_counter() - start
    labels = keeper.front.labels
    return Found(keeper.best, labels, keeper.searched, keeper.feasible, keeper.misses, keeper.nearest, spent)


def _flattered(job: Job, kept: list[Candidate]) -> bool:
    """Whether the lower bound changes the time of any of these plans."""
    if not kept:
        return False
    numbers = as_numbers([one.plan for one in kept])
    words = [replace(one.plan, **dict.fromkeys(NUMBERS, 1)) for one in kept]
    kinds, which = structures(job, numbers)
    groups: dict[tuple[Plan, int], list[int]] = {}
    for place, group in enumerate(zip(words, which.tolist(), strict=True)):
        groups.setdefault(group, []).append(place)
    for (plan, kind), mine in groups.items():
        folded, undivided = kinds[kind]
        rows = Rows(job, take(numbers, numpy.array(mine)), folded, dict(undivided))
        chosen = choose(rows, slice(0, len(rows)), rows.numbers["virtual"])
        least = lower_bounds(rows, plan, chosen, cost_rows(rows, plan, (plan.remat,), bound=True))
        if numpy.any(least > numpy.array([kept[place].seconds for place in mine]) * (1 + 1e-9)):
            return True
    return False


def _run(job: Job, space: Space, count: int, progress: Progress | None, bounded: bool) -> _Keeper:
    keeper = _Keeper(count, job.slice.chip.visible, job.stack.runs_only)
    table = list(blocks(job, rows_of(job, space)))
    total = sum(block_size(job, space, kind, block) for kind, _, block in table)
    for kind, (folded, undivided), block in table:
        rows = Rows(job, block, folded, dict(undivided))
        batches = [(names, choose(rows, *picked)) for names, picked in batches_of(job, space, block)]
        for words in kind.words(space):
            costs = cost_rows(rows, words, space.remat)
            least = (
                [cost_rows(rows, replace(words, remat=one), (one,), bound=True) for one in space.remat]
                if bounded
                else []
            )
            for schedules, chosen in batches:
                here, floor = costs.at(chosen.places), [one.at(chosen.places) for one in least]
                for schedule in schedules:
                    named = replace(words, schedule=schedule)
                    judged = judge_rows(rows, named, space.remat, chosen, here, floor)
                    for line, remat in enumerate(space.remat):
                        keeper.see(replace(named, remat=remat), chosen, judged, line)
                    if progress is not None:
                        progress(keeper.searched, total)
    return keeper


def blocks(job: Job, table: dict[str, Any]) -> Iterator[tuple[Kind, Structure, dict[str, Any]]]:
    """The table in blocks of rows of one kind and structure, still sorted by the stages of the pipeline."""
    kinds = kinds_of(job, table)
    for kind in numpy.unique(kinds).tolist():
        start, stop = int(numpy.searchsorted(kinds, kind)), int(numpy.searchsorted(kinds, kind, side="right"))
        some = {name: values[start:stop] for name, values in table.items()}
        found, which = structures(job, some)
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
    return sum(block_size(job, space, kind, block) for kind, _, block in blocks(job, rows_of(job, space)))


def allowed(chosen: Chosen, schedule: str) -> Any:
    """Where a schedule can run: interleaving takes microbatches in rounds of the ranks (Narayanan et al. 2021), and a
    bidirectional pipeline has as many ranks on either side and feeds both ends."""
    pipe, microbatches = chosen.numbers["pipe"], chosen.microbatches
    if schedule == "interleaved":
        return microbatches % pipe == 0
    if schedule == "dualpipe":
        return (pipe == 1) | ((pipe % 2 == 0) & (microbatches % 2 == 0) & (microbatches >= 2 * pipe))
    return numpy.ones(len(chosen), bool)
