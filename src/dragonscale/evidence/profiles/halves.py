"""Asynchronous ops in profiles: one transfer, several events.

XLA splits a transfer into a `-start`, which only asks for it, and a `-done`, which waits for it; a TPU's profile may
have the transfer itself as well, on a track of its own. The wait is time of whatever is waited for, so a `-done` has
the kind, part and phase of its start. Bytes are counted once: with the transfer where it is recorded, else with the
start.
"""

import re

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
