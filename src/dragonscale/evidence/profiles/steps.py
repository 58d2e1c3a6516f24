"""The steps of a recording, found without a hint.

Whoever recorded often said where steps are: the profiler's own steps, a range with a number in its name. Else the
program that takes most of the time is launched again and again. Else the ops themselves repeat (`repetition.py`). Where
nothing repeats, the recording is one step.

A step reaches from its start to the start of the next one, so that what the host does between two launches is part of
it: that is what a token or a training step takes. The last one ends with its own work. Steps that are cut off at the
ends of the recording, and those much longer than the others (a checkpoint, an evaluation), are left out of the means,
and said.
"""

import re
from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from dragonscale.evidence.profiles.device_work import BUSY
from dragonscale.evidence.profiles.intervals import least_between
from dragonscale.evidence.profiles.recording import Recording
from dragonscale.evidence.profiles.repetition import repeated_starts

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
    others = {
        name: float(sum(events.duration[one] for one in them if first <= events.start[one] < last))
        for name, them in by_name.items()
        if name != best
    }
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
