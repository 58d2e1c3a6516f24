"""Every plan of a space judged, the best ones kept: exhaustive, in blocks that fit the cache.

The answer is optimal under the model, since nothing is skipped: plans that are not feasible are counted by the limit they
break, and the one that misses by least is kept, so that an empty answer still says what to change.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy

from dragonscale.training.evaluation import Job
from dragonscale.training.fast import Rows, judge_rows
from dragonscale.training.pareto import Front
from dragonscale.training.plan import Plan
from dragonscale.training.space import Space, even_chunks, kinds_of, rows_of, zero_stages

BLOCK = 8192
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


@dataclass(frozen=True)
class Batch:
    """Plans that are judged in one call: some rows, with the words and the chunks per rank that they share."""

    words: Plan
    virtual: int
    part: slice

    @property
    def size(self) -> int:
        return self.part.stop - self.part.start


@dataclass
class _Keeper:
    """What a search remembers of the plans it has seen."""

    count: int
    limit: float
    best: list[Candidate] = field(default_factory=list)
    front: Front = field(default_factory=Front)
    misses: dict[str, int] = field(default_factory=dict)
    nearest: Candidate | None = None
    searched: int = 0
    feasible: int = 0

    def take(self, rows: Rows, batch: Batch) -> None:
        verdict = judge_rows(rows, batch.words, batch.virtual, batch.part)
        size = batch.size
        seconds, held = (numpy.broadcast_to(value, size) for value in (verdict.seconds, verdict.hbm_bytes))
        legal = allowed(rows, batch)
        laid = numpy.broadcast_to(verdict.possible, size)
        fits = held <= self.limit
        good = legal & laid & fits
        self.searched += size
        self._count(legal, laid, fits)
        places = numpy.flatnonzero(good)
        self.feasible += len(places)

        def label(place: int) -> Candidate:
            where = batch.part.start + place
            numbers = {name: int(values[where]) for name, values in rows.numbers.items()}
            plan = replace(batch.words, virtual=batch.virtual, **numbers)
            return Candidate(plan, float(seconds[place]), float(held[place]))

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
    """The `count` fastest feasible plans of a space, and the front of time against memory."""
    space, start = space or Space(), time.perf_counter()
    table = rows_of(job, space)
    keeper = _Keeper(count, job.piece.chip.hbm.capacity)
    total = sum(one.size for kind, block in blocks(job, table) for one in batches(job, space, kind, block))
    for kind, block in blocks(job, table):
        rows = Rows(job, block, folded=kind % 2 == 0)
        for batch in batches(job, space, kind, block):
            keeper.take(rows, batch)
            if progress is not None:
                progress(keeper.searched, total)
    labels = keeper.front.labels
    spent = time.perf_counter() - start
    return Found(keeper.best, labels, keeper.searched, keeper.feasible, keeper.misses, keeper.nearest, spent)


def blocks(job: Job, table: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The table in pieces of rows of one kind."""
    kinds = kinds_of(job, table)
    for kind in numpy.unique(kinds).tolist():
        start, stop = int(numpy.searchsorted(kinds, kind)), int(numpy.searchsorted(kinds, kind, side="right"))
        for first in range(start, stop, BLOCK):
            yield kind, {name: values[first : min(first + BLOCK, stop)] for name, values in table.items()}


def batches(job: Job, space: Space, kind: int, block: dict[str, Any]) -> Iterator[Batch]:
    """Every combination of words and chunks per rank, with the rows of a block that it makes sense for.

    Words that would change nothing are not tried: ZeRO stages without an axis to split over, schedules without a
    pipeline.
    """
    pipe, zeros = block["pipe"], zero_stages(space, kind)
    staged = int(numpy.searchsorted(pipe, 2))
    for zero in zeros:
        for remat in space.remat:
            words = replace(space.words, zero=zero, remat=remat)
            if staged and space.fixed.get("virtual", 1) == 1:
                one = "1f1b" if "1f1b" in space.schedule else space.schedule[0]
                yield Batch(replace(words, schedule=one), 1, slice(0, staged))
            for schedule in space.schedule:
                for virtual, part in _chunked(job, space, schedule, pipe):
                    yield Batch(replace(words, schedule=schedule), virtual, part)


def _chunked(job: Job, space: Space, schedule: str, pipe: Any) -> Iterator[tuple[int, slice]]:
    """Chunks per rank with the runs of rows (sorted by `pipe`) that they deal evenly."""
    pinned = space.fixed.get("virtual")
    wanted: dict[int, list[tuple[int, int]]] = {}
    for stages in numpy.unique(pipe[pipe > 1]).tolist():
        run = (int(numpy.searchsorted(pipe, stages)), int(numpy.searchsorted(pipe, stages, side="right")))
        for virtual in even_chunks(job.model.n_layers, stages) if schedule == "interleaved" else (1,):
            if pinned in (None, virtual):
                runs = wanted.setdefault(virtual, [])
                if runs and runs[-1][1] == run[0]:
                    run = (runs.pop()[0], run[1])
                runs.append(run)
    for virtual, runs in wanted.items():
        for start, stop in runs:
            yield virtual, slice(start, stop)


def allowed(rows: Rows, batch: Batch) -> Any:
    """Where a schedule can run: interleaving takes microbatches in rounds of the ranks (Narayanan et al. 2021), and a
    bidirectional pipeline has as many ranks on either side and feeds both ends."""
    numbers, job, part = rows.numbers, rows.job, batch.part
    pipe = numbers["pipe"][part]
    share = numbers["data"][part] * numbers["fsdp"][part] * numbers["expert"][part] * numbers["microbatch"][part]
    microbatches = job.batch // share
    if batch.words.schedule == "interleaved":
        return microbatches % pipe == 0
    if batch.words.schedule == "dualpipe":
        return (pipe % 2 == 0) & (microbatches % 2 == 0) & (microbatches >= 2 * pipe)
    return numpy.ones(batch.size, bool)
