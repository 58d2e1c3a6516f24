"""A program that nobody timed (an HLO dump): each of its ops at datasheet rates, one after the other.

It is a bound and is called one. Loops count their turns; of a branch that is not known each side counts once. What
travels takes its bytes at the rate of the wires that its group spans, on a torus without a plan at that of all links.
As a recording such a text is the programs, and no events.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from dragonscale.errors import InputError
from dragonscale.evidence.profiles.analysis import Analysis, analysis_of
from dragonscale.evidence.profiles.attribution import own_role
from dragonscale.evidence.profiles.communication import wire_rate
from dragonscale.evidence.profiles.completing import complete_roles
from dragonscale.evidence.profiles.hlo_roles import HloReader
from dragonscale.evidence.profiles.parts import TRAVELS
from dragonscale.evidence.profiles.per_op import ChipRoof, OpTotals, StepOps, causal_ops
from dragonscale.evidence.profiles.recording import DeviceText, OpText, Recorder, Recording
from dragonscale.evidence.profiles.records import StepsFound, TimePart
from dragonscale.evidence.profiles.roles import OpRole
from dragonscale.evidence.xla.call_graph import BRANCHES, UNKNOWN, executions
from dragonscale.evidence.xla.dumps import read_dump_file
from dragonscale.evidence.xla.hlo_text import Module
from dragonscale.evidence.xla.op_work import sending_rate
from dragonscale.evidence.xla.opcodes import CONTROL, UNTIMED
from dragonscale.listener import Listener
from dragonscale.physics.hardware import Chip, Slice

_RUN = ("body", *BRANCHES)


def read(path: Path, listener: Listener) -> Recording:
    """The modules of a dump, by name; of several with one name the last keeps it."""
    listener.wait(f"Reading {path.name}.")
    record = Recorder(path.name, "XLA HLO")
    dumps = read_dump_file(path)
    for place, dump in enumerate(dumps):
        record.programs[dump.name or f"module {place}"] = dump.module
    first = dumps[0]
    record.device("", {"tpu": "tpu", "gpu": "gpu", "cpu": "cpu"}.get(first.platform, ""))  # pyright: ignore[reportArgumentType]
    record.notes.append("This is a program's text: it has no times, only what the program does.")
    if not first.optimized:
        record.notes.append("The program is not compiled yet: XLA will fuse, lay out and may split it otherwise.")
    return record.made()


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
