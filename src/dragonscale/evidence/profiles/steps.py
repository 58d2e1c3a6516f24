"""The steps of a recording, found without a hint.

Whoever recorded often said where steps are: the profiler's own steps, a range with a number in its name. Else the
program that takes most of the time is launched again and again. Else the ops themselves repeat. Where
nothing repeats, the recording is one step.

A step reaches from its start to the start of the next one, so that what the host does between two launches is part of
it: that is what a token or a training step takes. The last one ends with its own work. Steps that are cut off at the
ends of the recording, and those much longer than the others (a checkpoint, an evaluation), are left out of the means,
and said.

Where nobody said the steps, ops come back at even distances on the busiest track. In a loop over steps, ops of a layer
come back many times a step; the embedding, the head, the loss, the optimizer or the choice of the next token come back
once. So the rarest op that comes back evenly, all through the recording, marks the steps. In a single forward pass the
rarest such ops are those of a layer: then ops that are in no such stretch (the embedding before, the head after) give
it away, and there is one step.
"""

import re
from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from dragonscale.evidence.profiles.device_work import BUSY
from dragonscale.evidence.profiles.intervals import least_between
from dragonscale.evidence.profiles.recording import OpText, Recording

_STEP = re.compile(
    r"(?i)(^|[^a-z])(profiler)?(train|decode|generat|serve|infer|model)?[ "
    r"_]?(step|iter|iteration|batch|generate|token)([^a-z]|$)"
)
_NUMBER = re.compile(r"[\d#()\[\]:]+$|\(\d+\)$|[._]\d+$")
LONG = 1.5
"""A step longer than so many medians is left out of the means."""
SHORT = 0.5
"""And one shorter than this: cut off, or another program."""


@dataclass(frozen=True)
class FoundSteps:
    """Starts and ends in ns, one row for each step, and which of them the means are of."""

    windows: np.ndarray
    names: tuple[str, ...]
    kept: np.ndarray
    found_by: str
    between: tuple[str, ...] = ()
    """Other programs that ran in those windows."""
    between_ns: float = 0.0

    @classmethod
    def of(cls, windows: np.ndarray | None, found_by: str, names: tuple[str, ...] = ()) -> "FoundSteps | None":
        """Windows that are all kept; None where there are none."""
        return None if windows is None else cls(windows, names, np.ones(len(windows), bool), found_by)

    @property
    def lengths(self) -> np.ndarray:
        """How long each is, in ns."""
        return self.windows[:, 1] - self.windows[:, 0]


def find_steps(recording: Recording, device: int, sections: list[str]) -> FoundSteps:
    """The steps of a device; `sections` are those of the ops, which tell a layer that repeats from a step that does."""
    busy = _busy(recording, device)
    for finder in (_said, _ranges, _launches, _runs):
        found = _in_order(finder(recording, device))
        if found is not None and _covers(recording, busy, found.windows):
            return _judged(found)
    starts = repeated_starts(recording, device, sections)
    if len(starts) > 2:
        windows = np.stack([starts[:-1], starts[1:]], 1)
        return _judged(FoundSteps(windows, (), np.ones(len(windows), bool), "ops that repeat"))
    return replace(_whole(recording, busy), found_by="nothing repeats: the recording is one step")


def _in_order(found: FoundSteps | None) -> FoundSteps | None:
    """The steps one after the other, those of no length left out; None where none is left."""
    if found is None or not len(found.windows):
        return None
    starts = np.maximum.accumulate(found.windows[:, 0])
    ends = np.append(np.minimum(found.windows[:-1, 1], starts[1:]), found.windows[-1, 1])
    some = ends > starts
    names = tuple(name for name, kept in zip(found.names, some, strict=False) if kept)
    windows = np.stack([starts, ends], 1)[some]
    return replace(found, windows=windows, names=names, kept=found.kept[some]) if some.any() else None


def _covers(recording: Recording, busy: np.ndarray, windows: np.ndarray) -> bool:
    """Whether a good part of what the device did lies in the steps: else they are of something else."""
    start, time = recording.events.start[busy], recording.events.duration[busy]
    inside = (start >= windows[0, 0]) & (start < windows[-1, 1])
    return float(time[inside].sum()) >= 0.2 * float(time.sum())


def _said(recording: Recording, device: int) -> FoundSteps | None:
    """The profiler's own steps: on the device, or on the host, whose work the device does later."""
    events = recording.events
    mask = recording.on("steps", device)
    if mask.any():
        place = _outermost(recording, np.flatnonzero(mask))
        steps = _launched_again(recording, place, "the profiler's steps") if len(place) else None
        return steps and _to_the_end(recording, device, steps)
    place = _outermost(recording, np.flatnonzero(recording.on("steps", -1)))
    if not len(place):
        return None
    names = tuple(recording.ops[op].name for op in events.op[place])
    windows = device_windows(recording, device, events.start[place], events.end[place])
    return FoundSteps.of(windows, "the profiler's steps", names)


def _to_the_end(recording: Recording, device: int, found: FoundSteps) -> FoundSteps:
    """With the last step as long as its work. PyTorch's steps on a device cover only what the main thread launched, and
    backward passes are launched by another: the step on the host says what belongs to it."""
    events = recording.events
    place = _outermost(recording, np.flatnonzero(recording.on("steps", -1)))
    asked = device_windows(recording, device, events.start[place], events.end[place]) if len(place) else None
    if asked is None or len(place) != len(found.windows):
        return found
    windows = found.windows.copy()
    windows[-1, 1] = max(windows[-1, 1], asked[-1, 1])
    return replace(found, windows=windows)


def device_windows(recording: Recording, device: int, opened: np.ndarray, closed: np.ndarray) -> np.ndarray | None:
    """Where the device does what the host asked for between some moments: from the first op of one to the first op of
    the next."""
    events = recording.events
    place = _busy(recording, device)
    if not len(place):
        return None
    start, end = events.start[place], events.end[place]
    asked = np.where(events.launched[place] >= 0, events.launched[place], start)
    order = np.argsort(asked, kind="stable")
    asked, start, end = asked[order], start[order], end[order]
    low, high = np.searchsorted(asked, opened), np.searchsorted(asked, closed)
    firsts = np.where(high > low, least_between(start, low, high), opened)
    last = int(end[low[-1] : high[-1]].max()) if high[-1] > low[-1] else int(closed[-1])
    return _until_next(firsts, last)


def _ranges(recording: Recording, device: int) -> FoundSteps | None:
    """Ranges that a user laid over steps: names that say so, or that repeat with a number, at least three times."""
    for where in (device, -1):
        named = _by_name(recording, recording.on("scopes", where))
        several = {name: them for name, them in named.items() if len(them) > 2 and _STEP.search(name)}
        if several:
            events = recording.events
            best = max(several, key=lambda name: sum(int(events.duration[one]) for one in several[name]))
            chosen = np.array(several[best])
            if where < 0:
                windows = device_windows(recording, device, events.start[chosen], events.end[chosen])
                return FoundSteps.of(windows, f"ranges called {best}")
            return _launched_again(recording, chosen, f"ranges called {best}")
    return None


def _by_name(recording: Recording, mask: np.ndarray) -> dict[str, list[int]]:
    """Events of a mask by their names without numbers."""
    named: dict[str, list[int]] = defaultdict(list)
    for number in np.flatnonzero(mask).tolist():
        named[_plain(recording.ops[recording.events.op[number]].name)].append(number)
    return named


def _launches(recording: Recording, device: int) -> FoundSteps | None:
    """Launches of the program that takes most of the time; of one that is launched once only where no other has a
    quarter of the time."""
    events, by_name = recording.events, _by_name(recording, recording.on("modules", device))
    if not by_name:
        return None
    time = {name: float(events.duration[them].sum()) for name, them in by_name.items()}
    whole = sum(time.values()) or 1.0
    again = [name for name in time if len(by_name[name]) > 1 and time[name] > whole / 4]
    best = max(again or time, key=lambda name: time[name])
    found = _launched_again(recording, np.array(by_name[best]), f"launches of {best}")
    if len(by_name[best]) == 1:
        found = replace(found, found_by=f"one launch of {best}")
    first, last = found.windows[0, 0], found.windows[-1, 1]
    inside = np.where((events.start >= first) & (events.start < last), events.duration, 0)
    others = {name: int(inside[them].sum()) for name, them in by_name.items() if name != best}
    told = sorted((name for name in others if others[name] > 0), key=lambda name: -others[name])
    return replace(found, between=tuple(told[:8]))


def _runs(recording: Recording, device: int) -> FoundSteps | None:
    """Runs of the program that takes most of the time, where the profiler numbers the runs that its ops belong to."""
    place, events = _busy(recording, device), recording.events
    place = place[events.run[place] >= 0]
    if not len(place):
        return None
    names, number = np.unique([_plain(op.module) for op in recording.ops], return_inverse=True)
    program = number[events.op[place]]
    time = np.bincount(program, events.duration[place], len(names))
    time[names == ""] = 0.0
    best = int(np.argmax(time))
    place = place[program == best]
    runs, which = np.unique(events.run[place], return_inverse=True)
    if not time[best] or len(runs) < 2:
        return None
    starts = np.full(len(runs), np.iinfo(np.int64).max)
    np.minimum.at(starts, which, events.start[place])
    windows = _until_next(np.sort(starts), int(events.end[place].max()))
    return FoundSteps.of(windows, f"launches of {names[best]}")


def _launched_again(recording: Recording, place: np.ndarray, found_by: str) -> FoundSteps:
    """Windows from the start of each to the start of the next; what lies between an end and the next start is told."""
    events = recording.events
    start, end = events.start[place], events.end[place]
    names = tuple(recording.ops[op].name for op in events.op[place])
    gaps = np.maximum(start[1:] - end[:-1], 0)
    between = float(np.median(gaps)) if len(gaps) else 0.0
    return FoundSteps(_until_next(start, int(end[-1])), names, np.ones(len(start), bool), found_by, between_ns=between)


def _outermost(recording: Recording, place: np.ndarray) -> np.ndarray:
    """Without events that lie in others, and without those of no length. What is left out covers nothing."""
    kept, reached, events = list[int](), -1, recording.events
    columns = (place, events.start[place], events.end[place])
    for number, start, end in zip(*(column.tolist() for column in columns), strict=True):
        if start >= reached and end > start:
            kept.append(number)
            reached = end
    return np.array(kept, np.int64)


def _until_next(starts: np.ndarray, last: int) -> np.ndarray:
    return np.stack([starts, np.append(starts[1:], max(last, int(starts[-1])))], 1).astype(np.int64)


def _busy(recording: Recording, device: int) -> np.ndarray:
    mask = np.zeros(len(recording.events.start), bool)
    for kind in BUSY:
        mask |= recording.on(kind, device)
    return np.flatnonzero(mask)


def _whole(recording: Recording, busy: np.ndarray) -> FoundSteps:
    events = recording.events
    first = int(events.start[busy].min()) if len(busy) else 0
    last = int(events.end[busy].max()) if len(busy) else 0
    return FoundSteps(np.array([[first, last]]), ("",), np.ones(1, bool), "")


def _judged(found: FoundSteps) -> FoundSteps:
    """Which steps the means are of: not those much longer or shorter than the median, and the last only where it is as
    long as the others (it has no next one to reach to, and may be cut off)."""
    lengths = found.lengths
    some = lengths[:-1] if len(lengths) > 2 else lengths
    middle = float(np.median(some))
    kept = (lengths <= LONG * middle) & (lengths >= SHORT * middle)
    if len(lengths) > 2:
        kept[-1] &= bool(lengths[-1] >= 0.98 * middle)
    return replace(found, kept=kept if kept.any() else np.ones(len(lengths), bool))


def _plain(name: str) -> str:
    """A name without its number: `step 12`, `ProfilerStep#3`, `jit_train(123456)`."""
    before = ""
    while name != before:
        before, name = name, _NUMBER.sub("", name).strip()
    return name or before


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
    rows = zip(kinds.tolist(), first.tolist(), counts.tolist(), strict=True)
    for kind, begin, count in sorted(rows, key=lambda row: row[2]):
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
