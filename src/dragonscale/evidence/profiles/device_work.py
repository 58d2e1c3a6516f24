"""Own time: what an event takes beside the events that are nested in it.

On one track of a device events follow each other or lie in each other: a `while` covers every op of its body, a `call`
its computation. Time belongs to the innermost. So a track is cut into pieces, each owned by one event; pieces never
overlap, and their sum is the busy time of the track. Levels are peeled off from the outside, each in one pass over
arrays; real profiles are a handful of levels deep.

Kernels of one CUDA stream may also overlap a little without nesting (programmatic dependent launches): the earlier one
keeps the overlap.

At any moment of a step a device computes; or it does not, and something travels; or only copies run; or nothing does.
So the four parts add up to the step. Ops that run at the same moment on several streams or threads share it, so that
ops add up to their part as well. What travels while the device computes is overlapped: it is told, and costs the step
nothing.

>>> import numpy as np
>>> pieces = track_pieces(np.array([0, 2, 6]), np.array([10, 4, 8]))  # a loop with two ops in it
>>> pieces.start.tolist(), pieces.end.tolist(), pieces.event.tolist()
([0, 2, 4, 6, 8], [2, 4, 6, 8, 10], [0, 1, 0, 2, 0])
"""

from dataclasses import dataclass

import numpy as np

from dragonscale.evidence.profiles.intervals import NONE, Spans, covered, outside, shared, union
from dragonscale.evidence.profiles.recording import Recording
from dragonscale.evidence.profiles.roles import OpRole
from dragonscale.plan.ledger import COLLECTIVES

DEEPEST = 48
"""Levels of nesting that are told apart; what is deeper belongs to the level above."""
BUSY = ("ops", "async", "copies")
"""Tracks whose events are work of a device."""


@dataclass(frozen=True)
class Pieces:
    """Stretches of time, each with the event that owns it, in order of their starts."""

    start: np.ndarray
    end: np.ndarray
    event: np.ndarray

    def events(self, count: int) -> np.ndarray:
        """The events that own any piece, each once and in order; `count` is how many events there are in all."""
        owns = np.zeros(count, bool)
        owns[self.event] = True
        return np.flatnonzero(owns)

    def chosen(self, which: np.ndarray) -> "Pieces":
        """Those of a mask."""
        return Pieces(self.start[which], self.end[which], self.event[which])


def joined(several: list[Pieces]) -> Pieces:
    """Pieces of several tracks as one list."""
    if not several:
        none = np.zeros(0, np.int64)
        return Pieces(none, none, none)
    start, end, event = (np.concatenate([getattr(one, name) for one in several]) for name in ("start", "end", "event"))
    order = np.argsort(start, kind="stable")
    return Pieces(start[order], end[order], event[order])


def device_pieces(recording: Recording, device: int) -> Pieces:
    """Every piece of work on a device; events by their number in the recording."""
    events, found = recording.events, []
    for number in recording.tracks_of(device):
        track = recording.tracks[number]
        if track.kind not in BUSY:
            continue
        place = recording.of_track(number)
        if track.kind == "ops":
            pieces = track_pieces(events.start[place], events.end[place])
            found.append(Pieces(pieces.start, pieces.end, place[pieces.event]))
        else:  # transfers run beside each other
            found.append(Pieces(events.start[place], events.end[place], place))
    return joined(found)


def track_pieces(start: np.ndarray, end: np.ndarray) -> Pieces:
    """A track cut into pieces that do not overlap; `start` is in order."""
    parent, start, end = nesting(start, end)
    numbers = np.arange(len(start))
    inner = np.flatnonzero(parent >= 0)
    if not len(inner):
        return _in_order(start, end, numbers)
    inner = inner[np.lexsort((start[inner], parent[inner]))]
    above = parent[inner]
    first = np.append(True, above[1:] != above[:-1])
    last = np.append(above[1:] != above[:-1], True)
    # of an event with others in it: what lies before each of them, and what lies after the last
    opens = np.where(first, start[above], np.append(0, end[inner][:-1]))
    before = (opens, start[inner], above)
    after = (end[inner][last], end[above][last], above[last])
    leaf = np.ones(len(start), bool)
    leaf[above] = False
    leaves = numbers[leaf]
    alone = (start[leaves], end[leaves], leaves)
    columns = [np.concatenate(each) for each in zip(before, after, alone, strict=True)]
    return _in_order(*columns)


def nesting(start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The event that each lies directly in (-1: none), and starts and ends with overlaps that are no nesting cut away.

    >>> import numpy as np
    >>> nesting(np.array([0, 1, 2, 8]), np.array([9, 5, 4, 12]))[0].tolist()
    [-1, 0, 1, -1]
    """
    start, end = start.astype(np.int64), np.maximum(end, start).astype(np.int64)
    parent = np.full(len(start), -1, np.int64)
    rest = _outer_first(start, end)
    above = np.zeros(0, np.int64)
    for _ in range(DEEPEST):
        if not len(rest):
            break
        reached = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(end[rest])[:-1]])
        over = (start[rest] < reached) & (end[rest] > reached)
        if over.any():
            start[rest[over]] = reached[over]
            rest = rest[_outer_first(start[rest], end[rest])]
            reached = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(end[rest])[:-1]])
        outer = start[rest] >= reached
        level = rest[outer]
        if len(above):
            parent[level] = above[np.searchsorted(start[above], start[level], side="right") - 1]
        above, rest = level, rest[~outer]
    end[rest] = start[rest]  # deeper than anything real: no time of its own
    return parent, start, end


def _outer_first(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """By start, the longer first; most tracks are in that order already, and sorting is what costs time."""
    later = start[1:] > start[:-1]
    if np.all(later | ((start[1:] == start[:-1]) & (end[1:] <= end[:-1]))):
        return np.arange(len(start))
    return np.lexsort((-end, start))


def _in_order(start: np.ndarray, end: np.ndarray, event: np.ndarray) -> Pieces:
    some = end > start
    start, end, event = start[some], end[some], event[some]
    order = np.argsort(start, kind="stable")
    return Pieces(start[order], end[order], event[order])


TRAVELS = (*COLLECTIVES, "broadcast", "send", "recv", "communication", "barrier")
"""Kinds of ops that use the network."""
COMPUTE, NETWORK, COPIES = 0, 1, 2
_COPYING = ("memcpy", "memset")


@dataclass(frozen=True)
class DeviceWork:
    """One device's pieces of work, and what each has of the steps, in ns: `seconds` as it ran
    (shared where several compute at once), `exposed` as the step waits for it. `spans` is when each class ran, and when
    any did."""

    device: int
    pieces: Pieces

    seconds: np.ndarray
    exposed: np.ndarray
    spans: dict[str, Spans]
    windows: np.ndarray
    parts: dict[str, float]
    """compute, communication, copies, idle and overlapped, in ns over all windows together."""


def device_work(recording: Recording, device: int, roles: list[OpRole], windows: np.ndarray) -> DeviceWork:
    """The work of a device within some windows, which are in order and apart."""
    pieces = device_pieces(recording, device)
    classes = event_classes(recording, roles)[pieces.event]
    chosen = [pieces.chosen(classes == kind) for kind in (COMPUTE, NETWORK, COPIES)]
    spans = [union(some.start, some.end) for some in chosen]
    moving = union(*(np.concatenate(both) for both in zip(spans[0], spans[1], strict=True)))
    busy = union(*(np.concatenate(both) for both in zip(moving, spans[2], strict=True)))
    rest = outside(windows)
    seconds, exposed = np.zeros(len(pieces.start)), np.zeros(len(pieces.start))
    for kind, hidden in ((COMPUTE, NONE), (NETWORK, spans[0]), (COPIES, moving)):
        some = chosen[kind]
        if not len(some.start):
            continue
        waits = shared(some.start, some.end, _joint(hidden, rest))
        exposed[classes == kind] = waits(some.end) - waits(some.start)
        ran = waits if kind == COMPUTE else covered(windows[:, 0], windows[:, 1])
        seconds[classes == kind] = ran(some.end) - ran(some.start)
    measured = [measure(each, windows) for each in (spans[0], spans[1], moving, busy)]
    computing, travelling, moved, any_of = measured
    parts = {
        "compute": computing,
        "communication": moved - computing,
        "copies": any_of - moved,
        "idle": float(np.sum(windows[:, 1] - windows[:, 0])) - any_of,
        "overlapped": computing + travelling - moved,
    }
    named = {"compute": spans[0], "communication": spans[1], "copies": spans[2], "busy": busy}
    return DeviceWork(device, pieces, seconds, exposed, named, windows, parts)


def event_classes(recording: Recording, roles: list[OpRole]) -> np.ndarray:
    """Of each event whether it computes, travels or copies: by its op, and by the track it is on."""
    kinds = {"host": COPIES} | dict.fromkeys(TRAVELS, NETWORK)
    by_op = np.array([kinds.get(role.kind, COMPUTE) for role in roles] or [COMPUTE], np.int8)
    copying = np.array([any(word in op.category.lower() for word in _COPYING) for op in recording.ops] or [False])
    beside = np.array([track.kind in ("copies", "async") for track in recording.tracks] or [False])
    ops, tracks = recording.events.op, recording.events.track
    found = by_op[ops]
    return np.where((found == COMPUTE) & (copying[ops] | beside[tracks]), COPIES, found).astype(np.int8)


def _joint(one: Spans, other: Spans) -> Spans:
    return union(np.concatenate([one[0], other[0]]), np.concatenate([one[1], other[1]]))


def measure(spans: Spans, windows: np.ndarray) -> float:
    """How much of the windows some spans cover, in ns."""
    within = covered(*spans)
    return float(np.sum(within(windows[:, 1]) - within(windows[:, 0])))
