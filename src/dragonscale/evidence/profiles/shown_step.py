"""One step of a profile, chosen to be drawn: its events on their tracks, and what the analysis says about them on
tracks of its own.

A profile may hold millions of events; a page and a trace show the step whose length is nearest to the median, and of
that at most `MAX_EVENTS` events: where there are more, the shortest are left out and counted. Times are seconds from
the start of the step; those of the recording are in ns.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dragonscale.evidence.profiles.analysis import Analysis
from dragonscale.evidence.profiles.device_work import DeviceWork
from dragonscale.evidence.profiles.gaps import CAUSES, find_gaps
from dragonscale.evidence.profiles.intervals import without

# Events of devices that are shown, of all tracks together; events of host threads; and devices.
MAX_EVENTS = 16_000
MAX_HOST_EVENTS = 1500
MAX_DEVICES = 8
# Kinds of tracks on which a device works.
_DEVICE_TRACKS = ("ops", "async", "copies")


@dataclass(frozen=True)
class ShownSlice:
    """A stretch of time on a track: of an op of the recording (its index), or with a name of the analysis."""

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
    """Tracks of the analysis: sections and phases, exposed communication, idle gaps with their causes."""
    left_out: int


def shown_step(analysis: Analysis) -> ShownStep | None:
    """The step to draw; None where nothing was timed."""
    windows = analysis.windows
    if analysis.work is None or not len(windows) or not len(analysis.recording.events.start):
        return None
    lengths = windows[:, 1] - windows[:, 0]  # (steps,) in ns
    median_step = int(np.argmin(np.abs(lengths - np.median(lengths))))
    first, last = windows[median_step].tolist()
    slices, left_out = _measured(analysis, first, last)
    number = _number(analysis, first)
    own = tuple(_own(analysis, analysis.work, first, last))
    return ShownStep(number, first / 1e9, (last - first) / 1e9, tuple(slices), own, left_out)


def _number(analysis: Analysis, first: int) -> int:
    """The step's number among all that were found."""
    steps = analysis.reading.steps.steps
    return min(steps, key=lambda step: abs(step.start_s - first / 1e9)).number if steps else 0


def _measured(analysis: Analysis, first: int, last: int) -> tuple[list[ShownSlice], int]:
    """The recorded events of a step from `first` to `last`, and how many were too short to show."""
    recording = analysis.recording
    events, end = recording.events, recording.events.end
    inside = (end > first) & (events.start < last) & (events.duration > 0)
    # the analysed device first
    others = [device for device in range(len(recording.devices)) if device != analysis.device]
    rank = {device: index for index, device in enumerate([analysis.device, *others][:MAX_DEVICES])}
    # by track; the last entry stands for events without a track, which have index -1
    busy = np.array([*(track.kind in _DEVICE_TRACKS and track.device in rank for track in recording.tracks), False])
    host = np.array([*(track.kind == "host" for track in recording.tracks), False])
    on_devices, left_out = _longest(np.flatnonzero(inside & busy[events.track]), events.duration, MAX_EVENTS)
    on_host = _busy_threads(np.flatnonzero(inside & host[events.track]), analysis, (last - first) / 20)
    on_host, _ = _longest(on_host, events.duration, MAX_HOST_EVENTS)
    chosen = [*on_devices.tolist(), *on_host.tolist()]
    names = {track: _track_name(analysis, track) for track in set(events.track[chosen].tolist())}
    # devices in their order, the host (which has no rank) last
    order = {track: rank.get(recording.tracks[track].device, len(recording.devices)) for track in names}
    chosen.sort(key=lambda event: (order[events.track[event]], events.track[event], events.start[event]))
    slices: list[ShownSlice] = []
    for event in chosen:
        start, stop = max(int(events.start[event]), first), min(int(end[event]), last)
        slices.append(_slice(names[int(events.track[event])], start, stop, first, op=int(events.op[event])))
    return slices, left_out


def _slice(track: str, start: int, end: int, zero: int, op: int = -1, name: str = "") -> ShownSlice:
    """A stretch of ns on a track, as seconds from a beginning."""
    return ShownSlice(track, (start - zero) / 1e9, (end - start) / 1e9, op, name)


def _busy_threads(chosen: NDArray[np.int64], analysis: Analysis, least_ns: float) -> NDArray[np.int64]:
    """Events (by index) of host threads that have one of at least `least_ns`; the other threads explain nothing."""
    events = analysis.recording.events
    longest = np.zeros(len(analysis.recording.tracks) + 1)  # the longest event of each track
    np.maximum.at(longest, events.track[chosen], events.duration[chosen])
    return chosen[longest[events.track[chosen]] >= least_ns]


def _longest(chosen: NDArray[np.int64], duration: np.ndarray, most: int) -> tuple[NDArray[np.int64], int]:
    """At most so many events, the longest, in their order; and how many are left out."""
    if len(chosen) <= most:
        return chosen, 0
    longest = chosen[np.argpartition(-duration[chosen], most)[:most]]
    return np.sort(longest), len(chosen) - most


def _track_name(analysis: Analysis, number: int) -> str:
    track = analysis.recording.tracks[number]
    if track.device < 0 or track.kind == "host":
        return f"host: {track.name}"
    devices = analysis.recording.devices
    if len(devices) == 1:
        return track.name
    device = devices[track.device]
    return f"{device.name or device.kind} {device.index}: {track.name}"


def _own(analysis: Analysis, work: DeviceWork, first: int, last: int) -> Iterator[ShownSlice]:
    """What the analysis says of the step, on tracks of its own."""
    yield from _runs(analysis, work, first, last)
    for start, end in _exposed(work, first, last):
        yield _slice("exposed communication", start, end, first, name="exposed")
    gaps = find_gaps(analysis.recording, work)
    for start, end, cause in zip(gaps.start.tolist(), gaps.end.tolist(), gaps.cause.tolist(), strict=True):
        if start >= first and end <= last and end - start >= (last - first) / MAX_EVENTS:
            yield _slice("idle", start, end, first, name=CAUSES[cause])


def _runs(analysis: Analysis, work: DeviceWork, first: int, last: int) -> Iterator[ShownSlice]:
    """Sections and phases: as long as ops of one section or phase follow each other, they are one slice."""
    pieces, ops = work.pieces, analysis.recording.events.op
    inside = np.flatnonzero((pieces.end > first) & (pieces.start < last))
    inside = inside[np.argsort(pieces.start[inside], kind="stable")]
    for track in ("phase", "section"):
        name_of_op = np.array([getattr(role, track) for role in analysis.roles] or [""])
        names = name_of_op[ops[pieces.event[inside]]]  # of each piece of work inside the step
        named, names = inside[names != ""], names[names != ""]
        if not len(named):
            continue
        # a run begins where the name is another than that of the piece before
        begins = np.flatnonzero(np.append(True, names[1:] != names[:-1])).tolist()
        for begin, stop in zip(begins, [*begins[1:], len(names)], strict=True):
            start = max(first, int(pieces.start[named[begin]]))
            # Ops of several streams overlap: a run ends where the next one begins.
            end = int(pieces.start[named[stop]]) if stop < len(names) else last
            end = min(last, end, int(pieces.end[named[begin:stop]].max()))
            if end > start:
                yield _slice(track, start, end, first, name=str(names[begin]))


def _exposed(work: DeviceWork, first: int, last: int) -> Iterator[tuple[int, int]]:
    """When something travels and nothing is computed."""
    starts, ends = work.spans["communication"]
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if end > first and start < last:
            opens, closes = without(*work.spans["compute"], (max(start, first), min(end, last)))
            yield from zip(opens.tolist(), closes.tolist(), strict=True)
