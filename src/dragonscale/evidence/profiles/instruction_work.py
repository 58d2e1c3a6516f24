"""One instruction, several kernels: its work is counted once.

A library may run an instruction as several kernels (a memset, the attention, a sum over heads), and a profile says of
each which instruction it belongs to. FLOPs and bytes are the instruction's; they stay with the kernel that takes most
of its time.
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
    _once_an_operator(recording, found, time)
    return found


def _once_an_operator(recording: Recording, roles: list[OpRole], time: np.ndarray) -> None:
    """Bytes by an operator's shapes are those of all its kernels (a norm's backward pass has one for each gradient):
    the longest has them."""
    kernels: dict[tuple[str, str, tuple[str, ...]], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, (op, role) in enumerate(zip(recording.ops, roles, strict=True)):
        if op.shapes and role.kind in ("elementwise", "copy", "reduction") and role.hbm_bytes and not op.module:
            kernels[op.caller, op.scope, op.shapes][op.name].append(number)
    for names in kernels.values():
        main = max(names, key=lambda name: time[names[name]].sum())
        for name, some in names.items():
            for one in some if name != main else ():
                roles[one] = msgspec.structs.replace(roles[one], hbm_bytes=0.0)
