"""Ops in groups of one section, phase and kind, and the longest ops, each held against its own roofline.

The roofline of an op is the longer of its FLOPs at the chip's rate for its dtype and its bytes at the rate of HBM; of a
group it is the sum of those of its ops. `fraction` is that time over what it took. Ops of which neither FLOPs nor bytes
are known count for the time of a group and not for its fraction. Kernels that only help another one of their
instruction have work of zero, not of an unknown amount, and their time counts: FLOPs over seconds is the rate of the
whole. Transfers that run beside each other count the time in which any of them does, so that bytes over seconds is what
the wires carried.
"""

from collections import defaultdict

import numpy as np

from dragonscale.evidence.profiles.parts import TRAVELS
from dragonscale.evidence.profiles.per_op import StepOps, limited_by
from dragonscale.evidence.profiles.records import WorkGroup, WorkOp
from dragonscale.evidence.profiles.roles import OpRole

_BESIDE = (*TRAVELS, "host", "copy", "memory")
"""Kinds that run beside each other and beside what computes."""
_NUMBERS = set(WorkGroup.__struct_fields__) & set(WorkOp.__struct_fields__)


def work_groups(step: StepOps) -> tuple[WorkGroup, ...]:
    """Groups of a step, the one that the step waits for longest first."""
    members: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for number, role in step.ran_roles:
        members[role.section, role.phase, role.kind].append(number)
    groups = [_group(step, key, np.array(some)) for key, some in members.items()]
    return tuple(sorted(groups, key=lambda group: (-group.exposed_s, -group.seconds)))


def _group(step: StepOps, key: tuple[str, str, str], some: np.ndarray) -> WorkGroup:
    roles, totals, roof = [step.roles[number] for number in some], step.totals, step.roof
    summed, exposed = float(totals.seconds[some].sum()), float(totals.exposed[some].sum())
    overlaps = key[2] in _BESIDE and summed > 1.0001 * exposed
    seconds = max(step.in_flight(some.tolist()), exposed) if overlaps else summed
    works, times = totals.works[some], float(totals.times[some].sum())
    # what a causal mask hides is not computed
    flops = _total([role.flops for role in roles], works * [roof.done(int(number)) for number in some])
    hbm, wire = (_total([getattr(role, name) for role in roles], works) for name in ("hbm_bytes", "wire_bytes"))
    bounds = [roof.bound(role, int(number)) for role, number in zip(roles, some, strict=True)]
    known = np.array([each is not None or _helps(role) for (each, _), role in zip(bounds, roles, strict=True)], bool)
    bound = _total([each for each, _ in bounds], works)
    spent = seconds if known.all() else float(totals.seconds[some][known].sum())
    fraction = bound / spent if bound and spent else None
    by: dict[str, float] = defaultdict(float)
    for (_, word), number in zip(bounds, some, strict=True):
        by[word] += float(totals.seconds[number])
    # a transfer's waits have no bytes, and lie in the time in which it is in flight
    counted = {name: seconds if overlaps else _spent(step, some, name) for name in ("flops", "hbm_bytes")}
    return WorkGroup(
        *key,
        seconds=seconds,
        share=step.share(exposed),
        exposed_s=exposed,
        times=times,
        ops=len(some),
        flops=flops,
        hbm_bytes=hbm,
        wire_bytes=wire,
        flops_per_s=_rate(flops, counted["flops"]),
        bytes_per_s=_rate(hbm, counted["hbm_bytes"]),
        bound_s=bound,
        fraction=fraction,
        bound_by=limited_by(max(by, key=lambda name: by[name]), fraction, seconds / times if times else 0.0, key[2]),
    )


def _spent(step: StepOps, some: np.ndarray, name: str) -> float:
    """Seconds of the ops of which an amount is known: what its rate is made of."""
    known = (number for number in some if getattr(step.roles[number], name) or _helps(step.roles[number]))
    return float(sum(step.totals.seconds[number] for number in known))


def _helps(role: OpRole) -> bool:
    """Whether its work is known to be that of another kernel of its instruction (`worked_once`)."""
    return role.flops == 0.0 and role.hbm_bytes == 0.0


def longest_ops(step: StepOps, most: int) -> tuple[WorkOp, ...]:
    """The ops of a step that it waits for longest; those of one name in one place of the model are one, told about by
    the longest of them."""
    members: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, role in step.ran_roles:
        members[step.recording.ops[number].name, role.section, role.phase, role.kind, role.dtype].append(number)
    order = sorted(members.values(), key=lambda some: -float(step.totals.exposed[some].sum()))
    return tuple(_op(step, some) for some in order[:most])


def _op(step: StepOps, some: list[int]) -> WorkOp:
    role, op = step.roles[some[0]], step.recording.ops[some[0]]
    group = _group(step, (role.section, role.phase, role.kind), np.array(some))
    return WorkOp(
        number=some[0],
        name=op.name,
        dtype=role.dtype,
        shapes=", ".join(op.shapes),
        scope=op.scope,
        source=op.source,
        **{name: getattr(group, name) for name in _NUMBERS},
    )


def attributed_shares(step: StepOps) -> tuple[float, float]:
    """Shares of the device's time whose kind is known, and whose section is. Loops and branches have what is left of
    them as their own time: what they run is counted apart, and their kind is known. A program's own name is a section
    only where it has no others: then its author calls it so, and what it holds is no model."""
    seconds, whole = step.totals.seconds, float(step.totals.seconds.sum())
    if not whole:
        return 0.0, 0.0
    programs = [op.module.split("(", 1)[0] for op in step.recording.ops]
    pairs = list(zip(step.roles, programs, strict=True))
    parted = {
        name
        for (role, name), spent in zip(pairs, seconds, strict=True)
        if spent > 0 and role.section not in ("", name) and role.kind != "control"
    }
    kind = np.array([bool(role.kind) for role in step.roles], bool)
    section = np.array([bool(role.section) and not (role.section == name in parted) for role, name in pairs], bool)
    return float(seconds[kind].sum()) / whole, float(seconds[section].sum()) / whole


def _total(values: list[float | None], times: np.ndarray) -> float | None:
    """The sum of what is known; None where nothing is."""
    known = [value * float(often) for value, often in zip(values, times, strict=True) if value is not None]
    return float(sum(known)) if known else None


def _rate(amount: float | None, seconds: float) -> float | None:
    return amount / seconds if amount and seconds else None
