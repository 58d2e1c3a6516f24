"""A recording, read as a performance engineer would: steps, own times, groups against rooflines, communication, gaps,
waste, memory.

This module only calls the others in their order and puts what they find into one record; each part is a module of its
own.
"""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from dragonscale.errors import InputError
from dragonscale.evidence.profiles.communication import moves
from dragonscale.evidence.profiles.gaps import gap_lines
from dragonscale.evidence.profiles.groups import attributed_shares, longest_ops, matmul_flops, work_groups
from dragonscale.evidence.profiles.halves import with_waits
from dragonscale.evidence.profiles.instruction_work import worked_once
from dragonscale.evidence.profiles.intervals import union
from dragonscale.evidence.profiles.memory_use import memory_use
from dragonscale.evidence.profiles.parts import DeviceWork, device_work, measure
from dragonscale.evidence.profiles.per_op import MATMULS, ChipRoof, OpTotals, causal_ops, op_totals
from dragonscale.evidence.profiles.recording import Recording
from dragonscale.evidence.profiles.records import DeviceTime, ProfileReading, RecordedStep, StepsFound, TimePart
from dragonscale.evidence.profiles.roles import OpRole
from dragonscale.evidence.profiles.self_time import BUSY
from dragonscale.evidence.profiles.steps import LONG, SHORT, FoundSteps, find_steps
from dragonscale.evidence.profiles.waste import wasted

if TYPE_CHECKING:
    from dragonscale.physics.hardware import Chip, Slice

_STEPS = 2000
"""Steps that are listed one by one."""


@dataclass(frozen=True)
class Analysis:
    """What stands behind a reading. `roles` has one entry for each op of the recording; `own` is the own time of each
    event in ns, without what is nested in it, and within the kept steps; `windows` are starts and ends of the kept
    steps in ns, one row each; `device` is the device that the reading tells about."""

    reading: ProfileReading
    recording: Recording
    roles: list[OpRole]
    own: np.ndarray
    windows: np.ndarray
    device: int
    chip: "Chip | None"
    totals: OpTotals
    work: DeviceWork
    mesh: dict[str, int]
    dtype: str
    """The dtype of most matmul FLOPs; empty where it is not known."""

    @cached_property
    def roof(self) -> ChipRoof:
        """What its ops are held against."""
        return ChipRoof(self.chip, causal_ops(self.recording))


def analyse(
    recording: Recording,
    roles: list[OpRole],
    chip: "Chip | None",
    top: int = 20,
    mesh: dict[str, int] | None = None,
    chosen: int | None = None,
    piece: "Slice | None" = None,
) -> Analysis:
    """Everything that can be told without a plan; `chosen` is the number of one step to look at, `piece` the slice that
    the mesh is of."""
    roles = worked_once(recording, with_waits(recording, roles))
    sections = [role.section for role in roles]
    found = {device: only_step(find_steps(recording, device, sections), chosen) for device in busy_devices(recording)}
    works = {
        device: device_work(recording, device, roles, steps.windows[steps.kept]) for device, steps in found.items()
    }
    device = told_device(works)
    steps, work = found[device], works[device]
    totals, roof = op_totals(recording, work, roles), ChipRoof(chip, causal_ops(recording))
    step_s = float(np.mean(work.windows[:, 1] - work.windows[:, 0])) / 1e9
    kind, section = attributed_shares(recording, totals, roles)
    matmul, done = matmul_flops(totals, roles, MATMULS), matmul_flops(totals, roles, MATMULS, roof.causal)
    flight = partial(in_flight, recording, work)
    dtype = main_dtype(totals, roles)
    peak = roof.peak(dtype)
    reading = ProfileReading(
        source=recording.source,
        software=recording.software,
        device=recording.devices[device].name if recording.devices else "",
        devices=len(found),
        chip=chip.name if chip is not None else "",
        static=False,
        step_s=step_s,
        steps=told_steps(steps, chosen),
        parts=time_parts(work, step_s),
        by_device=tuple(_device_time(recording, one) for one in works.values()),
        groups=work_groups(totals, roles, roof, step_s, flight),
        ops=longest_ops(recording, totals, roles, roof, step_s, top, flight),
        attributed_kind=kind,
        attributed_section=section,
        flops=matmul_flops(totals, roles, tuple({role.kind for role in roles})),
        matmul_flops=matmul,
        computed_flops=done,
        hfu=done / step_s / peak if done and peak and step_s else None,
        communication=moves(totals, roles, chip, mesh or {}, flight, piece),
        gaps=gap_lines(recording, work),
        waste=wasted(recording, totals, roles, roof, step_s),
        memory=memory_use(recording, chip),
        notes=_notes(recording, steps, chosen),
    )
    own = np.bincount(work.pieces.event, work.seconds, len(recording.events.start))
    return Analysis(reading, recording, roles, own, work.windows, device, chip, totals, work, mesh or {}, dtype)


def with_reading(analysis: Analysis, **changed: object) -> Analysis:
    """The same with some fields of its reading changed."""
    return replace(analysis, reading=msgspec.structs.replace(analysis.reading, **changed))


def one_step(analysis: Analysis) -> Recording:
    """The recording with the events of the first kept step alone, on the device that is told about."""
    recording = analysis.recording
    if not len(analysis.windows):
        return recording
    first, last = analysis.windows[0]
    device = np.array([track.device == analysis.device for track in recording.tracks] or [False])
    events = recording.events
    inside = (events.start >= first) & (events.start < last) & device[events.track]
    return replace(recording, events=events.chosen(inside))


def busy_devices(recording: Recording) -> list[int]:
    """The devices that did anything, by their numbers."""
    tracks = {number for number, track in enumerate(recording.tracks) if track.kind in BUSY}
    used = {
        recording.tracks[number].device for number in np.unique(recording.events.track).tolist() if number in tracks
    }
    return sorted(used)


def in_flight(recording: Recording, work: DeviceWork, ops: list[int]) -> float:
    """Seconds of a mean step in which any of some ops runs: transfers beside each other share the wires."""
    wanted = np.zeros(len(recording.ops), bool)
    wanted[ops] = True
    some = work.pieces.chosen(wanted[recording.events.op[work.pieces.event]])
    return measure(union(some.start, some.end), work.windows) / max(1, len(work.windows)) / 1e9


def told_device(works: dict[int, DeviceWork]) -> int:
    """The device to tell about: the one that is busy longest, as the others wait for it; of several alike the one with
    most events."""
    busy = {
        device: (work.parts["compute"] + work.parts["copies"]) / max(1, len(work.windows))
        for device, work in works.items()
    }
    near = [device for device in works if busy[device] >= 0.98 * max(busy.values())]
    return max(near, key=lambda device: len(works[device].pieces.start))


def only_step(steps: FoundSteps, chosen: int | None) -> FoundSteps:
    """The steps, where one was asked for with that one alone kept."""
    if chosen is None:
        return steps
    if chosen >= len(steps.windows):
        raise InputError(f"--step is {chosen}; the profile has {len(steps.windows):,} steps, counted from 0.")
    return replace(steps, kept=np.arange(len(steps.windows)) == chosen)


def main_dtype(totals: OpTotals, roles: list[OpRole]) -> str:
    """The dtype that most matmul FLOPs are computed in; empty where it is not known."""
    amount: dict[str, float] = {}
    for one in totals.ran.tolist():
        role = roles[one]
        if role.kind in MATMULS and role.dtype:
            amount[role.dtype] = amount.get(role.dtype, 0.0) + (role.flops or 0.0) * float(totals.works[one]) + 1e-9
    return max(amount, key=lambda name: amount[name], default="")


def time_parts(work: DeviceWork, step_s: float) -> tuple[TimePart, ...]:
    """The four parts of a mean step."""
    count = max(1, len(work.windows))
    names = {"compute": "compute", "communication": "exposed communication", "copies": "exposed copies", "idle": "idle"}
    return tuple(
        TimePart(told, work.parts[name] / count / 1e9, work.parts[name] / count / 1e9 / step_s if step_s else 0.0)
        for name, told in names.items()
    )


def _device_time(recording: Recording, work: DeviceWork) -> DeviceTime:
    count = max(1, len(work.windows)) * 1e9
    step = float(np.sum(work.windows[:, 1] - work.windows[:, 0])) / count
    values = (work.parts[name] / count for name in ("compute", "communication", "copies", "idle", "overlapped"))
    name = recording.devices[work.device].name if 0 <= work.device < len(recording.devices) else ""
    return DeviceTime(work.device, name, step, *values)


def told_steps(found: FoundSteps, chosen: int | None = None) -> StepsFound:
    """The steps as a record; times are those of the steps that were kept."""
    lengths = found.lengths[found.kept] / 1e9
    middle = float(np.median(lengths))
    listed = tuple(
        RecordedStep(
            number,
            float(first) / 1e9,
            float(last - first) / 1e9,
            found.names[number] if number < len(found.names) else "",
            bool(kept),
        )
        for number, ((first, last), kept) in enumerate(zip(found.windows[:_STEPS], found.kept, strict=False))
    )
    spread = float(lengths.max() - lengths.min()) / middle if middle else 0.0
    return StepsFound(
        found.found_by,
        len(found.windows),
        int(found.kept.sum()),
        middle,
        float(lengths.min()),
        float(lengths.max()),
        spread,
        listed,
        found.between_ns / 1e9,
        found.between,
        chosen,
    )


def _notes(recording: Recording, steps: FoundSteps, chosen: int | None) -> tuple[str, ...]:
    found = list(recording.notes)
    if recording.dropped:
        found.append(f"{recording.dropped:,} events beyond the first {len(recording.events.start):,} were not read.")
    return (*found, *(left_out(steps) if chosen is None else ()))


def left_out(steps: FoundSteps) -> list[str]:
    """Which steps the means leave out, and why, in sentences.

    >>> windows = np.array([[0, 10], [10, 20], [20, 40], [40, 50], [50, 59]])
    >>> left_out(FoundSteps(windows, (), np.array([True, True, False, True, False]), ""))
    ['1 of 5 steps took more than 1.5 times the median and is left out.', 'The last of 5 steps is left out: it has no
    next one to reach to.']
    """
    lengths, many = steps.lengths, len(steps.windows)
    middle, found = float(np.median(lengths[steps.kept])), []
    last = many - 1 if not steps.kept[-1] and SHORT * middle <= lengths[-1] <= LONG * middle else -1
    others = [one for one in np.flatnonzero(~steps.kept).tolist() if one != last]
    long = sum(bool(lengths[one] > middle) for one in others)
    for count, words in ((long, f"more than {LONG:g} times"), (len(others) - long, f"less than {SHORT:g} times")):
        if count:
            found.append(
                f"{count} of {many} steps took {words} the median and {'are' if count > 1 else 'is'} left out."
            )
    if last >= 0:
        found.append(f"The last of {many} steps is left out: it has no next one to reach to.")
    return found
