"""The order in which pipeline ranks do their pieces, and the clock ticks that follow from it.

A piece is one microbatch through one chunk of layers, forward or backward; under ZB-H1 the backward pass is two pieces,
and the gradients of weights (W) wait until they fill a gap. Chunks are dealt in order round the ranks (as in
`stages.stage_layers`): rank r holds the stages r, r + P, r + 2P, …. Each rank has a fixed order of pieces; it does the
next one as soon as what that needs was made in an earlier tick. Every piece takes one tick, so a timeline's idle ticks
and held microbatches are those of `stages.bubble` and `stages.held_microbatches` with f = b = 1 (b = 2, w = 1 where the
backward pass is split).

>>> for tick in timeline("1f1b", pipe=2, virtual=1, microbatches=3):
...     print(*(str(piece or ".").ljust(3) for piece in tick))
F0  .
F1  F0
.   B0
B0  F1
F2  B1
B1  F2
.   B2
B2  .
"""

import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dragonscale.errors import InputError

EXECUTED = ("gpipe", "1f1b", "interleaved", "zb-h1")
"""The schedules whose order is written here; the others of `plan.SCHEDULES` run both ways at once."""


@dataclass(frozen=True)
class Piece:
    """One microbatch through one of a rank's chunks: forward (F), backward (B), or the gradients of weights that a
    split backward pass put off (W)."""

    kind: str
    chunk: int
    microbatch: int

    def __str__(self) -> str:
        return f"{self.kind}{self.microbatch}" + (f"'{self.chunk}" if self.chunk else "")


Timeline = list[list[Piece | None]]
"""For every tick what each rank does."""


def check(schedule: str, pipe: int, virtual: int, microbatches: int) -> None:
    """Refuse what no order exists for."""
    if schedule not in EXECUTED:
        raise InputError(
            f"The schedule {schedule!r} can be planned but not run yet; choose one of {', '.join(EXECUTED)}."
        )
    if min(pipe, virtual, microbatches) < 1:
        raise InputError("A pipeline needs at least one rank, one chunk and one microbatch.")
    if virtual > 1 and schedule != "interleaved":
        raise InputError(f"With virtual={virtual} chunks on each rank the schedule is 'interleaved', not {schedule!r}.")
    if schedule == "interleaved" and virtual > 1 and microbatches % pipe:
        raise InputError(
            f"The interleaved schedule takes microbatches in rounds of pipe={pipe}; {microbatches} are not a "
            "multiple of that."
        )


def order(schedule: str, rank: int, pipe: int, virtual: int, microbatches: int) -> list[Piece]:
    """All pieces of one rank, in its order. All but GPipe do some forwards first and then alternate,
    one backward each. Under ZB-H1 (Qi et al. 2023) rank r is r microbatches late with gradients of weights, and so
    holds as many as the first rank does."""
    check(schedule, pipe, virtual, microbatches)
    forwards = [Piece("F", *place) for place in _rounds(pipe, virtual, microbatches)]
    backwards = [Piece("B", virtual - 1 - chunk, m) for chunk, m in _rounds(pipe, virtual, microbatches)]
    if schedule == "gpipe":
        return forwards + backwards[::-1]
    first = pipe - 1 - rank
    if virtual > 1:
        first = 2 * first + (virtual - 1) * pipe
    first = min(first, len(forwards))
    alternating = [piece for pair in zip(forwards[first:], backwards, strict=False) for piece in pair]
    whole = forwards[:first] + alternating + backwards[len(forwards) - first :]
    return _split(whole, rank) if schedule == "zb-h1" else whole


def _split(whole: list[Piece], late: int) -> list[Piece]:
    """The same order with gradients of weights `late` microbatches after those of inputs."""
    waiting: deque[Piece] = deque()
    found: list[Piece] = []
    for piece in whole:
        found.append(piece)
        if piece.kind == "B":
            waiting.append(replace(piece, kind="W"))
            found += [waiting.popleft()] if len(waiting) > late else []
    return found + list(waiting)


def _rounds(pipe: int, virtual: int, microbatches: int) -> Iterator[tuple[int, int]]:
    """Chunk and microbatch in forward order: `pipe` microbatches through a chunk, then through the next."""
    for start in range(0, microbatches, pipe if virtual > 1 else microbatches):
        stop = min(start + pipe, microbatches) if virtual > 1 else microbatches
        for chunk in range(virtual):
            for microbatch in range(start, stop):
                yield chunk, microbatch


def timeline(schedule: str, pipe: int, virtual: int, microbatches: int, backward: bool = True) -> Timeline:
    """What every rank does at each tick; without `backward`, only the forward pieces."""
    orders = (order(schedule, rank, pipe, virtual, microbatches) for rank in range(pipe))
    queues = [[piece for piece in own if backward or piece.kind == "F"] for own in orders]
    done: set[tuple[str, int, int]] = set()
    ticks: Timeline = []
    while any(queues):
        tick = [
            queue[0] if queue and _needs(queue[0], rank, pipe, virtual) <= done else None
            for rank, queue in enumerate(queues)
        ]
        assert any(tick), "a schedule must not wait for itself"
        for rank, piece in enumerate(tick):
            if piece is not None:
                queues[rank].pop(0)
                done.add((piece.kind, stage_of(piece, rank, pipe), piece.microbatch))
        ticks.append(tick)
    return ticks


def stage_of(piece: Piece, rank: int, pipe: int) -> int:
    """The stage of the whole model that a rank's piece belongs to."""
    return piece.chunk * pipe + rank


def _needs(piece: Piece, rank: int, pipe: int, virtual: int) -> set[tuple[str, int, int]]:
    stage = stage_of(piece, rank, pipe)
    if piece.kind == "F":
        return {("F", stage - 1, piece.microbatch)} if stage else set()
    if piece.kind == "W":
        return {("B", stage, piece.microbatch)}
    last = stage == pipe * virtual - 1
    return {("F", stage, piece.microbatch) if last else ("B", stage + 1, piece.microbatch)}


def held(ticks: Timeline, rank: int) -> int:
    """The most pieces that a rank has run forward and not yet backward, gradients of weights too."""
    own = [piece.kind for tick in ticks if (piece := tick[rank]) is not None]
    end = "W" if "W" in own else "B"
    return max(itertools.accumulate((kind == "F") - (kind == end) for kind in own))
