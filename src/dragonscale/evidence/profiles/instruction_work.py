"""One instruction, several kernels: its work is counted once.

A library may run an instruction as several kernels (a memset, the attention, a sum over heads), and a profile says of each which instruction
it belongs to. FLOPs and bytes are the instruction's; they stay with the kernel that takes most of its time.
"""

from collections import defaultdict

import msgspec
import numpy as np

from dragonscale.evidence.profiles.recording import Recording
from dragonscale.evidence.profiles.roles import OpRole


def worked_once(recording: Recording, roles: list[OpRole]) -> list[OpRole]:
    """The roles, with the work of each instruction at one of its kernels."""
    time = np.bincount(recording.events.op, recording.events.duration, len(recording.ops))
    kernels: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, (op, role) in enumerate(zip(recording.ops, roles, strict=True)):
        # only where the work was read off the program: elsewhere `caller` is an operator that runs for many kernels
        if op.caller and op.module and role.why.startswith("program"):
            kernels[op.module, op.caller].append(number)
    found = list(roles)
    for some in kernels.values():
        main = max(some, key=lambda one: time[one])
        for one in some:
            if one != main:
                found[one] = msgspec.structs.replace(roles[one], flops=0.0, hbm_bytes=0.0, wire_bytes=None)
    return found
