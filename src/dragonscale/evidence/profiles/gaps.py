"""Why a device was idle.

A gap ends when the next op starts. Where the profile says when the host asked for that op, it says who was late. Asked
for before the gap began, it was there and waited: for another stream or device, or for the few microseconds that every
kernel takes to start. Asked for within the gap, the host was late: where it was issuing one launch after the other, the
stretch is launch-bound; where it had stopped (waiting for the device, for data, compiling), it is a host stall, and
what it did then is named. Without times of launches (TPU), gaps inside a program are waits of the program, those
between programs are the host's.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from dragonscale.evidence.profiles.device_work import DeviceWork
from dragonscale.evidence.profiles.intervals import without
from dragonscale.evidence.profiles.names import table
from dragonscale.evidence.profiles.recording import Recording
from dragonscale.evidence.profiles.records import GapLine

CAUSES = LAUNCH, STALL, QUEUED, BETWEEN, INSIDE, HOST, OVERHEAD, COMPILED = tuple(table("advice.toml")["idle"])
"""Why a device was idle, as `advice.toml` has what to do about it."""
SMALL = 10_000
"""Ns: what a kernel takes to start and to end; a queue of kernels has such gaps and nobody is late."""
PAUSE = 250_000
"""Ns without a launch after which the host was not issuing but doing something else."""
_NAMED = 24
"""Gaps whose host events are looked at: the longest."""


@dataclass(frozen=True)
class Gaps:
    """Starts, ends and causes of all gaps of the kept steps."""

    start: np.ndarray
    end: np.ndarray
    cause: np.ndarray
    """Index into `CAUSES`."""


def find_gaps(recording: Recording, work: DeviceWork) -> Gaps:
    """Every gap of a device's steps with its cause."""
    pairs = [without(*work.spans["busy"], (int(first), int(last))) for first, last in work.windows]
    start = np.concatenate([pair[0] for pair in pairs]) if pairs else np.zeros(0, np.int64)
    end = np.concatenate([pair[1] for pair in pairs]) if pairs else np.zeros(0, np.int64)
    return Gaps(start, end, _causes(recording, work, start, end))


def _causes(recording: Recording, work: DeviceWork, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    events = recording.events
    order = work.pieces.events(len(events.start))  # in order of their starts, as all events are
    if not len(order) or not len(start):
        return np.zeros(len(start), np.int8)
    following = np.minimum(np.searchsorted(events.start[order], end, side="left"), len(order) - 1)
    asked = events.launched[order][following]
    timed = asked >= 0
    launches = np.sort(events.launched[order][events.launched[order] >= 0])
    before = launches[np.maximum(np.searchsorted(launches, asked, side="left") - 1, 0)] if len(launches) else asked
    small = end - start <= SMALL
    if 0 <= work.device < len(recording.devices) and recording.devices[work.device].kind == "cpu":
        # the CPU is its own host: nothing is launched, and what is no op is the framework's, or the compiled program's
        # where both
        # neighbours are ops of one
        modules = np.array([op.module for op in recording.ops], object)
        after, before = (modules[events.op[order][np.maximum(at, 0)]] for at in (following, following - 1))
        compiled = (after == before) & (after != "")
        return np.where(compiled, CAUSES.index(COMPILED), CAUSES.index(OVERHEAD)).astype(np.int8)
    inside = _inside_programs(recording, work.device, start, end)
    late = timed & (asked > start)
    found = np.full(len(start), CAUSES.index(HOST), np.int8)
    found[~timed & inside] = CAUSES.index(INSIDE)
    found[timed & ~late] = CAUSES.index(QUEUED)
    found[small & ~late] = CAUSES.index(BETWEEN)
    found[late] = CAUSES.index(LAUNCH)
    found[late & (asked - before > PAUSE)] = CAUSES.index(STALL)
    return found


def _inside_programs(recording: Recording, device: int, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Which gaps lie in a program that runs."""
    place = np.flatnonzero(recording.on("modules", device))
    if not len(place):
        return np.ones(len(start), bool) if not recording.on("host").any() else np.zeros(len(start), bool)
    opens, closes = recording.events.start[place], recording.events.end[place]
    at = np.searchsorted(opens, start, side="right") - 1
    return (at >= 0) & (closes[np.maximum(at, 0)] >= end)


def gap_lines(recording: Recording, work: DeviceWork) -> tuple[GapLine, ...]:
    """Idle time by cause, of a mean step."""
    gaps, steps = find_gaps(recording, work), max(1, len(work.windows))
    lines = []
    for number, cause in enumerate(CAUSES):
        some = gaps.cause == number
        if not some.any():
            continue
        start, end = gaps.start[some], gaps.end[some]
        what = host_names(recording, start, end) if cause in (STALL, HOST, LAUNCH, OVERHEAD) else ()
        seconds, longest = float((end - start).sum()) / steps / 1e9, float((end - start).max()) / 1e9
        lines.append(GapLine(cause, seconds, len(start) / steps, longest, what))
    return tuple(sorted(lines, key=lambda one: -one.seconds))


def host_names(recording: Recording, start: np.ndarray, end: np.ndarray) -> tuple[str, ...]:
    """What the host did in the longest of some gaps: the shortest event that covers most of each,
    largest share first."""
    mask = recording.on("host")
    longest = np.argsort(-(end - start))[:_NAMED]
    if not mask.any() or not len(longest):
        return ()
    start, end = start[longest], end[longest]
    events = recording.events
    place = np.flatnonzero(mask & (events.duration >= (end - start).min() // 4))
    opens, closes, ops = events.start[place], events.end[place], events.op[place]
    time: dict[str, float] = defaultdict(float)
    for first, last in zip(start.tolist(), end.tolist(), strict=True):
        over = np.minimum(closes, last) - np.maximum(opens, first)
        covers = np.flatnonzero(over >= 0.5 * (last - first))
        if len(covers):
            one = covers[np.argmin((closes - opens)[covers])]
            time[recording.ops[ops[one]].name] += float(over[one])
    return tuple(sorted(time, key=lambda name: -time[name])[:4])
