"""One transfer, several events; one instruction, several kernels: their work is counted once.

XLA splits a transfer into a `-start`, which only asks for it, and a `-done`, which waits for it; a TPU's profile may
have the transfer itself as well, on a track of its own. The wait is time of whatever is waited for, so a `-done` has
the kind, part and phase of its start. Bytes are counted once: with the transfer where it is recorded, else with the
start.

A library may also run an instruction as several kernels (a memset, the attention, a sum over heads), and a profile says
of each which instruction it belongs to. FLOPs and bytes are the instruction's; they stay with the kernel that takes
most of its time.
"""

import re
from collections import defaultdict

import msgspec
import numpy as np

from dragonscale.evidence.profiles.parts import TRAVELS
from dragonscale.evidence.profiles.recording import Recording
from dragonscale.evidence.profiles.roles import OpRole

_DONE = re.compile(r"-done(\.\d+)?$")
_START = re.compile(r"-start(\.\d+)?$")
_STARTED = re.compile(r"%([\w.\-]*-start[\w.\-]*)\)?")


def with_waits(recording: Recording, roles: list[OpRole]) -> list[OpRole]:
    """The roles, each `-done` with that of its start."""
    starts = {(op.module, op.name): number for number, op in enumerate(recording.ops) if _START.search(op.name)}
    found = list(roles)
    for number, op in enumerate(recording.ops):
        if not _DONE.search(op.name):
            continue
        named = _STARTED.search(op.text)
        start = starts.get((op.module, named[1] if named else op.name.replace("-done", "-start")))
        if start is not None:
            role, own = roles[start], roles[number]
            section, phase = role.section or own.section, role.phase or own.phase
            found[number] = msgspec.structs.replace(
                own,
                kind=role.kind or own.kind,
                section=section,
                phase=phase,
                what=role.what,
                group=role.group or own.group,
            )
    return found


def counted_events(recording: Recording, roles: list[OpRole], events: np.ndarray) -> np.ndarray:
    """Which of some events count for FLOPs and bytes, as a mask: of a transfer with several events only one does."""
    ops, tracks = recording.events.op[events], recording.events.track[events]
    beside = np.array([track.kind == "async" for track in recording.tracks] or [False])[tracks]
    flying = np.zeros(len(recording.ops), bool)
    flying[ops[beside]] = True
    names = {recording.ops[one].name for one in np.unique(ops[beside]).tolist()}
    never = np.zeros(len(recording.ops), bool)
    for number, op in enumerate(recording.ops):
        if _DONE.search(op.name):
            never[number] = True
        elif _START.search(op.name) and not flying[number]:
            # a start alone says nothing of a transfer's rate; a collective's bytes are still worth knowing
            never[number] = _START.sub(r"\1", op.name) in names or roles[number].kind not in TRAVELS
    return np.where(flying[ops], beside, ~never[ops])


def worked_once(recording: Recording, roles: list[OpRole]) -> list[OpRole]:
    """The roles, with the work of each instruction at one of its kernels."""
    time = np.bincount(recording.events.op, recording.events.duration, len(recording.ops))
    kernels: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, (op, role) in enumerate(zip(recording.ops, roles, strict=True)):
        # only where the work was read off the program: elsewhere `caller` is an operator that runs for many kernels
        if op.caller and op.module and role.by_program:
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
