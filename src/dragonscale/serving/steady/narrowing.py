"""From a range of batches to the largest that meets the targets, and to the smallest that does as much as one at which
prompts queue: whole numbers between two of the range, a few at a time."""

import math
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

FEWEST = 7
"""Batches that a round of narrowing down looks at, at least: judging a hundred takes hardly longer than judging one."""
NEAR = 0.9
"""Where prompts queue, plans that make this part of the most tokens a chip are narrowed down to a sixty-fourth of the
range, since others are not recommended."""

PATIENCE_S = 6.0
"""A TTFT beyond which nobody lets prompts wait for others unless a target says so: the loosest that MLPerf Inference
sets for a server (docs.mlcommons.org, Llama 3.1 405B; 2 s for Llama 2 70B and DeepSeek-R1). A prompt that takes longer
itself may wait as long as it takes."""
PACE_S = 0.05
"""A TPOT beyond which nobody is served unless a target says so: 20 tokens a second, what users of DeepSeek's own
service got on average (20 to 22; github.com/deepseek-ai/open-infra-index, day 6)."""
NEARLY = 0.02
"""Of its tokens what a batch may make fewer than the best of its plan. Steps are expected to 5 to 10%, so 2% is no
difference, and where prefill takes all the time a batch that makes 1% more is one that queues."""


class JudgedBatch(Protocol):
    """A configuration that was judged."""

    @property
    def batch(self) -> int: ...
    @property
    def queues(self) -> bool: ...
    @property
    def offered(self) -> bool: ...
    @property
    def tokens_per_chip(self) -> float: ...


One = TypeVar("One", bound=JudgedBatch)
Rows = Sequence[tuple[int, int]]
"""Places of plans and their batches."""
Judge = Callable[[Rows], list[One]]


def narrowed(at: Judge[One], rows: Rows, found: Sequence[One]) -> list[One]:
    """For each plan the largest batch that meets the targets (without one for TTFT: at which prompts do not just
    queue), where a larger one of the range misses them: narrowed down by a few batches at a time. Plans that would be
    beaten even at the larger batch are left as they are."""
    met, missed = _edges(rows, found)
    goal = max((one.tokens_per_chip for one in met.values()), default=0.0)
    open_ = {
        place: (one.batch, missed[place].batch)
        for place, one in met.items()
        if place in missed and missed[place].tokens_per_chip >= goal
    }
    return _narrower(at, open_, lambda _, one: one.offered, exact=True)


def unqueued(at: Judge[One], rows: Rows, found: Sequence[One]) -> list[One]:
    """For each plan near the best whose best batch makes prompts wait for others longer than they take themselves:
    smaller batches, down to about the smallest that makes nearly as many tokens."""
    by_plan: dict[int, list[One]] = {}
    for (place, _), one in zip(rows, found, strict=True):
        if one.offered:
            by_plan.setdefault(place, []).append(one)
    best = {place: max(own, key=lambda one: one.tokens_per_chip) for place, own in by_plan.items()}
    goal = NEAR * max((one.tokens_per_chip for one in best.values()), default=0.0)
    queue = {place: one.tokens_per_chip for place, one in best.items() if one.queues and one.tokens_per_chip >= goal}
    wanted = {place: (1 - NEARLY) * tokens for place, tokens in queue.items()}
    open_ = {place: _bracket(by_plan[place], enough) for place, enough in wanted.items()}
    return _narrower(at, open_, lambda place, one: one.tokens_per_chip < wanted[place], exact=False)


def _bracket(judged: Sequence[One], enough: float) -> tuple[int, int]:
    """The smallest batch that makes enough tokens, and the one below it that does not (or the smallest of all)."""
    high = min(one.batch for one in judged if one.tokens_per_chip >= enough)
    return max((one.batch for one in judged if one.batch < high), default=high), high


def _narrower(
    at: Judge[One], open_: dict[int, tuple[int, int]], below: Callable[[int, One], bool], exact: bool
) -> list[One]:
    """Batches of each plan between two, closer and closer to where they are not `below` any more; with `exact` so many
    in the first round that the second looks at all that are left."""
    more: list[One] = []
    for count in (math.isqrt, int):
        wanted = [
            (place, batch)
            for place, (low, high) in open_.items()
            for batch in _inside(low, high, max(count(high - low - 1), FEWEST) if exact else FEWEST)
        ]
        if not wanted:
            break
        tried = at(wanted)
        more += tried
        for (place, batch), one in zip(wanted, tried, strict=True):
            low, high = open_[place]
            open_[place] = (max(low, batch), high) if below(place, one) else (low, min(high, batch))
    return more


def _edges(rows: Rows, found: Sequence[One]) -> tuple[dict[int, One], dict[int, One]]:
    """The largest batch of each plan that meets the targets, and the next one, which does not."""
    met, missed = dict[int, One](), dict[int, One]()
    for (place, _), one in zip(rows, found, strict=True):
        if one.offered:
            met[place] = one
            missed.pop(place, None)
        else:
            missed.setdefault(place, one)
    return met, missed


def _inside(low: int, high: int, count: int) -> list[int]:
    """Some whole numbers between two, evenly apart."""
    return sorted({low + round((high - low) * part / (count + 1)) for part in range(1, count + 1)} - {low, high})
