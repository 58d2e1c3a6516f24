"""Events placed by their neighbours: on each stream where the ops themselves leave much of the time without a part of
the model."""

from collections import Counter

import numpy as np

from dragonscale.evidence.profiles.neighbours import Placing, place_by_neighbours
from dragonscale.evidence.profiles.recording import Recording
from dragonscale.evidence.profiles.roles import OpRole

_VAGUE = 0.05
"""The part of a stream's time without a known part of the model above which its neighbours are looked at."""
_MOSTLY = 0.8
"""The part of equal matmuls that has to agree on their place, for the others to follow."""
_MOST = 600_000
"""Events of a stream whose neighbours are looked at, one by one; later ones take what most of their op's events have.
"""


def place_events(recording: Recording, roles: list[OpRole]) -> dict[int, Placing] | None:
    """Placings of events by their neighbours, on each stream where much of the time has no part of the model yet."""
    found: dict[int, Placing] = {}
    events = recording.events
    vague = np.array([not _is_settled(role) for role in roles])
    for number, track in enumerate(recording.tracks):
        if track.kind != "ops":
            continue
        which = recording.of_track(number)
        weight = events.duration[which]
        if not len(which) or weight[vague[events.op[which]]].sum() <= _VAGUE * weight.sum():
            continue
        placings = place_by_neighbours([roles[op] for op in events.op[which[:_MOST]]])
        if placings is None:
            continue
        found.update(zip(map(int, which[:_MOST]), placings, strict=True))
        found.update(_later(events.op, which, placings))
    _agree_by_shapes(recording, roles, found)
    found.update(_beside(recording, roles, found))
    settled = [event for event in found if not vague[events.op[event]]]
    for event in settled:
        del found[event]
    return found or None


def _agree_by_shapes(recording: Recording, roles: list[OpRole], placings: dict[int, Placing]) -> None:
    """Matmuls of the same sizes are of the same part: the few that a compiler moved elsewhere in the order follow the
    many."""
    groups: dict[int, list[int]] = {}
    for event in placings:
        op = int(recording.events.op[event])
        if roles[op].kind == "matmul" and recording.ops[op].shapes:
            groups.setdefault(op, []).append(event)
    for events in groups.values():
        votes = Counter(placings[event].section for event in events)
        section, count = votes.most_common(1)[0]
        if _MOSTLY * len(events) <= count < len(events):
            usual = Counter(placings[event] for event in events if placings[event].section == section).most_common(1)[
                0
            ][0]
            for event in events:
                if placings[event].section != section:
                    placings[event] = usual


def _is_settled(role: OpRole) -> bool:
    """Whether an op's part is known from the user's own names."""
    return role.section not in ("", "norm") and any(word in role.why for word in ("scope", "feeds", "passes"))


def _beside(recording: Recording, roles: list[OpRole], placings: dict[int, Placing]) -> dict[int, Placing]:
    """Collectives on streams of their own, where nothing is trained: each belongs to what ran last before it on the
    device."""
    events, found = recording.events, dict[int, Placing]()
    if any(role.phase == "backward" for role in roles):
        return found
    moving = np.array([*(role.moves and not role.section for role in roles), False])[events.op] & recording.on("async")
    for device in range(len(recording.devices)):
        computing = np.flatnonzero(recording.on("ops", device))
        collectives = np.flatnonzero(moving & recording.on("async", device))
        for event, place in zip(collectives, np.searchsorted(computing, collectives) - 1, strict=True):
            last = placings.get(int(computing[place])) if place >= 0 else None
            if last:
                found[int(event)] = Placing(last.section, last.phase)
    return found


def _later(op: np.ndarray, which: np.ndarray, placings: list[Placing]) -> dict[int, Placing]:
    """Events beyond those that were looked at: what most events of their op are."""
    if len(which) <= _MOST:
        return {}
    votes: dict[int, Counter[Placing]] = {}
    for event, placing in zip(which[:_MOST], placings, strict=True):
        votes.setdefault(int(op[event]), Counter())[placing] += 1
    usual = {each: vote.most_common(1)[0][0] for each, vote in votes.items()}
    return {int(event): usual[int(op[event])] for event in which[_MOST:] if int(op[event]) in usual}
