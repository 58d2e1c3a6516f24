"""Where a step goes on one device: compute, exposed communication, exposed copies, idle; and what each op has of it.

At any moment of a step a device computes; or it does not, and something travels; or only copies run; or nothing does.
So the four parts add up to the step. Ops that run at the same moment on several streams or threads share it, so that
ops add up to their part as well. What travels while the device computes is overlapped: it is told, and costs the step
nothing.
"""

from dataclasses import dataclass

import numpy as np

from dragonscale.evidence.profiles.intervals import NONE, Spans, covered, outside, shared, union
from dragonscale.evidence.profiles.recording import Recording
from dragonscale.evidence.profiles.roles import OpRole
from dragonscale.evidence.profiles.self_time import Pieces, device_pieces
from dragonscale.plan.ledger import COLLECTIVES

TRAVELS = (*COLLECTIVES, "broadcast", "send", "recv", "communication", "barrier")
"""Kinds of ops that use the network."""
COMPUTE, NETWORK, COPIES = 0, 1, 2
_COPYING = ("memcpy", "memset")


@dataclass(frozen=True)
class DeviceWork:
    """One device's pieces of work, the class of each, and what each has of the steps, in ns: `seconds` as it ran
    (shared where several compute at once), `exposed` as the step waits for it. `spans` is when each class ran, and when
    any did."""

    device: int
    pieces: Pieces
    classes: np.ndarray
    seconds: np.ndarray
    exposed: np.ndarray
    spans: dict[str, Spans]
    windows: np.ndarray
    parts: dict[str, float]
    """compute, communication, copies, idle and overlapped, in ns over all windows together."""


def device_work(recording: Recording, device: int, roles: list[OpRole], windows: np.ndarray) -> DeviceWork:
    """The work of a device within some windows, which are in order and apart."""
    pieces = device_pieces(recording, device)
    classes = event_classes(recording, roles)[pieces.event]
    chosen = [pieces.chosen(classes == kind) for kind in (COMPUTE, NETWORK, COPIES)]
    spans = [union(some.start, some.end) for some in chosen]
    moving = union(*(np.concatenate(both) for both in zip(spans[0], spans[1], strict=True)))
    busy = union(*(np.concatenate(both) for both in zip(moving, spans[2], strict=True)))
    rest = outside(windows)
    seconds, exposed = np.zeros(len(pieces.start)), np.zeros(len(pieces.start))
    for kind, hidden in ((COMPUTE, NONE), (NETWORK, spans[0]), (COPIES, moving)):
        some = chosen[kind]
        if not len(some.start):
            continue
        waits = shared(some.start, some.end, _joint(hidden, rest))
        exposed[classes == kind] = waits(some.end) - waits(some.start)
        within = covered(windows[:, 0], windows[:, 1])
        seconds[classes == kind] = (
            exposed[classes == kind] if kind == COMPUTE else within(some.end) - within(some.start)
        )
    measured = [measure(each, windows) for each in (spans[0], spans[1], moving, busy)]
    computing, travelling, moved, any_of = measured
    parts = {
        "compute": computing,
        "communication": moved - computing,
        "copies": any_of - moved,
        "idle": float(np.sum(windows[:, 1] - windows[:, 0])) - any_of,
        "overlapped": computing + travelling - moved,
    }
    named = {"compute": spans[0], "communication": spans[1], "copies": spans[2], "busy": busy}
    return DeviceWork(device, pieces, classes, seconds, exposed, named, windows, parts)


def event_classes(recording: Recording, roles: list[OpRole]) -> np.ndarray:
    """Of each event whether it computes, travels or copies: by its op, and by the track it is on."""
    kinds = {"host": COPIES} | dict.fromkeys(TRAVELS, NETWORK)
    by_op = np.array([kinds.get(role.kind, COMPUTE) for role in roles] or [COMPUTE], np.int8)
    copying = np.array([any(word in op.category.lower() for word in _COPYING) for op in recording.ops] or [False])
    beside = np.array([track.kind in ("copies", "async") for track in recording.tracks] or [False])
    ops, tracks = recording.events.op, recording.events.track
    found = by_op[ops]
    return np.where((found == COMPUTE) & (copying[ops] | beside[tracks]), COPIES, found).astype(np.int8)


def _joint(one: Spans, other: Spans) -> Spans:
    return union(np.concatenate([one[0], other[0]]), np.concatenate([one[1], other[1]]))


def measure(spans: Spans, windows: np.ndarray) -> float:
    """How much of the windows some spans cover, in ns."""
    within = covered(*spans)
    return float(np.sum(within(windows[:, 1]) - within(windows[:, 0])))
