"""A program that nobody timed (an HLO dump): each of its ops at datasheet rates, one after the other.

It is a bound and is called one. Loops count their turns; of a branch that is not known each side counts once. What
travels takes its bytes at the rate of the wires that its group spans, on a torus without a plan at that of all links.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dragonscale.errors import InputError
from dragonscale.evidence.profiles.analysis import Analysis, main_dtype
from dragonscale.evidence.profiles.attribution import own_role
from dragonscale.evidence.profiles.communication import most_rate, moves, wire_rate
from dragonscale.evidence.profiles.completing import complete_roles
from dragonscale.evidence.profiles.groups import attributed_shares, longest_ops, matmul_flops, work_groups
from dragonscale.evidence.profiles.hlo_roles import HloReader
from dragonscale.evidence.profiles.intervals import NONE
from dragonscale.evidence.profiles.parts import TRAVELS, DeviceWork
from dragonscale.evidence.profiles.per_op import MATMULS, ChipRoof, OpTotals, causal_ops
from dragonscale.evidence.profiles.recording import DeviceText, OpText, Recording
from dragonscale.evidence.profiles.records import ProfileReading, StepsFound, TimePart
from dragonscale.evidence.profiles.roles import OpRole
from dragonscale.evidence.profiles.self_time import joined
from dragonscale.evidence.profiles.waste import wasted
from dragonscale.evidence.xla.call_graph import BRANCHES
from dragonscale.evidence.xla.trip_counts import UNKNOWN, executions

if TYPE_CHECKING:
    from dragonscale.evidence.xla.hlo_text import Module
    from dragonscale.physics.hardware import Chip, Slice

_NOTHING = (
    "parameter",
    "constant",
    "tuple",
    "get-tuple-element",
    "bitcast",
    "after-all",
    "while",
    "conditional",
    "call",
    "partition-id",
    "replica-id",
)
_RUN = ("body", *BRANCHES)


def analyse_program(
    recording: Recording, chip: "Chip | None", top: int, mesh: dict[str, int], piece: "Slice | None" = None
) -> Analysis:
    """The table of a program at roofline rates."""
    if chip is None:
        raise InputError(
            f"{recording.source} is a program without times; say where it should run, such as --on v5p or --on h200."
        )
    name, module = max(recording.programs.items(), key=lambda one: len(one[1].computations))
    ops, times, unsure = listed(name, module)
    kind = chip.kind if chip.kind in ("tpu", "gpu") else ""
    whole = replace(recording, ops=tuple(ops), devices=recording.devices or (DeviceText(chip.title, kind),))  # pyright: ignore[reportArgumentType]
    reader = HloReader(whole)
    roles = complete_roles(whole, [own_role(op, reader, kind) for op in ops], reader)
    roof, often = ChipRoof(chip, causal_ops(whole)), np.array(times, float)
    travels = [_travel(role, chip, mesh, piece) if role.kind in TRAVELS else None for role in roles]
    bounds = [roof.bound(role, number)[0] or 0.0 for number, role in enumerate(roles)]
    seconds = np.array([bound if sent is None else sent for sent, bound in zip(travels, bounds, strict=True)]) * often
    totals = OpTotals(seconds, seconds, often, often)
    step_s, (known, parts) = float(seconds.sum()), attributed_shares(whole, totals, roles)
    network = float(sum(time for time, role in zip(seconds, roles, strict=True) if role.kind in TRAVELS))
    matmul, dtype = matmul_flops(totals, roles, MATMULS), main_dtype(totals, roles)
    unknown = tuple(f"How often {one} runs is not known: it is counted once." for one in unsure[:5])
    once = StepsFound(f"the program {name}, once", 1, 1, step_s, step_s, step_s, 0.0)
    share = network / step_s if step_s else 0.0
    reading = ProfileReading(
        source=recording.source,
        software=recording.software,
        device=chip.title,
        devices=1,
        chip=chip.name,
        static=True,
        step_s=step_s,
        steps=once,
        parts=(TimePart("compute", step_s - network, 1 - share), TimePart("exposed communication", network, share)),
        by_device=(),
        groups=work_groups(totals, roles, roof, step_s),
        ops=longest_ops(whole, totals, roles, roof, step_s, top),
        attributed_kind=known,
        attributed_section=parts,
        flops=matmul_flops(totals, roles, tuple({role.kind for role in roles})),
        matmul_flops=matmul,
        computed_flops=matmul_flops(totals, roles, MATMULS, roof.causal),
        communication=moves(totals, roles, chip, mesh, None, piece),
        waste=wasted(whole, totals, roles, roof, step_s),
        unknown=unknown,
        notes=recording.notes,
    )
    work = DeviceWork(
        0, joined([]), np.zeros(0, np.int8), np.zeros(0), np.zeros(0), {"busy": NONE}, np.zeros((0, 2), np.int64), {}
    )
    return Analysis(reading, whole, roles, np.zeros(0), work.windows, 0, chip, totals, work, mesh, dtype)


def listed(name: str, module: "Module") -> tuple[list[OpText], list[int], list[str]]:
    """Every instruction that runs by itself, how often it does, and the computations of which that is not known."""
    counts = executions(module)
    running, waiting = {module.entry.name}, [module.entry.name]
    while waiting:
        for instruction in module.computations[waiting.pop()].instructions:
            runs = instruction.callees if instruction.opcode in ("while", "conditional", "call") else ()
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
            if instruction.opcode not in _NOTHING:
                # of the text only what a mask is: the rest is read in the program
                mask = '"CAUSAL"' if '"CAUSAL"' in instruction.text else ""
                ops.append(OpText(instruction.name, text=mask, scope=instruction.op_name, module=name))
                times.append(1 if count == UNKNOWN else count)
    return ops, times, unsure


def _travel(role: OpRole, chip: "Chip", mesh: dict[str, int], piece: "Slice | None") -> float:
    if len(role.group) < 2:
        return 0.0
    return (role.wire_bytes or 0.0) / (wire_rate(chip, role.group, mesh, piece) or most_rate(chip))
