"""Ops in groups of one section, phase and kind, and the longest ops, each held against its own roofline.

The roofline of an op is the longer of its FLOPs at the chip's rate for its dtype and its bytes at the rate of HBM; of a group it is the sum of
those of its ops. `fraction` is that time over what it took. Ops of which neither FLOPs nor bytes are known count for the time of a group
and not for its fraction.
"""

from collections import defaultdict

import numpy as np

from dragonscale.evidence.profiles.parts import TRAVELS
from dragonscale.evidence.profiles.per_op import ChipRoof, OpTotals, limited_by
from dragonscale.evidence.profiles.recording import Recording
from dragonscale.evidence.profiles.records import WorkGroup, WorkOp
from dragonscale.evidence.profiles.roles import OpRole


def work_groups(totals: OpTotals, roles: list[OpRole], roof: ChipRoof, step_s: float) -> tuple[WorkGroup, ...]:
    """Groups of a step, the one that the step waits for longest first."""
    members: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for number in totals.ran.tolist():
        role = roles[number]
        members[role.section, role.phase, role.kind].append(number)
    found = [_group(key, np.array(some), totals, roles, roof, step_s) for key, some in members.items()]
    return tuple(sorted(found, key=lambda one: (-one.exposed_s, -one.seconds)))


def _group(
    key: tuple[str, str, str], some: np.ndarray, totals: OpTotals, roles: list[OpRole], roof: ChipRoof, step_s: float
) -> WorkGroup:
    seconds, exposed = float(totals.seconds[some].sum()), float(totals.exposed[some].sum())
    works = totals.works[some]
    flops, hbm, wire = (
        _total([getattr(roles[one], name) for one in some], works) for name in ("flops", "hbm_bytes", "wire_bytes")
    )
    bounds = [roof.bound(roles[one], int(one)) for one in some]
    known = np.array([bound is not None for bound, _ in bounds], bool)
    bound = (
        float(sum((each or 0.0) * times for (each, _), times in zip(bounds, works, strict=True)))
        if known.any()
        else None
    )
    spent = float(totals.seconds[some][known].sum())
    fraction = bound / spent if bound and spent else None
    by: dict[str, float] = defaultdict(float)
    for (_, word), one in zip(bounds, some, strict=True):
        by[word] += float(totals.seconds[one])
    times = float(totals.times[some].sum())
    # what a causal mask hides is not computed: it counts for the FLOPs that are told, not for the rate
    halves = np.where([int(one) in roof.causal for one in some], 0.5, 1.0)
    done = _total([roles[one].flops for one in some], works * halves)
    word = limited_by(max(by, key=lambda name: by[name]), fraction, seconds / times if times else 0.0, key[2])
    return WorkGroup(
        *key, seconds, exposed / step_s if step_s else 0.0, exposed, times, len(some), flops, hbm, wire,
        _rate(done, _spent(totals, roles, some, "flops")), _rate(hbm, _spent(totals, roles, some, "hbm_bytes")), bound, fraction, word,
    )  # fmt: skip


def _spent(totals: OpTotals, roles: list[OpRole], some: np.ndarray, name: str) -> float:
    """Seconds of the ops of which an amount is known: what its rate is made of."""
    return float(sum(totals.seconds[one] for one in some if getattr(roles[one], name)))


def longest_ops(
    recording: Recording, totals: OpTotals, roles: list[OpRole], roof: ChipRoof, step_s: float, most: int
) -> tuple[WorkOp, ...]:
    """The ops of a step that it waits for longest; those of one name in one place of the model are one."""
    members: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for number in totals.ran.tolist():
        role = roles[number]
        members[recording.ops[number].name, role.section, role.phase, role.kind, role.dtype].append(number)
    order = sorted(members.values(), key=lambda some: -float(totals.exposed[some].sum()))
    return tuple(_op(recording, some, totals, roles, roof, step_s) for some in order[:most])


def _op(
    recording: Recording, some: list[int], totals: OpTotals, roles: list[OpRole], roof: ChipRoof, step_s: float
) -> WorkOp:
    """Alike ops as one, told about by the longest of them."""
    role, op = roles[some[0]], recording.ops[some[0]]
    group = _group((role.section, role.phase, role.kind), np.array(some), totals, roles, roof, step_s)
    return WorkOp(
        some[0], op.name, role.section, role.phase, role.kind, group.seconds, group.share, group.times, role.dtype,
        ", ".join(op.shapes), op.scope, op.source, group.flops, group.hbm_bytes, group.wire_bytes, group.flops_per_s,
        group.bytes_per_s, group.bound_s, group.fraction, group.bound_by,
    )  # fmt: skip


def attributed_shares(recording: Recording, totals: OpTotals, roles: list[OpRole]) -> tuple[float, float]:
    """Shares of the device's time whose kind is known, and whose section is. Loops and branches have what is left of them as their own
    time: what they run is counted apart, and their kind is known. A program's own name is a section only where it has no others: then its
    author calls it so, and what it holds is no model."""
    whole = float(totals.seconds.sum())
    if not whole:
        return 0.0, 0.0
    kind = np.array([bool(role.kind) for role in roles], bool)
    programs = [op.module.split("(", 1)[0] for op in recording.ops]
    named = np.array(
        [bool(role.section) and role.section == name for role, name in zip(roles, programs, strict=True)], bool
    )
    ran = totals.seconds > 0
    parted = {
        programs[one]
        for one in np.flatnonzero(ran & ~named).tolist()
        if roles[one].section and roles[one].kind != "control"
    }
    section = np.array(
        [
            bool(role.section) and not (own and name in parted)
            for role, own, name in zip(roles, named, programs, strict=True)
        ],
        bool,
    )
    return float(totals.seconds[kind].sum()) / whole, float(totals.seconds[section].sum()) / whole


def matmul_flops(totals: OpTotals, roles: list[OpRole], kinds: tuple[str, ...]) -> float | None:
    """FLOPs of a step by ops of some kinds; None where no op of them is known."""
    some = [one for one in totals.ran.tolist() if roles[one].kind in kinds and roles[one].kind not in TRAVELS]
    return _total([roles[one].flops for one in some], totals.works[some])


def _total(values: list[float | None], times: np.ndarray) -> float | None:
    """The sum of what is known; None where nothing is."""
    known = [value * float(often) for value, often in zip(values, times, strict=True) if value is not None]
    return float(sum(known)) if known else None


def _rate(amount: float | None, seconds: float) -> float | None:
    return amount / seconds if amount and seconds else None
