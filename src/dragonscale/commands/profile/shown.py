"""One step of a profile, chosen to be drawn: its events on their tracks, and what we say about them on tracks of our
own.

A profile may hold millions of events; a page and a trace show the step whose length is nearest to the median, and of
that at most `MOST` events: where there are more, the shortest are left out and counted. Times are seconds from the
start of the step.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dragonscale.evidence.profiles.analysis import Analysis
from dragonscale.evidence.profiles.device_work import DeviceWork
from dragonscale.evidence.profiles.gaps import CAUSES, find_gaps
from dragonscale.evidence.profiles.intervals import without

MOST = 16_000
"""Events of devices that are shown, of all tracks together."""
MOST_HOST, MOST_DEVICES = 1500, 8
_BUSY = ("ops", "async", "copies")


@dataclass(frozen=True)
class ShownSlice:
    """A stretch of time on a track: of an op of the recording (its number), or with a name of ours."""

    track: str
    start_s: float
    seconds: float
    op: int = -1
    name: str = ""


@dataclass(frozen=True)
class ShownStep:
    """The step: its number in the recording, its length, what ran in it, and how many events were too short to show."""

    number: int
    start_s: float
    seconds: float
    slices: tuple[ShownSlice, ...]
    own: tuple[ShownSlice, ...]
    """Our tracks: sections and phases, exposed communication, idle gaps with their causes."""
    left_out: int


def shown_step(analysis: Analysis) -> ShownStep | None:
    """The step to draw; None where nothing was timed."""
    windows = analysis.windows
    if analysis.work is None or not len(windows) or not len(analysis.recording.events.start):
        return None
    lengths = windows[:, 1] - windows[:, 0]
    chosen = int(np.argmin(np.abs(lengths - np.median(lengths))))
    first, last = (int(each) for each in windows[chosen])
    slices, left_out = _measured(analysis, first, last)
    number = _number(analysis, first)
    own = tuple(_own(analysis, analysis.work, first, last))
    return ShownStep(number, first / 1e9, (last - first) / 1e9, tuple(slices), own, left_out)


def _number(analysis: Analysis, first: int) -> int:
    """The step's number among all that were found."""
    steps = analysis.reading.steps.steps
    return min(steps, key=lambda step: abs(step.start_s - first / 1e9)).number if steps else 0


def _measured(analysis: Analysis, first: int, last: int) -> tuple[list[ShownSlice], int]:
    recording = analysis.recording
    events, end = recording.events, recording.events.end
    inside = (end > first) & (events.start < last) & (events.duration > 0)
    others = [device for device in range(len(recording.devices)) if device != analysis.device]
    devices = [analysis.device, *others][:MOST_DEVICES]
    busy = np.array([*(one.kind in _BUSY and one.device in devices for one in recording.tracks), False])
    host = np.array([*(one.kind == "host" for one in recording.tracks), False])
    kept, left_out = _longest(np.flatnonzero(inside & busy[events.track]), events.duration, MOST)
    beside = _busy_threads(np.flatnonzero(inside & host[events.track]), analysis, (last - first) / 20)
    beside, _ = _longest(beside, events.duration, MOST_HOST)
    order = {device: place for place, device in enumerate(devices)}
    chosen = [*kept.tolist(), *beside.tolist()]
    names = {track: _track_name(analysis, track) for track in set(events.track[chosen].tolist())}
    # Devices first, the one that is told about before the others; the host last.
    places = {track: order.get(recording.tracks[track].device, 99) for track in names}
    chosen.sort(key=lambda each: (places[events.track[each]], events.track[each], events.start[each]))
    bounds = ((max(int(events.start[each]), first), min(int(end[each]), last)) for each in chosen)
    rows = zip(chosen, bounds, strict=True)
    return [
        _slice(names[int(events.track[each])], *bound, first, op=int(events.op[each])) for each, bound in rows
    ], left_out


def _slice(track: str, start: int, end: int, zero: int, op: int = -1, name: str = "") -> ShownSlice:
    """A stretch of ns on a track, as seconds from a beginning."""
    return ShownSlice(track, (start - zero) / 1e9, (end - start) / 1e9, op, name)


def _busy_threads(place: np.ndarray, analysis: Analysis, least: float) -> np.ndarray:
    """Events of the host's threads that were in anything for long enough; the others explain nothing."""
    events = analysis.recording.events
    longest = np.zeros(len(analysis.recording.tracks) + 1)
    np.maximum.at(longest, events.track[place], events.duration[place])
    return place[longest[events.track[place]] >= least]


def _longest(place: np.ndarray, duration: np.ndarray, most: int) -> tuple[np.ndarray, int]:
    """At most so many events, the longest; and how many are left out."""
    if len(place) <= most:
        return place, 0
    kept = place[np.argpartition(-duration[place], most)[:most]]
    return np.sort(kept), len(place) - most


def _track_name(analysis: Analysis, number: int) -> str:
    track = analysis.recording.tracks[number]
    if track.device < 0 or track.kind == "host":
        return f"host: {track.name}"
    device, several = analysis.recording.devices[track.device], len(analysis.recording.devices) > 1
    return f"{device.name or device.kind} {device.index}: {track.name}" if several else track.name


def _own(analysis: Analysis, work: DeviceWork, first: int, last: int) -> Iterator[ShownSlice]:
    """What we say of the step, on tracks of our own."""
    yield from _runs(analysis, work, first, last)
    for start, end in _exposed(work, first, last):
        yield _slice("exposed communication", start, end, first, name="exposed")
    gaps = find_gaps(analysis.recording, work)
    for start, end, cause in zip(gaps.start.tolist(), gaps.end.tolist(), gaps.cause.tolist(), strict=True):
        if start >= first and end <= last and end - start >= (last - first) / MOST:
            yield _slice("idle", start, end, first, name=CAUSES[cause])


def _runs(analysis: Analysis, work: DeviceWork, first: int, last: int) -> Iterator[ShownSlice]:
    """Sections and phases: as long as ops of one section and phase follow each other, they are one slice."""
    pieces, ops = work.pieces, analysis.recording.events.op
    inside = np.flatnonzero((pieces.end > first) & (pieces.start < last))
    inside = inside[np.argsort(pieces.start[inside], kind="stable")]
    for track in ("phase", "section"):
        names = np.array([getattr(role, track) for role in analysis.roles] or [""])[ops[pieces.event[inside]]]
        known = inside[names != ""]
        names = names[names != ""]
        if not len(known):
            continue
        begins = np.flatnonzero(np.append(True, names[1:] != names[:-1]))
        for begin, stop in zip(begins.tolist(), [*begins[1:].tolist(), len(names)], strict=True):
            start = max(first, int(pieces.start[known[begin]]))
            # Ops of several streams overlap: a run ends where the next one begins.
            end = int(pieces.start[known[stop]]) if stop < len(names) else last
            end = min(last, end, int(pieces.end[known[begin:stop]].max()))
            if end > start:
                yield _slice(track, start, end, first, name=str(names[begin]))


def _exposed(work: DeviceWork, first: int, last: int) -> Iterator[tuple[int, int]]:
    """When something travels and nothing is computed."""
    computing = work.spans["compute"]
    for start, end in zip(*(each.tolist() for each in work.spans["communication"]), strict=True):
        if end > first and start < last:
            opens, closes = without(*computing, (max(start, first), min(end, last)))
            yield from zip(opens.tolist(), closes.tolist(), strict=True)
