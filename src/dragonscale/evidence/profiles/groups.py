"""Ops in groups of one section, phase and kind, and the longest ops, each held against its own roofline.

The roofline of an op is the longer of its FLOPs at the chip's rate for its dtype and its bytes at the rate of HBM; of a
group it is the sum of those of its ops. `fraction` is that time over what it took. Ops of which neither FLOPs nor bytes
are known count for the time of a group and not for its fraction. Kernels that only help another one of their
instruction have work of zero, not of an unknown amount, and their time counts: FLOPs over seconds is the rate of the
whole. Transfers that run beside each other count the time in which any of them does, so that bytes over seconds is what
the wires carried.
"""

from collections import defaultdict
from collections.abc import Callable

import numpy as np

from dragonscale.evidence.profiles.parts import TRAVELS
from dragonscale.evidence.profiles.per_op import ChipRoof, OpTotals, limited_by
from dragonscale.evidence.profiles.recording import Recording
from dragonscale.evidence.profiles.records import WorkGroup, WorkOp
from dragonscale.evidence.profiles.roles import OpRole

_BESIDE = (*TRAVELS, "host", "copy", "memory")
"""Kinds that run beside each other and beside what computes."""
Flight = Callable[[list[int]], float]
"""Seconds of a step in which any of some ops runs."""


def work_groups(
    totals: OpTotals, roles: list[OpRole], roof: ChipRoof, step_s: float, flight: Flight | None = None
) -> tuple[WorkGroup, ...]:
    """Groups of a step, the one that the step waits for longest first."""
    members: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for number in totals.ran.tolist():
        role = roles[number]
        members[role.section, role.phase, role.kind].append(number)
    found = [_group(key, np.array(some), totals, roles, roof, step_s, flight) for key, some in members.items()]
    return tuple(sorted(found, key=lambda one: (-one.exposed_s, -one.seconds)))


def _group(
    key: tuple[str, str, str],
    some: np.ndarray,
    totals: OpTotals,
    roles: list[OpRole],
    roof: ChipRoof,
    step_s: float,
    flight: Flight | None = None,
) -> WorkGroup:
    summed, exposed = float(totals.seconds[some].sum()), float(totals.exposed[some].sum())
    overlaps = flight is not None and key[2] in _BESIDE and summed > 1.0001 * exposed
    seconds = max(flight(some.tolist()), exposed) if flight is not None and overlaps else summed
    works = totals.works[some]
    # what a causal mask hides is not computed
    halves = np.where([int(one) in roof.causal for one in some], 0.5, 1.0)
    flops = _total([roles[one].flops for one in some], works * halves)
    hbm, wire = (_total([getattr(roles[one], name) for one in some], works) for name in ("hbm_bytes", "wire_bytes"))
    bounds = [roof.bound(roles[one], int(one)) for one in some]
    bounded = any(bound is not None for bound, _ in bounds)
    known = np.array(
        [each is not None or _helps(roles[one]) for (each, _), one in zip(bounds, some, strict=True)], bool
    )
    bound = (
        float(sum((each or 0.0) * times for (each, _), times in zip(bounds, works, strict=True))) if bounded else None
    )
    spent = seconds if known.all() else float(totals.seconds[some][known].sum())
    fraction = bound / spent if bound and spent else None
    by: dict[str, float] = defaultdict(float)
    for (_, word), one in zip(bounds, some, strict=True):
        by[word] += float(totals.seconds[one])
    times = float(totals.times[some].sum())
    # a transfer's waits have no bytes, and lie in the time in which it is in flight
    counted = {name: seconds if overlaps else _spent(totals, roles, some, name) for name in ("flops", "hbm_bytes")}
    word = limited_by(max(by, key=lambda name: by[name]), fraction, seconds / times if times else 0.0, key[2])
    return WorkGroup(
        *key,
        seconds,
        exposed / step_s if step_s else 0.0,
        exposed,
        times,
        len(some),
        flops,
        hbm,
        wire,
        _rate(flops, counted["flops"]),
        _rate(hbm, counted["hbm_bytes"]),
        bound,
        fraction,
        word,
    )


def _spent(totals: OpTotals, roles: list[OpRole], some: np.ndarray, name: str) -> float:
    """Seconds of the ops of which an amount is known: what its rate is made of."""
    return float(sum(totals.seconds[one] for one in some if getattr(roles[one], name) or _helps(roles[one])))


def _helps(role: OpRole) -> bool:
    """Whether its work is known to be that of another kernel of its instruction (`instruction_work.py`)."""
    return role.flops == 0.0 and role.hbm_bytes == 0.0


def longest_ops(
    recording: Recording,
    totals: OpTotals,
    roles: list[OpRole],
    roof: ChipRoof,
    step_s: float,
    most: int,
    flight: Flight | None = None,
) -> tuple[WorkOp, ...]:
    """The ops of a step that it waits for longest; those of one name in one place of the model are one."""
    members: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for number in totals.ran.tolist():
        role = roles[number]
        members[recording.ops[number].name, role.section, role.phase, role.kind, role.dtype].append(number)
    order = sorted(members.values(), key=lambda some: -float(totals.exposed[some].sum()))
    return tuple(_op(recording, some, totals, roles, roof, step_s, flight) for some in order[:most])


def _op(
    recording: Recording,
    some: list[int],
    totals: OpTotals,
    roles: list[OpRole],
    roof: ChipRoof,
    step_s: float,
    flight: Flight | None,
) -> WorkOp:
    """Alike ops as one, told about by the longest of them."""
    role, op = roles[some[0]], recording.ops[some[0]]
    group = _group((role.section, role.phase, role.kind), np.array(some), totals, roles, roof, step_s, flight)
    return WorkOp(
        some[0],
        op.name,
        role.section,
        role.phase,
        role.kind,
        group.seconds,
        group.share,
        group.times,
        role.dtype,
        ", ".join(op.shapes),
        op.scope,
        op.source,
        group.flops,
        group.hbm_bytes,
        group.wire_bytes,
        group.flops_per_s,
        group.bytes_per_s,
        group.bound_s,
        group.fraction,
        group.bound_by,
        group.exposed_s,
    )


def attributed_shares(recording: Recording, totals: OpTotals, roles: list[OpRole]) -> tuple[float, float]:
    """Shares of the device's time whose kind is known, and whose section is. Loops and branches have what is left of
    them as their own time: what they run is counted apart, and their kind is known. A program's own name is a section
    only where it has no others: then its author calls it so, and what it holds is no model."""
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


def matmul_flops(
    totals: OpTotals, roles: list[OpRole], kinds: tuple[str, ...], causal: frozenset[int] = frozenset()
) -> float | None:
    """FLOPs of a step by ops of some kinds, half of those in `causal`; None where no op of them is known."""
    some = [one for one in totals.ran.tolist() if roles[one].kind in kinds and roles[one].kind not in TRAVELS]
    halves = np.where([one in causal for one in some], 0.5, 1.0)
    return _total([roles[one].flops for one in some], totals.works[some] * halves)


def _total(values: list[float | None], times: np.ndarray) -> float | None:
    """The sum of what is known; None where nothing is."""
    known = [value * float(often) for value, often in zip(values, times, strict=True) if value is not None]
    return float(sum(known)) if known else None


def _rate(amount: float | None, seconds: float) -> float | None:
    return amount / seconds if amount and seconds else None
