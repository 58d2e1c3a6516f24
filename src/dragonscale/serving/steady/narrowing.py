"""Narrowing down the batch of each plan: to the largest that meets the targets, and to the smallest that does as much
as one at which prompts queue.

A coarse range of batches was judged; whole numbers between two of them are tried a few at a time, for all plans in one
call.
"""

import math
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

MIN_TRIES = 7
"""Batches that a round tries of each plan, at least: judging a hundred takes hardly longer than judging one."""
NEAR_BEST = 0.9
"""Where prompts queue, plans with at least this fraction of the most tokens per chip are narrowed down to a
sixty-fourth of the range; the others are never recommended."""

PATIENCE_S = 6.0
"""A TTFT beyond which nobody lets prompts wait for others unless a target says so: the loosest that MLPerf Inference
sets for a server (docs.mlcommons.org, Llama 3.1 405B; 2 s for Llama 2 70B and DeepSeek-R1). A prompt that takes longer
by itself may wait as long as it takes."""
PACE_S = 0.05
"""A TPOT beyond which nobody is served unless a target says so: 20 tokens a second, what users of DeepSeek's own
service got on average (20 to 22; github.com/deepseek-ai/open-infra-index, day 6)."""
NEARLY = 0.02
"""The fraction of its tokens that a batch may fall short of the best of its plan. Steps are expected to 5 to 10%, so 2%
is no difference, and where prefill takes all the time a batch that makes 1% more is one that queues."""


class JudgedBatch(Protocol):
    """A configuration that was judged: what narrowing down needs to know of it."""

    @property
    def batch(self) -> int: ...
    @property
    def queues(self) -> bool: ...
    @property
    def offered(self) -> bool: ...
    @property
    def tokens_per_chip(self) -> float: ...


JudgedT = TypeVar("JudgedT", bound=JudgedBatch)
Rows = Sequence[tuple[int, int]]
"""Pairs of a plan's index and a batch."""
Judge = Callable[[Rows], list[JudgedT]]


def narrowed(judge: Judge[JudgedT], rows: Rows, judged: Sequence[JudgedT]) -> list[JudgedT]:
    """Further batches of each plan, down to the largest that meets the targets.

    Without a target for TTFT, meeting includes that prompts do not just queue. Only plans whose next larger batch
    misses are narrowed down, and only if that batch would make more tokens than all others that meet.
    """
    met, missed = _edges(rows, judged)
    goal = max((config.tokens_per_chip for config in met.values()), default=0.0)
    ranges: dict[int, tuple[int, int]] = {}
    for plan, config in met.items():
        if plan in missed and missed[plan].tokens_per_chip >= goal:
            ranges[plan] = (config.batch, missed[plan].batch)
    return _bisected(judge, ranges, lambda _, config: config.offered, exact=True)


def unqueued(judge: Judge[JudgedT], rows: Rows, judged: Sequence[JudgedT]) -> list[JudgedT]:
    """Smaller batches of each plan near the best, down to about the smallest that makes nearly as many tokens, if
    prompts wait for others at its best batch longer than they take themselves."""
    by_plan: dict[int, list[JudgedT]] = {}
    for (plan, _), config in zip(rows, judged, strict=True):
        if config.offered:
            by_plan.setdefault(plan, []).append(config)
    best = {plan: max(configs, key=lambda config: config.tokens_per_chip) for plan, configs in by_plan.items()}
    goal = NEAR_BEST * max((config.tokens_per_chip for config in best.values()), default=0.0)
    enough: dict[int, float] = {}  # tokens per second and chip that a smaller batch must make
    for plan, config in best.items():
        if config.queues and config.tokens_per_chip >= goal:
            enough[plan] = (1 - NEARLY) * config.tokens_per_chip
    ranges = {plan: _bracket(by_plan[plan], tokens) for plan, tokens in enough.items()}
    return _bisected(judge, ranges, lambda plan, config: config.tokens_per_chip < enough[plan], exact=False)


def _bracket(configs: Sequence[JudgedT], enough: float) -> tuple[int, int]:
    """The smallest batch that makes enough tokens, after the one below it that does not (or itself)."""
    high = min(config.batch for config in configs if config.tokens_per_chip >= enough)
    return max((config.batch for config in configs if config.batch < high), default=high), high


def _bisected(
    judge: Judge[JudgedT],
    ranges: dict[int, tuple[int, int]],
    is_below: Callable[[int, JudgedT], bool],
    exact: bool,
) -> list[JudgedT]:
    """Batches of each plan's range, in two rounds, ever closer to the first that is not `is_below` the goal.

    With `exact` the first round tries the square root of the range's size, so that the second can try all that are
    left.
    """
    found: list[JudgedT] = []
    for tries in (math.isqrt, int):
        wanted: list[tuple[int, int]] = []
        for plan, (low, high) in ranges.items():
            count = max(tries(high - low - 1), MIN_TRIES) if exact else MIN_TRIES
            wanted += [(plan, batch) for batch in _inside(low, high, count)]
        if not wanted:
            break
        configs = judge(wanted)
        found += configs
        for (plan, batch), config in zip(wanted, configs, strict=True):
            low, high = ranges[plan]
            ranges[plan] = (max(low, batch), high) if is_below(plan, config) else (low, min(high, batch))
    return found


def _edges(rows: Rows, judged: Sequence[JudgedT]) -> tuple[dict[int, JudgedT], dict[int, JudgedT]]:
    """For each plan the largest batch that meets the targets, and the next one, which does not."""
    met, missed = dict[int, JudgedT](), dict[int, JudgedT]()
    # batches of a plan come in ascending order
    for (plan, _), config in zip(rows, judged, strict=True):
        if config.offered:
            met[plan] = config
            missed.pop(plan, None)
        else:
            missed.setdefault(plan, config)
    return met, missed


def _inside(low: int, high: int, count: int) -> list[int]:
    """Up to `count` whole numbers strictly between two, evenly spaced."""
    return sorted({low + round((high - low) * step / (count + 1)) for step in range(1, count + 1)} - {low, high})
