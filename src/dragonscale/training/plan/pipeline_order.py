"""The order in which pipeline ranks run their tasks, and the clock ticks that follow from it.

A task is one microbatch through one chunk of layers, forward or backward; under ZB-H1 the backward pass is two tasks,
and the gradients of weights (W) wait until they fill a gap. Chunks are dealt in order round the ranks (as in
`stages.stage_layers`): rank r holds the stages r, r + P, r + 2P, …. Each rank has a fixed order of tasks; it runs the
next one as soon as what that needs was computed in an earlier tick. Every task takes one tick, so a timeline's idle
ticks and held microbatches are those of `stages.bubble` and `stages.held_microbatches` with f = b = 1 (b = 2, w = 1
where the backward pass is split).

>>> for tick in timeline("1f1b", pipe=2, virtual=1, microbatches=3):
...     print(*(str(task or ".").ljust(3) for task in tick))
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
class StageTask:
    """One microbatch through one of a rank's chunks: forward (F), backward (B), or the gradients of weights that a
    split backward pass put off (W)."""

    kind: str
    chunk: int
    microbatch: int

    def __str__(self) -> str:
        return f"{self.kind}{self.microbatch}" + (f"'{self.chunk}" if self.chunk else "")


Timeline = list[list[StageTask | None]]
"""For every tick the task of each rank, or None where it waits."""


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


def order(schedule: str, rank: int, pipe: int, virtual: int, microbatches: int) -> list[StageTask]:
    """All tasks of one rank, in its order. All but GPipe run some forwards first (the warm-up) and then alternate, one
    backward each. Under ZB-H1 (Qi et al. 2023) rank r is r microbatches late with gradients of weights, and so
    holds as many microbatches as the first rank does."""
    check(schedule, pipe, virtual, microbatches)
    forwards: list[StageTask] = []
    backwards: list[StageTask] = []
    for chunk, microbatch in _rounds(pipe, virtual, microbatches):
        forwards.append(StageTask("F", chunk, microbatch))
        backwards.append(StageTask("B", virtual - 1 - chunk, microbatch))
    if schedule == "gpipe":
        return forwards + backwards[::-1]
    # Forwards before the first backward: the last rank has none, each rank before it one more.
    warm_up = pipe - 1 - rank
    if virtual > 1:
        warm_up = 2 * warm_up + (virtual - 1) * pipe
    warm_up = min(warm_up, len(forwards))
    tasks = forwards[:warm_up]
    for forward, backward in zip(forwards[warm_up:], backwards, strict=False):
        tasks += [forward, backward]
    tasks += backwards[len(forwards) - warm_up :]
    if schedule == "zb-h1":
        return _with_late_gradients(tasks, rank)
    return tasks


def _with_late_gradients(tasks: list[StageTask], late: int) -> list[StageTask]:
    """The same order with gradients of weights `late` microbatches after those of inputs."""
    waiting: deque[StageTask] = deque()
    result: list[StageTask] = []
    for task in tasks:
        result.append(task)
        if task.kind == "B":
            waiting.append(replace(task, kind="W"))
            if len(waiting) > late:
                result.append(waiting.popleft())
    return result + list(waiting)


def _rounds(pipe: int, virtual: int, microbatches: int) -> Iterator[tuple[int, int]]:
    """Chunk and microbatch in forward order: `pipe` microbatches through a chunk, then through the next."""
    size = pipe if virtual > 1 else microbatches
    for start in range(0, microbatches, size):
        for chunk in range(virtual):
            for microbatch in range(start, min(start + size, microbatches)):
                yield chunk, microbatch


def timeline(schedule: str, pipe: int, virtual: int, microbatches: int, backward: bool = True) -> Timeline:
    """The tasks of every rank tick by tick; without `backward`, only the forward ones."""
    queues: list[deque[StageTask]] = []
    for rank in range(pipe):
        tasks = order(schedule, rank, pipe, virtual, microbatches)
        queues.append(deque(task for task in tasks if backward or task.kind == "F"))
    done: set[tuple[str, int, int]] = set()  # kind, stage and microbatch of the tasks of earlier ticks
    ticks: Timeline = []
    while any(queues):
        tick: list[StageTask | None] = []
        for rank, queue in enumerate(queues):
            ready = bool(queue) and _needs(queue[0], rank, pipe, virtual) <= done
            tick.append(queue.popleft() if ready else None)
        assert any(tick), "a schedule must not wait for itself"
        for rank, task in enumerate(tick):
            if task is not None:
                done.add((task.kind, stage_of(task, rank, pipe), task.microbatch))
        ticks.append(tick)
    return ticks


def stage_of(task: StageTask, rank: int, pipe: int) -> int:
    """The stage of the whole model that a rank's task belongs to."""
    return task.chunk * pipe + rank


def _needs(task: StageTask, rank: int, pipe: int, virtual: int) -> set[tuple[str, int, int]]:
    """Kind, stage and microbatch of the tasks that must be done before."""
    stage = stage_of(task, rank, pipe)
    if task.kind == "F":
        return {("F", stage - 1, task.microbatch)} if stage else set()
    if task.kind == "W":
        return {("B", stage, task.microbatch)}
    if stage == pipe * virtual - 1:  # the last stage turns round
        return {("F", stage, task.microbatch)}
    return {("B", stage + 1, task.microbatch)}


def max_in_flight(ticks: Timeline, rank: int) -> int:
    """The most microbatches (per chunk) that a rank has run forward and not yet backward, gradients of weights too."""
    kinds = [task.kind for tick in ticks if (task := tick[rank]) is not None]
    last = "W" if "W" in kinds else "B"  # the task that frees a microbatch's activations
    return max(itertools.accumulate((kind == "F") - (kind == last) for kind in kinds))
