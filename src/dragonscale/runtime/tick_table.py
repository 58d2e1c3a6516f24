"""The tick table of a pipeline: a timeline of `training.pipeline_order` as numbers, which all chips walk through.

A row (`table_of`) says for one chip and tick: what to do, with which chunk and microbatch, where its input and gradient
lie, and where to put what arrives from the neighbours. Places are given out as a compiler gives out registers: a slot
is free again after the last use of what was in it.
"""

from dataclasses import dataclass

import numpy

from dragonscale.training.pipeline_order import Piece, Timeline, stage_of

IDLE, FORWARD, BACKWARD, LAST = range(4)
"""What a chip does in a tick; `LAST` is the backward task of the final stage, which also computes the loss."""
SCOPES = ("stage_forward", "stage_backward", "stage_last")
"""What a program's operations of such a tick are named by, in that order."""
COLUMNS = ("kind", "chunk", "microbatch", "first", "input", "gradient", "kept", "put_input", "put_gradient")


@dataclass(frozen=True)
class Table:
    """A timeline as numbers [ticks, ranks, columns], and how many slots inputs, gradients and what forward ticks keep
    need (one more of inputs and gradients is for waste)."""

    rows: numpy.ndarray
    inputs: int
    gradients: int
    kept: int


def table_of(ticks: Timeline, pipe: int, virtual: int) -> Table:
    """Where each task finds what it needs, and where what arrives is put."""
    final = pipe * virtual - 1
    rows = numpy.zeros((len(ticks), pipe, len(COLUMNS)), numpy.int32)
    uses = {
        (rank, piece.backward, stage_of(piece, rank, pipe), piece.microbatch): time
        for time, tick in enumerate(ticks)
        for rank, piece in enumerate(tick)
        if piece is not None
    }
    inputs, gradients, kept = _Slots(pipe), _Slots(pipe), _Slots(pipe)
    for time, tick in enumerate(ticks):
        arriving = ticks[time - 1] if time else [None] * pipe
        for rank, piece in enumerate(tick):
            row = dict.fromkeys(COLUMNS, 0) | {"gradient": -1, "put_input": -1, "put_gradient": -1}
            before, after = arriving[rank - 1], arriving[(rank + 1) % pipe]
            if before is not None and not before.backward:
                stage = stage_of(before, (rank - 1) % pipe, pipe) + 1
                if stage <= final:
                    what = (stage, before.microbatch)
                    until = uses.get((rank, True, *what), uses[rank, False, *what])
                    row["put_input"] = inputs.put(rank, what, time, until)
            if after is not None and after.backward:
                stage = stage_of(after, (rank + 1) % pipe, pipe) - 1
                if stage >= 0:
                    until = uses[rank, True, stage, after.microbatch]
                    row["put_gradient"] = gradients.put(rank, (stage, after.microbatch), time, until)
            if piece is not None:
                what = stage_of(piece, rank, pipe), piece.microbatch
                if not piece.backward:
                    until = uses.get((rank, True, *what), time)
                    kept.put(rank, what, time, until)
                    if what[0] == final:  # its gradient is made of its output
                        gradients.put(rank, what, time, until)
                row |= _described(piece, what[0], final, rank, inputs, gradients)
                row["kept"] = kept.place[rank, what]
            rows[time, rank] = [row[name] for name in COLUMNS]
    for name, slots in (("gradient", gradients), ("put_input", inputs), ("put_gradient", gradients)):
        column = rows[:, :, COLUMNS.index(name)]
        column[column < 0] = slots.count
    return Table(rows, inputs.count, gradients.count, kept.count)


class _Slots:
    """Places of each rank, given to the next value as soon as the last use of the one before is past."""

    def __init__(self, ranks: int) -> None:
        self.free_from: list[list[int]] = [[] for _ in range(ranks)]
        self.place: dict[tuple[int, tuple[int, int]], int] = {}

    @property
    def count(self) -> int:
        return max(len(rank) for rank in self.free_from)

    def put(self, rank: int, what: tuple[int, int], time: int, until: int) -> int:
        places = self.free_from[rank]
        slot = next((slot for slot, free in enumerate(places) if free <= time), len(places))
        places[slot : slot + 1] = [until + 1]
        self.place[rank, what] = slot
        return slot


def _described(piece: Piece, stage: int, final: int, rank: int, inputs: _Slots, gradients: _Slots) -> dict[str, int]:
    kind = FORWARD if not piece.backward else LAST if stage == final else BACKWARD
    what = rank, (stage, piece.microbatch)
    return {
        "kind": kind,
        "chunk": piece.chunk,
        "microbatch": piece.microbatch,
        "first": int(stage == 0),
        "input": inputs.place[what] if stage else 0,
        "gradient": gradients.place[what] if kind != FORWARD or stage == final else -1,
    }
