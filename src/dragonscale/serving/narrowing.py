"""From a range of batches to the largest that meets the targets, and to the smallest that does as much as one at which
prompts queue: whole numbers between two of the range, a few at a time."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

ROUNDS = 4
"""Of narrowing down a batch, an eighth of the range each: enough for gaps of thousands."""
FEW_ROUNDS, NEAR = 2, 0.9
"""Of narrowing down a batch at which prompts queue: to a sixty-fourth of the range, and of plans that make this part of
the most tokens a chip, since others are not recommended."""

PATIENCE_S = 6.0
"""A TTFT beyond which nobody lets prompts wait for others unless a target says so: the loosest that MLPerf Inference
sets for a server (docs.mlcommons.org, Llama 3.1 405B; 2 s for Llama 2 70B and DeepSeek-R1). A prompt that takes longer
itself may wait as long as it takes."""
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


def narrowed(
    at: Callable[[Sequence[tuple[int, int]]], list[One]], rows: Sequence[tuple[int, int]], found: Sequence[One]
) -> list[One]:
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
    return _halved(at, open_, lambda _, one: one.offered)


def unqueued(
    at: Callable[[Sequence[tuple[int, int]]], list[One]], rows: Sequence[tuple[int, int]], found: Sequence[One]
) -> list[One]:
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
    return _halved(at, open_, lambda place, one: one.tokens_per_chip < wanted[place], FEW_ROUNDS)


def _bracket(judged: Sequence[One], enough: float) -> tuple[int, int]:
    """The smallest batch that makes enough tokens, and the one below it that does not (or the smallest of all)."""
    high = min(one.batch for one in judged if one.tokens_per_chip >= enough)
    return max((one.batch for one in judged if one.batch < high), default=high), high


def _halved(
    at: Callable[[Sequence[tuple[int, int]]], list[One]],
    open_: dict[int, tuple[int, int]],
    below: Callable[[int, One], bool],
    rounds: int = ROUNDS,
) -> list[One]:
    """Batches of each plan between two, closer and closer to where they are not `below` any more."""
    more: list[One] = []
    for _ in range(rounds):
        wanted = [(place, batch) for place, (low, high) in open_.items() for batch in _inside(low, high)]
        if not wanted:
            break
        tried = at(wanted)
        more += tried
        for (place, batch), one in zip(wanted, tried, strict=True):
            low, high = open_[place]
            open_[place] = (max(low, batch), high) if below(place, one) else (low, min(high, batch))
    return more


def _edges(rows: Sequence[tuple[int, int]], found: Sequence[One]) -> tuple[dict[int, One], dict[int, One]]:
    """The largest batch of each plan that meets the targets, and the next one, which does not."""
    met, missed = dict[int, One](), dict[int, One]()
    for (place, _), one in zip(rows, found, strict=True):
        if one.offered:
            met[place] = one
            missed.pop(place, None)
        else:
            missed.setdefault(place, one)
    return met, missed


def _inside(low: int, high: int, count: int = 7) -> list[int]:
    """Some whole numbers between two, evenly apart."""
    return sorted({low + round((high - low) * part / (count + 1)) for part in range(1, count + 1)} - {low, high})
