"""The same job on several chips and slices, compared by time or by cost.

Chips are tried in the order of their cost at peak, and one that loses clearly even at its peak to what was found is not
searched. On one kind of chip more chips are hardly ever cheaper, unless fewer must recompute: larger slices are
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
# Slices of a chip that hold the job, at most, of which the cheapest is taken.
SIZES = 3
# The longest run that is recommended for its cost where no deadline is given.
LONGEST_RUN_S = 365 * DAY
# A chip that costs this factor more at its peak than another with its best plan is not searched.
LOST = 1.5


@dataclass(frozen=True)
class Tried:
    """A slice with its recommended plan, or None and a note why there is none. `least` are the dollars for a million
    tokens at the chip's peak."""

    job: Job
    best: Candidate | None
    least: float | None
    note: str = ""
    searched: bool = True
    stacks: tuple[StackSearch, ...] = ()
    """The slice with each stack that was searched, that of `job` first."""

    @property
    def roomy(self) -> bool:
        """Whether there is a plan, and it leaves headroom in memory."""
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
    """Every slice, and of every chip the slice that suits the job best, best first; those without a plan last."""
    limit_s = deadline
    if limit_s is None and rank == "cost" and tokens is not None:
        limit_s = LONGEST_RUN_S

    def in_time(tried: Tried) -> bool:
        return _ends_within(tried, limit_s, tokens)

    def order_of(tried: Tried) -> tuple[bool, bool, bool, float, float]:
        return _rank(tried, rank, in_time(tried))

    def try_slices(target: Target, job: Job, limit: float | None, bar: Progress | None) -> list[Tried]:
        """The slice of a target, or the slices of its chip from the smallest that could end within the limit."""
        chip, slice_ = target
        if slice_ is not None:
            slices = [slice_]
        else:
            slices = slice_sizes(chip, MOST_CHIPS, least_chips(job, chip, limit, tokens, space.words))
        searches = (search_stacks(job, space, 1, bar, slack) for job in map(job_on, slices))
        return list(_tried(searches, in_time))

    result: list[Tried] = []
    candidates: list[tuple[Target, Job, float | None]] = []  # with the dollars for a million tokens at the chip's peak
    for chip, slice_ in targets:
        job = job_on(slice_ or slice_sizes(chip, MOST_CHIPS)[0])
        candidates.append(((chip, slice_), job, usd_at_peak(job, chip, space.words.dtype)))
    candidates.sort(key=lambda candidate: _unknown_last(candidate[2]))
    for done, (target, job, usd) in enumerate(candidates):
        whole_chip = target[1] is None
        known_usd = [tried.usd_per_mtok for tried in result if tried.usd_per_mtok is not None]
        if rank == "cost" and whole_chip and usd is not None and known_usd and usd > LOST * min(known_usd):
            note = f"skipped: ${usd:.4f}/Mtok even at 100% MFU"
            result.append(Tried(job, None, usd, note, searched=False))
            continue
        bar = shared(progress, done, len(candidates))
        slices = try_slices(target, job, limit_s, bar)
        if whole_chip and limit_s != deadline and all(tried.best is None for tried in slices):
            # No slice that is large enough to end within the year has a plan: smaller ones may.
            slices = try_slices(target, job, deadline, bar)
        suitable = [tried for tried in slices if _ends_within(tried, deadline, tokens)]
        if suitable:
            result.append(min(suitable, key=order_of))
        elif all(tried.best is None for tried in slices):
            result.append(Tried(job, None, usd, "no plan fits"))
        else:
            result.append(Tried(job, None, usd, "none of its slices is in time"))
    return sorted(result, key=order_of)


def _ends_within(tried: Tried, limit_s: float | None, tokens: float | None) -> bool:
    """Whether there is a plan whose run ends in time, failures included; without a limit every run does."""
    if tried.best is None:
        return False
    return limit_s is None or finished_s(tried.job, tried.best, tokens) <= limit_s


def _tried(searches: Iterable[list[StackSearch]], in_time: Callable[[Tried], bool]) -> Iterator[Tried]:
    """The recommended plan of one slice after the other, smallest first, until larger ones cannot be cheaper."""
    fitting = 0
    for stacks in searches:
        tried = Tried(stacks[0].job, stacks[0].best, None, stacks=tuple(stacks))
        yield tried
        if not (in_time(tried) and tried.roomy):
            continue
        fitting += 1
        recomputes = tried.best is None or tried.best.plan.remat != "none"
        if fitting == SIZES or not recomputes:
            return


def _unknown_last(dollars: float | None) -> float:
    """A key to sort by dollars, unknown ones last."""
    return math.inf if dollars is None else dollars


def _rank(tried: Tried, rank: str, in_time: bool) -> tuple[bool, bool, bool, float, float]:
    """A key to sort by: plans before none, those that end in time and those that leave headroom in memory before
    others; then dollars, or seconds of a step; without a price chip-hours decide among those that have none."""
    if tried.best is None:
        return True, True, True, tried.least or math.inf, 0.0
    if rank == "time":
        return False, False, not tried.roomy, tried.best.seconds, 0.0
    chip_seconds = tried.best.seconds * tried.job.slice.chips
    return False, not in_time, not tried.roomy, _unknown_last(tried.usd_per_mtok), chip_seconds
