"""The tick table of a pipeline: a timeline of `training.pipeline_order` as numbers, which all chips walk through.

A row (`table_of`) says for one chip and tick: what to do, with which chunk and microbatch, where its input and gradient
lie, and where to put what arrives from the neighbours. Places are given out as a compiler gives out registers: a slot
is free again after the last use of what was in it.
"""

from dataclasses import dataclass

import numpy

from dragonscale.training.plan.pipeline_order import StageTask, Timeline, stage_of

IDLE, FORWARD, WEIGHTS, BACKWARD, LAST = range(5)
"""What a chip does in a tick; `LAST` is the backward task of the final stage, which also computes the loss, `WEIGHTS`
what a split backward pass put off."""
SCOPES = {FORWARD: "stage_forward", WEIGHTS: "stage_weights", BACKWARD: "stage_backward", LAST: "stage_last"}
"""What a program's operations of such a tick are named by."""
COLUMNS = ("kind", "chunk", "microbatch", "first", "input", "gradient", "kept", "late", "put_input", "put_gradient")


@dataclass(frozen=True)
class Table:
    """A timeline as numbers [ticks, ranks, columns], and how many slots inputs, gradients, what forward ticks keep and
    what backward ticks put off need (one more of inputs and gradients is for waste)."""

    rows: numpy.ndarray
    inputs: int
    gradients: int
    kept: int
    late: int


def table_of(ticks: Timeline, pipe: int, virtual: int) -> Table:
    """Where each task finds what it needs, and where what arrives is put."""
    final = pipe * virtual - 1
    rows = numpy.zeros((len(ticks), pipe, len(COLUMNS)), numpy.int32)
    uses = {
        (rank, piece.kind, stage_of(piece, rank, pipe), piece.microbatch): time
        for time, tick in enumerate(ticks)
        for rank, piece in enumerate(tick)
        if piece is not None
    }
    inputs, gradients, kept, late = (_Slots(pipe) for _ in range(4))
    for time, tick in enumerate(ticks):
        arriving = ticks[time - 1] if time else [None] * pipe
        for rank, piece in enumerate(tick):
            row = dict.fromkeys(COLUMNS, 0) | {"gradient": -1, "put_input": -1, "put_gradient": -1}
            before, after = arriving[rank - 1], arriving[(rank + 1) % pipe]
            if before is not None and before.kind == "F":
                stage = stage_of(before, (rank - 1) % pipe, pipe) + 1
                if stage <= final:
                    what = (stage, before.microbatch)
                    row["put_input"] = inputs.put(rank, what, time, uses[rank, "F", *what])
            if after is not None and after.kind == "B":
                stage = stage_of(after, (rank + 1) % pipe, pipe) - 1
                if stage >= 0:
                    until = uses[rank, "B", stage, after.microbatch]
                    row["put_gradient"] = gradients.put(rank, (stage, after.microbatch), time, until)
            if piece is not None:
                what = stage_of(piece, rank, pipe), piece.microbatch
                if piece.kind == "F":
                    pulled = uses.get((rank, "B", *what), time)
                    kept.put(rank, what, time, uses.get((rank, "W", *what), pulled))
                    if what[0] == final:  # its gradient is made of its output
                        gradients.put(rank, what, time, pulled)
                elif piece.kind == "B" and (rank, "W", *what) in uses:
                    late.put(rank, what, time, uses[rank, "W", *what])
                row |= _described(piece, what[0], final, rank, inputs, gradients)
                row |= {"kept": kept.place[rank, what], "late": late.place.get((rank, what), 0)}
            rows[time, rank] = [row[name] for name in COLUMNS]
    for name, slots in (("gradient", gradients), ("put_input", inputs), ("put_gradient", gradients)):
        column = rows[:, :, COLUMNS.index(name)]
        column[column < 0] = slots.count
    return Table(rows, inputs.count, gradients.count, kept.count, late.count)


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


def _described(
    piece: StageTask, stage: int, final: int, rank: int, inputs: _Slots, gradients: _Slots
) -> dict[str, int]:
    kinds = {"F": FORWARD, "W": WEIGHTS, "B": LAST if stage == final else BACKWARD}
    what = rank, (stage, piece.microbatch)
    reads = piece.kind == "B" or (piece.kind == "F" and stage == final)
    return {
        "kind": kinds[piece.kind],
        "chunk": piece.chunk,
        "microbatch": piece.microbatch,
        "first": int(stage == 0),
        "input": inputs.place[what] if stage else 0,
        "gradient": gradients.place[what] if reads else -1,
    }
