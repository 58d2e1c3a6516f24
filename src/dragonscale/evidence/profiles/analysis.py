"""A recording, read as a performance engineer would: steps, own times, groups against rooflines, communication, gaps,
waste, memory.

This module only calls the others in their order and puts what they find into one record; each part is a module of its
own.

A program that nobody timed (an HLO dump) is told as a step too: each of its ops at datasheet rates, one after the
other. It is a bound and is called one. Loops count their turns; of a branch that is not known each side counts once.
What travels takes its bytes at the rate of the wires that its group spans, on a torus without a plan at that of all
links.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

import msgspec
import numpy as np

from dragonscale.errors import InputError
from dragonscale.evidence.profiles.attribution import own_role
from dragonscale.evidence.profiles.completing import complete_roles, with_waits, worked_once
from dragonscale.evidence.profiles.device_work import BUSY, TRAVELS, DeviceWork, device_work
from dragonscale.evidence.profiles.gaps import gap_lines
from dragonscale.evidence.profiles.groups import attributed_shares, longest_ops, moves, wire_rate, work_groups
from dragonscale.evidence.profiles.hlo_roles import HloReader
from dragonscale.evidence.profiles.memory_samples import memory_use
from dragonscale.evidence.profiles.per_op import MATMULS, ChipRoof, OpTotals, StepOps, causal_ops, op_totals
from dragonscale.evidence.profiles.recording import DeviceText, OpText, Recording
from dragonscale.evidence.profiles.records import DeviceTime, ProfileReading, RecordedStep, StepsFound, TimePart
from dragonscale.evidence.profiles.roles import OpRole
from dragonscale.evidence.profiles.steps import LONG, SHORT, FoundSteps, find_steps
from dragonscale.evidence.profiles.waste import wasted
from dragonscale.evidence.xla.call_graph import BRANCHES, UNKNOWN, executions
from dragonscale.evidence.xla.hlo_text import Module
from dragonscale.evidence.xla.op_work import sending_rate
from dragonscale.evidence.xla.opcodes import CONTROL, UNTIMED
from dragonscale.physics.hardware import Chip, Slice

_STEPS = 2000
"""Steps that are listed one by one."""


@dataclass(frozen=True, kw_only=True)
class Analysis(StepOps):
    """What stands behind a reading. `device` is the device that the reading tells about, `windows` are starts and ends
    of its kept steps in ns, one row each."""

    reading: ProfileReading
    device: int = 0

    @property
    def windows(self) -> np.ndarray:
        """Starts and ends of the kept steps."""
        return self.work.windows if self.work is not None else np.zeros((0, 2), np.int64)


def analyse(
    recording: Recording,
    roles: list[OpRole],
    chip: Chip | None,
    top: int = 20,
    mesh: dict[str, int] | None = None,
    chosen: int | None = None,
    piece: Slice | None = None,
) -> Analysis:
    """Everything that can be told without a plan; `chosen` is the number of one step to look at, `piece` the slice that
    the mesh is of."""
    roles = worked_once(recording, with_waits(recording, roles))
    sections = [role.section for role in roles]
    every = {device: only_step(find_steps(recording, device, sections), chosen) for device in busy_devices(recording)}
    works = {device: device_work(recording, device, roles, each.windows[each.kept]) for device, each in every.items()}
    device = told_device(works)
    steps, work = every[device], works[device]
    step = StepOps(
        recording=recording,
        roles=roles,
        totals=op_totals(recording, work, roles),
        chip=chip,
        step_s=float(np.mean(work.windows[:, 1] - work.windows[:, 0])) / 1e9,
        mesh=mesh or {},
        piece=piece,
        work=work,
    )
    done, peak = step.flops(MATMULS, computed=True), step.roof.peak(step.dtype)
    return analysis_of(
        step,
        top,
        number=device,
        device=recording.devices[device].name if recording.devices else "",
        devices=len(every),
        steps=told_steps(steps, chosen),
        parts=time_parts(work, step.step_s),
        by_device=tuple(_device_time(recording, each) for each in works.values()),
        hfu=done / step.step_s / peak if done and peak and step.step_s else None,
        gaps=gap_lines(recording, work),
        memory=memory_use(recording, chip),
        notes=_notes(recording, steps, chosen),
    )


def analysis_of(step: StepOps, top: int, number: int = 0, **more: Any) -> Analysis:
    """The analysis of a step: what its ops say, with what else is known of it (`more`)."""
    kind, section, guessed = attributed_shares(step)
    reading = ProfileReading(
        source=step.recording.source,
        software=step.recording.software,
        chip=step.chip.name if step.chip is not None else "",
        static=step.work is None,
        step_s=step.step_s,
        groups=work_groups(step),
        ops=longest_ops(step, top),
        attributed_kind=kind,
        attributed_section=section,
        guessed_section=guessed,
        flops=step.flops({role.kind for role in step.roles}),
        matmul_flops=step.flops(MATMULS),
        computed_flops=step.flops(MATMULS, computed=True),
        communication=moves(step),
        waste=wasted(step),
        **more,
    )
    return Analysis(reading=reading, device=number, **{each.name: getattr(step, each.name) for each in fields(step)})


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
    used = (recording.tracks[number] for number in np.unique(recording.events.track).tolist())
    return sorted({track.device for track in used if track.kind in BUSY})


def told_device(works: dict[int, DeviceWork]) -> int:
    """The device to tell about: the one that is busy longest, as the others wait for it; of several alike the one with
    most events."""
    steps = {device: max(1, len(work.windows)) for device, work in works.items()}
    busy = {each: (work.parts["compute"] + work.parts["copies"]) / steps[each] for each, work in works.items()}
    near = [device for device in works if busy[device] >= 0.98 * max(busy.values())]
    return max(near, key=lambda device: len(works[device].pieces.start))


def only_step(steps: FoundSteps, chosen: int | None) -> FoundSteps:
    """The steps, where one was asked for with that one alone kept."""
    if chosen is None:
        return steps
    if chosen >= len(steps.windows):
        raise InputError(f"--step is {chosen}; the profile has {len(steps.windows):,} steps, counted from 0.")
    return replace(steps, kept=np.arange(len(steps.windows)) == chosen)


def time_parts(work: DeviceWork, step_s: float) -> tuple[TimePart, ...]:
    """The four parts of a mean step."""
    count = max(1, len(work.windows))
    names = {"compute": "compute", "communication": "exposed communication", "copies": "exposed copies", "idle": "idle"}
    seconds = {told: work.parts[name] / count / 1e9 for name, told in names.items()}
    return tuple(TimePart(told, each, each / step_s if step_s else 0.0) for told, each in seconds.items())


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
        found_by=found.found_by,
        count=len(found.windows),
        kept=int(found.kept.sum()),
        median_s=middle,
        fastest_s=float(lengths.min()),
        slowest_s=float(lengths.max()),
        spread=spread,
        steps=listed,
        between_s=found.between_ns / 1e9,
        between=found.between,
        chosen=chosen,
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
            verb = "are" if count > 1 else "is"
            found.append(f"{count} of {many} steps took {words} the median and {verb} left out.")
    if last >= 0:
        found.append(f"The last of {many} steps is left out: it has no next one to reach to.")
    return found


_RUN = ("body", *BRANCHES)


def analyse_program(
    recording: Recording, chip: Chip | None, top: int, mesh: dict[str, int], piece: Slice | None = None
) -> Analysis:
    """The table of a program at roofline rates."""
    if chip is None:
        raise InputError(
            f"{recording.source} is a program without times; say where it should run, such as --on v5p or --on h200."
        )
    name, module = max(recording.programs.items(), key=lambda program: len(program[1].computations))
    ops, times, unsure = listed(name, module)
    kind = chip.kind if chip.kind in ("tpu", "gpu") else ""
    whole = replace(recording, ops=tuple(ops), devices=recording.devices or (DeviceText(chip.title, kind),))  # pyright: ignore[reportArgumentType]
    reader = HloReader(whole)
    roles = complete_roles(whole, [own_role(op, reader, kind) for op in ops], reader)
    roof, often = ChipRoof(chip, causal_ops(whole)), np.array(times, float)
    travels = np.array([role.kind in TRAVELS for role in roles], bool)
    bounds = [roof.bound(role, number)[0] or 0.0 for number, role in enumerate(roles)]
    sent = [_travel(role, chip, mesh, piece) if role.kind in TRAVELS else 0.0 for role in roles]
    seconds = np.where(travels, sent, bounds) * often
    step_s, network = float(seconds.sum()), float(sum(seconds[travels]))
    totals = OpTotals(seconds, seconds, often, often)
    share = network / step_s if step_s else 0.0
    return analysis_of(
        StepOps(recording=whole, roles=roles, totals=totals, chip=chip, step_s=step_s, mesh=mesh, piece=piece),
        top,
        device=chip.title,
        devices=1,
        steps=StepsFound(f"the program {name}, once", 1, 1, step_s, step_s, step_s, 0.0),
        parts=(TimePart("compute", step_s - network, 1 - share), TimePart("exposed communication", network, share)),
        by_device=(),
        unknown=tuple(f"How often {each} runs is not known: it is counted once." for each in unsure[:5]),
        notes=recording.notes,
    )


def listed(name: str, module: Module) -> tuple[list[OpText], list[int], list[str]]:
    """Every instruction that runs by itself, how often it does, and the computations of which that is not known."""
    counts = executions(module)
    running, waiting = {module.entry.name}, [module.entry.name]
    while waiting:
        for instruction in module.computations[waiting.pop()].instructions:
            runs = instruction.callees if instruction.opcode in CONTROL else ()
            for role, callee in runs:
                if callee not in running and (role in _RUN or instruction.opcode == "call"):
                    running.add(callee)
                    waiting.append(callee)
    ops, times, unsure = [], [], []
    for each in module.computations.values():
        if each.name not in running:
            continue
        count = counts[each.name]
        if count == UNKNOWN:
            unsure.append(each.name)
        for instruction in each.instructions:
            if instruction.opcode not in UNTIMED:
                # of the text only what a mask is: the rest is read in the program
                mask = '"CAUSAL"' if '"CAUSAL"' in instruction.text else ""
                ops.append(OpText(instruction.name, text=mask, scope=instruction.op_name, module=name))
                times.append(1 if count == UNKNOWN else count)
    return ops, times, unsure


def _travel(role: OpRole, chip: Chip, mesh: dict[str, int], piece: Slice | None) -> float:
    if len(role.group) < 2:
        return 0.0
    return (role.wire_bytes or 0.0) / (wire_rate(chip, role.group, mesh, piece) or sending_rate(chip))
