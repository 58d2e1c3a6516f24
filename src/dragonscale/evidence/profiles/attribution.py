"""What each op of a recording is: kind, part of the model, phase, work. The evidence, strongest first:

1. the program: HLO in the recording or in the op's own text says kind, FLOPs and bytes, and the scopes in it say part
   and phase;
2. names: kernels, operators of the framework around them, modules, source files (`names.py`, `sections.py`);
3. neighbours: the pattern of layers on a stream, and what an op feeds in its program (`neighbours.py`, `hlo_roles.py`).

The same kernel may serve two parts (a library picks one matmul kernel for the output projection and for the MLP).
`attributed` therefore hands back a recording in which such an op stands once for each part, beside one role for each of
its ops.
"""

from collections import Counter, defaultdict
from dataclasses import replace

import msgspec
import numpy as np

from dragonscale.evidence.profiles import names, sections
from dragonscale.evidence.profiles.completing import complete_roles
from dragonscale.evidence.profiles.hlo_roles import SCORES, HloReader, around_scores, with_scores
from dragonscale.evidence.profiles.neighbours import Placing, place_by_neighbours
from dragonscale.evidence.profiles.recording import OpText, Recording
from dragonscale.evidence.profiles.roles import FEEDS, NEIGHBOURS, OUTSIDE, SCOPE, OpRole
from dragonscale.evidence.profiles.work_by_shapes import work_by_shapes
from dragonscale.plan.ledger import COLLECTIVES

MOST_OPS = 50_000
"""Ops whose names are looked at: each costs a millisecond, and a program has some thousands."""
_TIMED = ("ops", "async", "copies")
_VAGUE = 0.05
"""The part of a stream's time without a known part of the model above which its neighbours are looked at."""
_MOSTLY = 0.8
"""The part of equal matmuls that has to agree on their place, for the others to follow."""
_MOST_PLACED = 600_000
"""Events of a stream whose neighbours are looked at, one by one; later ones take what most of their op's events have.
"""


def attributed(recording: Recording) -> tuple[Recording, list[OpRole]]:
    """The recording, its ops split where they serve several parts, and the role of each op."""
    timed, left = _told_ops(recording)
    if left:
        text = (
            f"{left:,} of the ops, those with least time, are not told by kind and part: a profile has at most "
            f"{MOST_OPS:,} different ones."
        )
        recording = replace(recording, notes=(*recording.notes, text))
    reader = HloReader(recording)
    roles = _own_roles(recording, reader, timed)
    placings = place_events(recording, roles)
    if placings is None:
        return recording, complete_roles(recording, roles, reader)
    numbers: dict[int, dict[Placing, int]] = defaultdict(dict)
    ops, found, column = list(recording.ops), list(roles), recording.events.op.copy()
    for event, placing in placings.items():
        op = int(recording.events.op[event])
        known = numbers[op]
        if placing not in known:  # the first placing of an op takes its own number
            known[placing] = len(ops) if known else op
            if known[placing] == len(ops):
                ops.append(recording.ops[op])
                found.append(roles[op])
            found[known[placing]] = _placed(roles[op], placing)
        column[event] = known[placing]
    split = replace(recording, ops=tuple(ops), events=replace(recording.events, op=column))
    return split, complete_roles(split, found, reader)


def _told_ops(recording: Recording) -> tuple[np.ndarray, int]:
    """Which ops are looked at, as a mask: those that run on a device, and of very many those with most time; and how
    many are not."""
    spent = np.zeros(len(recording.ops))
    timed = np.zeros(len(recording.ops), bool)
    for kind in _TIMED:
        mine = recording.on(kind)
        timed[recording.events.op[mine]] = True
        spent += np.bincount(recording.events.op[mine], recording.events.duration[mine], len(recording.ops))
    more = int(timed.sum()) - MOST_OPS
    if more > 0:
        ran = np.flatnonzero(timed)
        timed[ran[np.argsort(-spent[ran], kind="stable")[MOST_OPS:]]] = False
    return timed, max(0, more)


def _own_roles(recording: Recording, reader: HloReader, timed: np.ndarray) -> list[OpRole]:
    """What each op that runs on a device says of itself."""
    ops = recording.ops
    if not sections.files_tell_parts(op.source for op in ops):
        ops = tuple(msgspec.structs.replace(op, source="") if op.source else op for op in ops)
    roles = [own_role(op, reader) if timed[number] else OpRole() for number, op in enumerate(ops)]
    roles = _work_once(recording, roles)
    roles = [with_scores(op, role, reader) for op, role in zip(recording.ops, roles, strict=True)]
    return around_scores(recording.ops, roles, reader)


def _work_once(recording: Recording, roles: list[OpRole]) -> list[OpRole]:
    """Where several kernels run one instruction (a memset, the matmul, the sum of its pieces), its work is that of the
    longest."""
    kernels: dict[tuple[str, str], dict[str, list[int]]] = {}
    for number, (op, role) in enumerate(zip(recording.ops, roles, strict=True)):
        if role.by_program and op.module and op.caller:
            kernels.setdefault((op.module, op.caller), {}).setdefault(op.name, []).append(number)
    spent = np.bincount(recording.events.op, recording.events.duration, len(roles))
    for alike in kernels.values():
        main = max(alike, key=lambda name: spent[alike[name]].sum())
        for name, numbers in alike.items():
            rule = names.known_kernel(name)
            for number in numbers:
                if name == main or (rule and rule.kind == roles[number].kind and rule.what != "split-K sum"):
                    continue
                kind = "memory" if rule and rule.kind == "memory" else roles[number].kind
                roles[number] = msgspec.structs.replace(roles[number], kind=kind, flops=0.0, hbm_bytes=0.0)
    return roles


def own_role(op: OpText, reader: HloReader | None = None, on: str = "") -> OpRole:
    """What an op says of itself, before anything around it is looked at; `on` is the kind of device where the recording
    has none."""
    known = reader.role(op, on) if reader else None
    named = _named_role(op, known.kind if known else "")
    if known is None:
        return named
    section, what = (known.section, known.what) if known.section else (named.section, known.what or named.what)
    return msgspec.structs.replace(
        known,
        kind=known.kind or named.kind,
        section=section,
        what=what,
        phase=known.phase or named.phase,
        dtype=known.dtype or named.dtype,
        why=known.why if known.section or not named.section else (*known.why, *named.why),
    )


def _named_role(op: OpText, known: str) -> OpRole:
    """Kind, part and phase by names alone."""
    rule = names.inductor(op.name) or names.known_kernel(op.name)
    if (rule is None or not rule.kind) and op.text:
        rule = names.known_kernel(op.text.split(" = ", 1)[0].lstrip("%")) or rule
    called = names.operator_kind(op.caller) if op.caller else ""
    if rule and rule.kind == "permute" and not called:  # sends and receives; older PyTorch says in a mark what they are
        called = names.operator_kind(op.scope)
    kind = known or _kind(op, rule, called)
    words = _section(op, rule)
    named = rule.phase if rule else ""
    phase = sections.phase_of_scope(op.scope) or sections.phase_of_caller(op.caller) or named
    phase = phase or sections.phase_of_module(op.module)
    flops, moved = work_by_shapes(op, kind)

    return OpRole(
        kind,
        words.section,
        phase,
        words.what or (rule.what if rule else "") or ("norm" if words.norm else ""),
        _dtype(op),
        op.flops if op.flops is not None else flops,
        op.bytes if op.bytes is not None else moved,
        op.wire_bytes if kind in COLLECTIVES else None,
        op.group,
        _why(op, rule, words),
    )


def _kind(op: OpText, rule: names.KernelRule | None, called: str) -> str:
    """A kernel's name before the operator that launched it, save where the name fits many collectives
    or says nothing."""
    if op.category in ("gpu_memset", "gpu_memcpy") and rule is None:
        return "memory"
    if rule and rule.kind:
        exact = called in COLLECTIVES and rule.kind in COLLECTIVES
        return called if exact else rule.kind
    return called or names.category_kind(op.category)


def _section(op: OpText, rule: names.KernelRule | None) -> sections.SectionWords:
    """The part of the model by the first that says one: scope, kernel, operators around it, source file."""
    named, called = (rule.section, rule.what) if rule else ("", ""), names.section_word(op.caller)
    evidence = (
        sections.section_of(op.scope),
        sections.SectionWords(*named, norm=named[0] == "norm"),
        sections.SectionWords(called, norm=called == "norm"),
        sections.SectionWords(sections.section_of_source(op.source)),
    )
    return next((words for words in evidence if words.section), sections.SectionWords())


def _why(op: OpText, rule: names.KernelRule | None, words: sections.SectionWords) -> tuple[str, ...]:
    scope = words.section and op.scope and sections.section_of(op.scope).section
    known = {"kernel name": rule, "operator": op.caller, SCOPE: scope}
    return tuple(word for word, says in known.items() if says)


def _dtype(op: OpText) -> str:
    if op.shapes:
        return op.shapes[0].split("[", 1)[0]
    return names.dtype_of(op.name)


def _placed(role: OpRole, placing: Placing) -> OpRole:
    """A role with what its neighbours say, where it said less itself."""
    if not placing.section:
        return role
    return msgspec.structs.replace(
        role,
        kind="attention" if role.kind == "matmul" and placing.what == SCORES else role.kind,
        section=placing.section,
        phase=role.phase or placing.phase,
        what=role.what if role.what not in ("", "norm") else placing.what or role.what,
        why=role.why if role.section == placing.section else (*role.why, NEIGHBOURS),
    )


# Events placed by their neighbours


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
        placings = place_by_neighbours([roles[op] for op in events.op[which[:_MOST_PLACED]]])
        if placings is None:
            continue
        found.update(zip(map(int, which[:_MOST_PLACED]), placings, strict=True))
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
            alike = Counter(placings[event] for event in events if placings[event].section == section)
            usual = alike.most_common(1)[0][0]
            for event in events:
                if placings[event].section != section:
                    placings[event] = usual


def _is_settled(role: OpRole) -> bool:
    """Whether an op's part is known from the user's own names."""
    return role.section not in ("", "norm") and not {SCOPE, FEEDS, OUTSIDE}.isdisjoint(role.why)


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
    if len(which) <= _MOST_PLACED:
        return {}
    votes: dict[int, Counter[Placing]] = {}
    for event, placing in zip(which[:_MOST_PLACED], placings, strict=True):
        votes.setdefault(int(op[event]), Counter())[placing] += 1
    usual = {each: vote.most_common(1)[0][0] for each, vote in votes.items()}
    return {int(event): usual[int(op[event])] for event in which[_MOST_PLACED:] if int(op[event]) in usual}
