"""Steps where nobody said them: ops that come back at even distances on the busiest track.

In a loop over steps, ops of a layer come back many times a step; the embedding, the head, the loss, the optimizer or
the choice of the next token come back once. So the rarest op that comes back evenly, all through the recording, marks
the steps. In a single forward pass the rarest such ops are those of a layer: then ops that are in no such stretch (the
embedding before, the head after) give it away, and there is one step.
"""

import numpy as np

from dragonscale.evidence.profiles.recording import OpText, Recording

ENDS = ("embed", "embedding", "head", "loss", "optimizer", "sampling", "update")
"""Sections that a step has once, and a layer does not."""
_EVEN = 0.1
"""Largest deviation of the distances, in distances, that still counts as even."""
_FEWEST = 3
_ENOUGH = 0.6
"""Share of the stretches that must have an end of the model to be steps: parts are not told alike in each."""


def repeated_starts(recording: Recording, device: int, sections: list[str]) -> np.ndarray:
    """When each step starts, and when the last one is over; nothing where none can be told."""
    place = _busiest(recording, device)
    if len(place) < 2 * _FEWEST:
        return np.zeros(0, np.int64)
    # An op that serves several parts stands in the list once for each, and not alike in each step: here it is one
    # again.
    first: dict[OpText, int] = {}
    same = np.array([first.setdefault(op, number) for number, op in enumerate(recording.ops)])
    ops, start, end = same[recording.events.op[place]], recording.events.start[place], recording.events.end[place]
    half = _twice(ops)
    if half:
        return np.array([start[0], start[half], end.max()])
    marks = _marks(ops)
    if not marks:
        return np.zeros(0, np.int64)
    launched = recording.events.launched[place]
    if _in_graphs(ops, marks, launched):
        return graph_starts(ops, start, end, launched)
    names = sections or [""] * len(recording.ops)
    ends = np.array([any(word in section for word in ENDS) for section in names], bool)[recording.events.op[place]]
    if _layers(ops, marks, ends):
        return np.zeros(0, np.int64)
    where = np.flatnonzero(ops == marks[0])
    gap = start - np.concatenate([[start[0]], np.maximum.accumulate(end)[:-1]])
    gap[0] = gap.max()  # before the first op there was nothing
    # a step begins after the longest wait of the device within the stretch; of waits that are about as long, with the
    # embedding
    offsets = np.arange(int(np.diff(where).min()))
    waits = np.median(gap[where[:-1, None] + offsets], axis=0)
    long = np.flatnonzero(waits >= 0.5 * waits.max())
    embedding = [offset for offset in long.tolist() if sections and sections[ops[where[0] + offset]] == "embedding"]
    offset = embedding[0] if embedding else int(np.argmax(waits))
    where, length = where + offset, int(np.median(np.diff(where)))
    # a whole step may lie before the first one, and after the last
    ahead = np.arange(where[0] - length, -1, -length)[::-1]
    where = np.concatenate([ahead, where[where < len(start)]])
    over = int(end[where[-1] :].max())
    whole = len(start) - where[-1] >= length
    return np.append(start[where], over) if whole else start[where]


def _busiest(recording: Recording, device: int) -> np.ndarray:
    """Events of the track with most time; of all tracks where none has most of it, as on the threads of a CPU."""
    events, best, longest = recording.events, np.zeros(0, np.int64), 0
    every = np.flatnonzero(recording.on("ops", device))
    for number in recording.tracks_of(device):
        if recording.tracks[number].kind == "ops":
            place = recording.of_track(number)
            time = int(events.duration[place].sum())
            if time > longest:
                best, longest = place, time
    return best if longest >= 0.6 * int(events.duration[every].sum()) else every


def _marks(ops: np.ndarray) -> list[int]:
    """The ops that come back evenly and rarest: all of one count, give or take a step that is cut off."""
    order = np.argsort(ops, kind="stable")
    kinds, first = np.unique(ops[order], return_index=True)
    counts = np.diff(np.append(first, len(ops)))
    found: list[tuple[int, int]] = []
    for kind, begin, count in sorted(
        zip(kinds.tolist(), first.tolist(), counts.tolist(), strict=True), key=lambda one: one[2]
    ):
        if count < _FEWEST or (found and count > found[0][0] + 1):
            continue
        where = order[begin : begin + count]
        apart = np.diff(where)
        middle = float(np.median(apart))
        even = np.mean(np.abs(apart - middle) <= max(1.0, _EVEN * middle))
        reach = (where[-1] - where[0] + 2 * middle) / len(ops)
        if middle > 1 and even >= 0.9 and reach >= 0.7:
            found.append((count, kind))
    return [kind for _, kind in found]


def _twice(ops: np.ndarray) -> int:
    """Where the second of two steps begins that are the whole recording; 0 where it is not two times the same."""
    _, first, counts = np.unique(ops, return_index=True, return_counts=True)
    if np.count_nonzero(counts == 2) < 2:
        return 0
    last = len(ops) - 1 - np.unique(ops[::-1], return_index=True)[1]
    apart = (last - first)[counts == 2]
    lag = int(np.median(apart))
    whole = abs(2 * lag - len(ops)) <= max(2, 0.02 * len(ops))
    return lag if whole and np.mean(ops[lag:] == ops[: len(ops) - lag]) >= 0.95 else 0


def _in_graphs(ops: np.ndarray, marks: list[int], launched: np.ndarray) -> bool:
    """Whether several stretches were launched at once, as one graph: they are layers then, and a launch is a step or
    part of one."""
    when = launched[ops == marks[0]]
    return bool((when >= 0).all()) and len(np.unique(when)) <= len(when) / 2


def graph_starts(ops: np.ndarray, start: np.ndarray, end: np.ndarray, launched: np.ndarray) -> np.ndarray:
    """Starts of the launches that ran the same ops as others, and the end of the last; nothing where no launch came
    back."""
    alike: dict[tuple[int, ...], list[int]] = {}
    order = np.argsort(launched, kind="stable")
    order = order[launched[order] >= 0]
    for mine in np.split(order, np.flatnonzero(np.diff(launched[order])) + 1):
        alike.setdefault(tuple(ops[mine].tolist()), []).append(int(mine[0]) if len(mine) else 0)
    several = {run: places for run, places in alike.items() if run and len(places) > 1}
    if not several:
        return np.zeros(0, np.int64)
    best = several[max(several, key=lambda run: len(several[run]) * len(run))]
    return np.append(start[best], end.max())


def _layers(ops: np.ndarray, marks: list[int], ends: np.ndarray) -> bool:
    """Whether what repeats are layers of one pass and not steps: the ends of the model (`ends` says which events are of
    them) are not in most stretches; where no end is known, whether there are ops before or after that are in no
    stretch."""
    where = np.flatnonzero(ops == marks[0])
    if ends.any():
        before = np.concatenate([[0], np.cumsum(ends)])
        return bool(np.mean(before[where[1:]] > before[where[:-1]]) < _ENOUGH)
    inside = np.unique(ops[where[0] : where[-1]])
    outside = np.unique(np.concatenate([ops[: where[0]], ops[where[-1] :]]))
    return len(np.setdiff1d(outside, inside)) > 0
