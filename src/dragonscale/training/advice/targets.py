"""The same job on several chips and slices, compared by time or by cost.

Chips are tried in the order of what they could do at best, and one whose peak already loses clearly to what was found
is not searched. On one kind of chip more chips are hardly ever cheaper, unless fewer must recompute: larger slices are
tried only then. By cost alone the smallest slice would win with a run of many years: without a deadline, runs of more
than `LONGEST_RUN_S` come after shorter ones.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from dragonscale.physics.hardware import Chip, Slice
from dragonscale.physics.units import DAY
from dragonscale.training.advice.inverse import MOST_CHIPS, finished_s, least_chips
from dragonscale.training.advice.scaling import slice_sizes
from dragonscale.training.cost.evaluation import Job
from dragonscale.training.search.search import Progress, shared
from dragonscale.training.search.search_memory import Candidate
from dragonscale.training.search.space import Space
from dragonscale.training.search.stack_search import StackSearch, search_stacks

Target = tuple[Chip, Slice | None]
SIZES = 3
"""Slices of a chip that hold the job, at most, of which the cheapest is taken."""
LONGEST_RUN_S = 365 * DAY
"""The longest run that is recommended for its cost where no deadline is given."""
LOST = 1.5
"""A chip that costs so much more at its peak than another in earnest is not searched."""


@dataclass(frozen=True)
class Tried:
    """A slice with its recommended plan, or None and why there is none. `least` is what a million tokens cost at the
    chip's peak."""

    job: Job
    best: Candidate | None
    least: float | None
    note: str = ""
    searched: bool = True
    stacks: tuple[StackSearch, ...] = ()
    """The slice with each stack that was searched, that of `job` first."""

    @property
    def roomy(self) -> bool:
        """Whether there is a plan, and it leaves room in memory."""
        return self.best is not None and self.best.roomy

    @property
    def tokens_per_s(self) -> float | None:
        return None if self.best is None else self.job.tokens / self.best.seconds

    @property
    def usd_per_mtok(self) -> float | None:
        """Dollars for a million tokens; None without a price or a plan."""
        price = self.job.slice.chip.price
        if self.best is None or price is None:
            return None
        return self.best.seconds / self.job.tokens * 1e6 / 3600 * self.job.slice.chips * price


def usd_at_peak(job: Job, chip: Chip, dtype: str) -> float | None:
    """Dollars for a million tokens if every chip computed at its peak; None without a price."""
    if chip.price is None:
        return None
    return job.model_flops / job.tokens * 1e6 / chip.peak(dtype) / 3600 * chip.price


def compare(
    job_on: Callable[[Slice], Job],
    targets: Iterable[Target],
    space: Space,
    rank: str = "time",
    slack: float = 0.0,
    deadline: float | None = None,
    tokens: float | None = None,
    progress: Progress | None = None,
) -> list[Tried]:
    """Every slice, and of every chip the slice that holds the job, best first; those without a plan last."""

    found: list[Tried] = []
    some = list(targets)
    limit_s = deadline
    if limit_s is None and rank == "cost" and tokens is not None:
        limit_s = LONGEST_RUN_S

    def in_time(one: Tried) -> bool:
        return _ends_within(one, limit_s, tokens)

    def order_of(one: Tried) -> tuple[bool, bool, bool, float, float]:
        return _rank(one, rank, in_time(one))

    def sized(chip: Chip, piece: Slice | None, job: Job, limit: float | None, bar: Progress | None) -> list[Tried]:
        if piece is not None:
            pieces = [piece]
        else:
            pieces = slice_sizes(chip, MOST_CHIPS, least_chips(job, chip, limit, tokens, space.words))
        searches = (search_stacks(job, space, 1, bar, slack) for job in map(job_on, pieces))
        return list(_tried(searches, in_time))

    jobs = {place: job_on(piece or slice_sizes(chip, MOST_CHIPS)[0]) for place, (chip, piece) in enumerate(some)}
    floors = {place: usd_at_peak(jobs[place], chip, space.words.dtype) for place, (chip, _) in enumerate(some)}
    order = sorted(jobs, key=lambda place: _or_more(floors[place]))
    for done, place in enumerate(order):
        chip, piece = some[place]
        floor = floors[place]
        known = [one.usd_per_mtok for one in found if one.usd_per_mtok is not None]
        if rank == "cost" and piece is None and floor is not None and known and floor > LOST * min(known):
            why = f"skipped: ${floor:.4f}/Mtok even at 100% MFU"
            found.append(Tried(jobs[place], None, floor, why, searched=False))
            continue
        bar = shared(progress, done, len(order))
        tried = sized(chip, piece, jobs[place], limit_s, bar)
        if piece is None and limit_s != deadline and all(one.best is None for one in tried):
            # no slice that is large enough to end within the year has a plan: smaller ones may
            tried = sized(chip, piece, jobs[place], deadline, bar)
        enough = [one for one in tried if _ends_within(one, deadline, tokens)]
        why = "no plan fits" if all(one.best is None for one in tried) else "none of its slices is in time"
        found.append(min(enough, key=order_of) if enough else Tried(jobs[place], None, floor, why))
    return sorted(found, key=order_of)


def _ends_within(one: Tried, limit_s: float | None, tokens: float | None) -> bool:
    """Whether there is a plan whose run ends in time, failures with it; without a limit every run does."""
    if one.best is None:
        return False
    return limit_s is None or finished_s(one.job, one.best, tokens) <= limit_s


def _tried(searches: Iterable[list[StackSearch]], enough: Callable[[Tried], bool]) -> Iterator[Tried]:
    """The recommended plan of one slice after the other, smallest first, until larger ones cannot be cheaper."""
    fitting = 0
    for stacks in searches:
        one = Tried(stacks[0].job, stacks[0].best, None, stacks=tuple(stacks))
        yield one
        fits = enough(one) and one.roomy
        fitting += fits
        if fitting == SIZES or (fits and one.best is not None and one.best.plan.remat == "none"):
            return


def _or_more(dollars: float | None) -> float:
    """What is not known comes last."""
    return math.inf if dollars is None else dollars


def _rank(one: Tried, rank: str, in_time: bool) -> tuple[bool, bool, bool, float, float]:
    """Plans before none, those that end in time and those that leave room in memory before others; then dollars, or
    seconds of a step; without a price chip-hours decide among those that have none."""
    if one.best is None:
        return True, True, True, one.least or math.inf, 0.0
    if rank == "time":
        return False, False, not one.roomy, one.best.seconds, 0.0
    hours = one.best.seconds * one.job.slice.chips
    return False, not in_time, not one.roomy, _or_more(one.usd_per_mtok), hours
