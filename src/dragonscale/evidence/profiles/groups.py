"""Ops in groups of one section, phase and kind, and the longest ops, each held against its own roofline.

The roofline of an op is the longer of its FLOPs at the chip's rate for its dtype and its bytes at the rate of HBM; of a
group it is the sum of those of its ops. `fraction` is that time over what it took. Ops of which neither FLOPs nor bytes
are known count for the time of a group and not for its fraction. Kernels that only help another one of their
instruction have work of zero, not of an unknown amount, and their time counts: FLOPs over seconds is the rate of the
whole. Transfers that run beside each other count the time in which any of them does, so that bytes over seconds is what
the wires carried.

What travels is told by kind of collective and by the mesh axes its groups run along, exposed and overlapped, against
the wires. A group is told by its size and stride (`groups of 8, stride 16`); with a plan's mesh, whose last axis is the
innermost, these are axes. The bandwidth is that of the bytes a chip sends (for a ring over n chips, (n-1)/n of the
array for each pass) while the collective runs. It is held against what the chip's wires carry: under switches the tier
at which all ranks of the group meet, on a torus the links of the axes that the group runs along. Those are known only
with a plan, which says how the mesh lies on the slice; without one there is no fraction. Transfers between the host's
memory and the device are listed too, against the link to the host.
"""

import math
from collections import defaultdict

import numpy as np

from dragonscale.errors import InputError
from dragonscale.evidence.profiles.device_work import TRAVELS
from dragonscale.evidence.profiles.per_op import StepOps, limited_by
from dragonscale.evidence.profiles.records import MoveLine, WorkGroup, WorkOp
from dragonscale.evidence.profiles.roles import NEIGHBOURS, OpRole
from dragonscale.evidence.xla.device_groups import spanned_axes
from dragonscale.physics.collectives.group import Rings
from dragonscale.physics.hardware import Chip, Slice
from dragonscale.physics.hardware.chip import Torus
from dragonscale.physics.sharding.mesh import make_mesh

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


def attributed_shares(step: StepOps) -> tuple[float, float, float]:
    """Shares of the device's time whose kind is told, whose section is, and whose section is a guess. Loops and
    branches have what is left of them as their own time: what they run is counted apart, and their kind is known. A
    program's own name is a section only where it has no others: then its author calls it so, and what it holds is no
    model."""
    seconds, whole = step.totals.seconds, float(step.totals.seconds.sum())
    if not whole:
        return 0.0, 0.0, 0.0
    programs = [op.module.split("(", 1)[0] for op in step.recording.ops]
    pairs = list(zip(step.roles, programs, strict=True))
    ran = (pair for pair, spent in zip(pairs, seconds, strict=True) if spent > 0)
    parted = {name for role, name in ran if role.section not in ("", name) and role.kind != "control"}
    kind = np.array([bool(role.kind) for role in step.roles], bool)
    section = np.array([bool(role.section) and not (role.section == name in parted) for role, name in pairs], bool)
    guess = section & np.array([NEIGHBOURS in role.why for role in step.roles], bool)
    told, placed, guessed = (float(seconds[which].sum()) / whole for which in (kind, section, guess))
    return told, placed, guessed


def _total(values: list[float | None], times: np.ndarray) -> float | None:
    """The sum of what is known; None where nothing is."""
    known = [value * float(often) for value, often in zip(values, times, strict=True) if value is not None]
    return float(sum(known)) if known else None


def _rate(amount: float | None, seconds: float) -> float | None:
    return amount / seconds if amount and seconds else None


def moves(step: StepOps) -> tuple[MoveLine, ...]:
    """A line for each kind of collective over each set of axes, the one waited for longest first."""
    members: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, role in step.ran_roles:
        if role.kind in TRAVELS:
            members[role.kind, over(role.group, step.mesh)].append(number)
        elif role.kind == "host":
            members["host", role.what or "to or from the host"].append(number)
    lines = [_move_line(step, kind, name, some) for (kind, name), some in members.items()]
    return tuple(sorted(lines, key=lambda line: (-line.exposed_s, -line.seconds)))


def _move_line(step: StepOps, kind: str, name: str, some: list[int]) -> MoveLine:
    exposed, works = float(step.totals.exposed[some].sum()), step.totals.works
    seconds = max(step.in_flight(some), exposed)
    what = "hbm_bytes" if kind == "host" else "wire_bytes"
    counted = [number for number in some if works[number] > 0 and getattr(step.roles[number], what) is not None]
    sizes = {number: step.amount(number, what) for number in counted}
    sent = float(sum(sizes.values())) if sizes else None
    group = step.roles[some[0]].group
    rate = sent / seconds if sent and seconds else None
    wires = None
    if step.chip is not None:
        wires = step.chip.host_link if kind == "host" else _mean_rate(step, step.chip, sizes)
    return MoveLine(
        kind=kind,
        over=name,
        seconds=seconds,
        exposed_s=exposed,
        overlapped_s=max(0.0, seconds - exposed),
        times=float(works[some].sum()),
        axes=axes_of(group, step.mesh) or (),
        group_size=len(group) or None,
        sent_bytes=sent,
        bus_bytes_per_s=rate,
        wire_bytes_per_s=wires,
        fraction=rate / wires if rate and wires else None,
    )


def over(group: tuple[int, ...], mesh: dict[str, int]) -> str:
    """The axes of a group by their names, or its form; words where neither is known."""
    axes = axes_of(group, mesh)
    return "+".join(axes) if axes else group_form(group) or "groups not recorded"


def axes_of(group: tuple[int, ...], mesh: dict[str, int]) -> tuple[str, ...]:
    """The mesh axes that a group runs along; none where it is not along whole axes.

    >>> axes_of((0, 2), {"data": 1, "fsdp": 2, "tensor": 2})
    ('fsdp',)
    """
    if len(group) < 2 or math.prod(mesh.values()) <= max(group):
        return ()
    return spanned_axes((tuple(group),), mesh) or ()


def group_form(group: tuple[int, ...]) -> str:
    """A group in words.

    >>> group_form((0, 16, 32, 48)), group_form((0, 1, 2, 3)), group_form((0, 3, 4)), group_form(())
    ('groups of 4, stride 16', 'groups of 4', 'groups of 3', '')
    """
    if len(group) < 2:
        return ""
    steps = {after - before for before, after in zip(sorted(group), sorted(group)[1:], strict=False)}
    stride = steps.pop() if len(steps) == 1 else 1
    return f"groups of {len(group)}" + (f", stride {stride}" if stride > 1 else "")


def _mean_rate(step: StepOps, chip: Chip, sizes: dict[int, float]) -> float | None:
    """What the wires carry, over ops whose groups look alike and may still lie apart: ranks 0 and 1 in a node, 7 and 8
    across two. It is all bytes over the least time for them; None where the wires of any op are not known."""
    amount: dict[tuple[int, ...], float] = defaultdict(float)
    for one, size in sizes.items():
        if size:  # the end of a pair that starts and ends sends nothing more
            amount[step.roles[one].group] += size
    rates = {group: wire_rate(chip, group, step.mesh, step.piece) for group in amount}
    known = {group: rate for group, rate in rates.items() if rate}
    least = sum(amount[group] / rate for group, rate in known.items())
    return sum(amount.values()) / least if least and len(known) == len(rates) else None


def wire_rate(
    chip: Chip, group: tuple[int, ...], mesh: dict[str, int] | None = None, piece: Slice | None = None
) -> float | None:
    """Bytes a second that a chip can send into a group; None where that cannot be told.

    >>> from dragonscale.physics.hardware import load_chip
    >>> [wire_rate(load_chip("h100"), group) for group in ((0, 1), (6, 7), (7, 8))]
    [450000000000.0, 450000000000.0, 50000000000.0]
    """
    network = chip.network
    if len(group) < 2:
        return None
    if isinstance(network, Torus):
        return _ring_rate(group, mesh or {}, piece)
    below = 1
    for level in network.levels:
        if not level.degree or min(group) // (below * level.degree) == max(group) // (below * level.degree):
            return level.bandwidth / below
        below *= level.degree
    return None


def _ring_rate(group: tuple[int, ...], mesh: dict[str, int], piece: Slice | None) -> float | None:
    """The links of the rings that a mesh's axes have on a slice of a torus; None across pods, whose
    network is another."""
    axes = axes_of(group, mesh)
    if not axes or piece is None:
        return None
    try:
        wires = make_mesh(dict(mesh), piece.chip, piece).group(axes)
    except InputError:
        return None
    return float(sum(ring.links for ring in wires.axes) * wires.link) if isinstance(wires, Rings) else None
