"""What travels in a step: by kind of collective and by the mesh axes its groups run along, exposed and overlapped,
against the wires.

A group is told by its size and stride (`groups of 8, stride 16`); with a plan's mesh, whose last axis is the innermost,
these are axes. The bandwidth is that of the bytes a chip sends (for a ring over n chips, (n-1)/n of the array for each
pass) while the collective runs. It is held against what the chip's wires carry: under switches the tier at which all
ranks of the group meet, on a torus the links of the axes that the group runs along. Those are known only with a plan,
which says how the mesh lies on the slice; without one there is no fraction. Transfers between the host's memory and the
device are listed too, against the link to the host.

>>> group_form((0, 16, 32, 48)), group_form((0, 1, 2, 3)), group_form((0, 3, 4)), group_form(())
('groups of 4, stride 16', 'groups of 4', 'groups of 3', '')
>>> axes_of((0, 2), {"data": 1, "fsdp": 2, "tensor": 2})
('fsdp',)
"""

import math
from collections import defaultdict

from dragonscale.errors import InputError
from dragonscale.evidence.profiles.parts import TRAVELS
from dragonscale.evidence.profiles.per_op import StepOps
from dragonscale.evidence.profiles.records import MoveLine
from dragonscale.evidence.xla.device_groups import spanned_axes
from dragonscale.physics.collectives.group import Rings
from dragonscale.physics.hardware import Chip, Slice
from dragonscale.physics.hardware.chip import Torus
from dragonscale.physics.sharding.mesh import make_mesh


def moves(step: StepOps) -> tuple[MoveLine, ...]:
    """A line for each kind of collective over each set of axes, the one waited for longest first."""
    members: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, role in step.ran_roles:
        if role.kind in TRAVELS:
            members[role.kind, over(role.group, step.mesh)].append(number)
        elif role.kind == "host":
            members["host", role.what or "to or from the host"].append(number)
    lines = [_line(step, kind, name, some) for (kind, name), some in members.items()]
    return tuple(sorted(lines, key=lambda line: (-line.exposed_s, -line.seconds)))


def _line(step: StepOps, kind: str, name: str, some: list[int]) -> MoveLine:
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
    """The mesh axes that a group runs along; none where it is not along whole axes."""
    if len(group) < 2 or math.prod(mesh.values()) <= max(group):
        return ()
    return spanned_axes((tuple(group),), mesh) or ()


def group_form(group: tuple[int, ...]) -> str:
    """A group in words."""
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
